"""Scores of inflection and of few sentence pairs: what was run again replaces its rows, everything else stays."""

import json
from pathlib import Path

import pytest

from benchmarks import inflection, low_resource, results
from benchmarks.results import Row

RECIPE = "recipes/low-resource-de-en.toml with guided alignment"
GUIDED = f"{RECIPE}, beam 5, 5,000 steps in 2.4 minutes, 3 seeds; validation 90.00; tokenised"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder of runs and of the results, which are a copy of the committed ones."""
    for name in ("inflection.json", "low_resource.json"):
        (tmp_path / name).write_bytes((results.FOLDER / name).read_bytes())
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(low_resource, "lines", lambda language, split="test": ["a small house stands here"])
    (tmp_path / "device").write_text("a GPU")
    return tmp_path


def table(name: str) -> dict[tuple[str, str], tuple[float | None, str]]:
    return {(row.id, row.system): (row.value, row.conditions) for row in results.saved(name)}


def write_runs(folder: Path, system: str, *, seeds: int, valid: float) -> None:
    run = {"group": "small", "language": "kor", "system": system, "seconds": 60.0, "valid": valid}
    runs = [run | {"seed": seed, "accuracy": 70.0 + seed} for seed in range(1, seeds + 1)]
    (folder / "runs.jsonl").write_text("".join(json.dumps(run) + "\n" for run in runs))


def write_talks(folder: Path, system: str, *, valid: float) -> None:
    run = {
        "seeds": [1],
        "valid": valid,
        "length_penalty": 1.0,
        "steps": 20,
        "minutes": 1.0,
        "outputs": ["a small house stands here"],
    }
    (folder / f"{system}.1.json").write_text(json.dumps(run))


@pytest.mark.parametrize("name", ["inflection", "low_resource"])
def test_without_runs_all_rows_stay(name, folder):
    before = results.saved(name)
    inflection.score(folder, "now") if name == "inflection" else low_resource.score(folder)
    assert results.saved(name) == before


def test_inflection_replaces_the_rows_of_what_was_run(folder):
    before = table("inflection")
    write_runs(folder, "rnnsearch", seeds=1, valid=10.0)
    inflection.score(folder, "now")
    changed = "inflection-kor-small", inflection.NAMES["rnnsearch"]
    about = "recipes/inflection-kor-rnnsearch.toml, 1 seed, validation 10.00, 1.0 minutes of training in all, several"
    assert table("inflection") == before | {changed: (71.0, f"{about} at a time")}


def test_a_better_system_becomes_jumok_and_the_one_before_takes_its_name(folder):
    before = table("inflection")
    write_runs(folder, "transducer", seeds=2, valid=99.0)
    inflection.score(folder, "now")
    after, id = table("inflection"), "inflection-kor-small"
    assert after[id, "jumok"][0] == 71.5
    assert "2 seeds, deviation 0.71, validation 99.00" in after[id, "jumok"][1]
    assert after[id, inflection.NAMES["hard"]] == before[id, "jumok"]


def test_an_earlier_ensemble_stays_beside_its_system(folder):
    together = Row("inflection-kor-small", "jumok, ensemble", 60.0, "%", "3 models of recipes/inflection-kor-hard.toml")
    results.write("inflection", [*results.saved("inflection"), together], device="earlier")
    write_runs(folder, "transducer", seeds=1, valid=99.0)
    inflection.score(folder, "now")
    assert table("inflection")[together.id, f"{inflection.NAMES['hard']}, ensemble"] == (60.0, together.conditions)


def test_few_pairs_keep_the_systems_that_were_not_run_again(folder):
    before = table("low_resource")
    write_talks(folder, "guided", valid=10.0)
    low_resource.score(folder)
    after = table("low_resource")
    assert after[low_resource.GOAL, "jumok, guided Transformer"][0] == 100.0
    assert ", 1 seed; validation 10.00; " in after[low_resource.GOAL, "jumok, guided Transformer"][1]
    assert before.items() <= after.items()


def test_few_pairs_rename_earlier_rows_when_another_system_is_best(folder):
    goal = low_resource.GOAL
    earlier = [Row(goal, "jumok", 12.0, "BLEU", GUIDED), Row(f"{goal}-deviation", "jumok", 0.2, "BLEU", GUIDED)]
    results.write("low_resource", [*earlier, Row(goal, "jumok, 3 models", 13.0, "BLEU", GUIDED)], device="earlier")
    write_talks(folder, "transformer", valid=95.0)
    low_resource.score(folder)
    after = table("low_resource")
    assert after[goal, "jumok"][0] == 100.0
    assert after[goal, "jumok, guided Transformer"] == (12.0, GUIDED)
    assert after[f"{goal}-deviation", "jumok, guided Transformer"] == (0.2, GUIDED)
    assert after[goal, "jumok, guided Transformer, 3 models"] == (13.0, GUIDED)
