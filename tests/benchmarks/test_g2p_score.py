"""The scores of pronunciation: what was run again replaces its rows, everything else stays."""

import json

import pytest

from benchmarks import g2p, results

ALL = "recipes/g2p-all.toml, 1 seed, validation 20.00"
HARD = "recipes/g2p-hard.toml, 2 seeds, deviation 0.78, validation 19.00"


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """The rows after hard attention and transducers were run for the group low."""
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    before = [
        results.Row("g2p-2021-high", "jumok", 42.44, "% WER", ALL),
        results.Row("words-g2p/eng_us", g2p.NAMES["all"], 42.44, "% WER", "high"),
        results.Row("g2p-2021-low", g2p.NAMES["all"], 25.7, "% WER", ALL),
        results.Row("words-g2p/ady", g2p.NAMES["all"], 25.0, "% WER", "low"),
        results.Row("g2p-2021-low", g2p.SINGLE, 26.85, "% WER", HARD),
        results.Row("words-g2p/medium", g2p.NAMES["one"], 12.0, "% WER", "recipes/g2p.toml, 1 seed"),
    ]
    results.write("g2p", before, device="earlier")
    runs = []
    for language in g2p.LANGUAGES["low"]:
        of = {"group": "low", "language": language, "words": 100, "outputs": []}
        for system, right in (("hard-short", 70), ("transducer-short", 71)):
            for seed in (1, 2):
                run = {"system": system, "seed": seed, "valid": 25.0, "accuracy": right, "processor_seconds": 30}
                runs.append(of | run)
            together = {"system": f"{system}, ensemble", "seed": 2, "valid_accuracy": 76, "accuracy": right + 2}
            runs.append(of | together)
        together = {
            "system": "hard-short + transducer-short, ensemble",
            "seed": 4,
            "valid_accuracy": 82,
            "accuracy": 74,
        }
        runs.append(of | together)
    (tmp_path / "runs.jsonl").write_text("".join(json.dumps(run) + "\n" for run in runs))
    g2p.score(tmp_path, "now")
    found = json.loads((tmp_path / "g2p.json").read_text(encoding="utf-8"))
    assert found["device"] == "now"
    return {(row["id"], row["system"]): (row["value"], row["conditions"]) for row in found["rows"]}


def test_groups_and_systems_that_were_not_run_again_keep_their_rows(rows):
    assert rows["g2p-2021-high", "jumok"] == (42.44, ALL)
    assert rows["words-g2p/eng_us", "jumok, one model for all"] == (42.44, "high")
    assert rows["words-g2p/medium", "jumok, a model for each"] == (12.0, "recipes/g2p.toml, 1 seed")
    assert rows["g2p-2021-low", "jumok, single model"] == (26.85, HARD)  # the best of them on the validation words
    assert rows["g2p-2021-low", "jumok, one model for all"] == (25.7, ALL)
    assert rows["words-g2p/ady", "jumok, one model for all"] == (25.0, "low")


def test_single_models_of_an_ensemble_have_rows_beside_the_table(rows):
    value, about = rows["words-g2p/low", "jumok, hard monotonic attention for each, short"]
    assert value == 30
    assert about.startswith("recipes/g2p-hard.toml with 500 steps at 0.002, 2 seeds, deviation 0.00, validation 25.00")
    assert about.endswith(", 0.5 processor minutes each")
    assert rows["words-g2p/ady", "jumok, a transducer for each, short"] == (29.0, "low")


def test_what_is_best_on_the_validation_words_stands_for_jumok(rows):
    value, about = rows["g2p-2021-low", "jumok"]
    assert value == 26
    assert about.startswith("2 models of recipes/g2p-hard.toml with 500 steps at 0.002 and 2 models of recipes/g2p-tr")
    assert about.endswith(" for each language, validation 18.00, 20 processor minutes for all")
    assert rows["words-g2p/low", "jumok, a transducer for each, short, ensemble"][0] == 27.0
