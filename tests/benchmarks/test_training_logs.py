"""Logs that the benchmarks keep of training runs: short, and one for each run."""

import json
from pathlib import Path

import pytest

from benchmarks import captions, fine_tuning, g2p, inflection, l10n, low_resource, multi30k, results
from benchmarks.training_logs import MOST, keep_logs


def write_metrics(path: Path, validations: int, *, best: int) -> None:
    """Two steps and a validation, again and again, as a run writes them; the last line is cut short."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        for number in range(1, validations + 1):
            for step in (20 * number - 10, 20 * number):
                file.write(json.dumps({"step": step, "loss": 1 / 3 + number, "seconds": 2.0 * step}) + "\n")
            scores = {"bleu": 2 / 3 - abs(number - best)}
            file.write(json.dumps({"step": 20 * number, "validation": scores, "best": number <= best}) + "\n")
        file.write('{"step": 99')


@pytest.fixture
def logs(tmp_path, monkeypatch) -> Path:
    for module in (results, captions, l10n, multi30k):
        monkeypatch.setattr(module, "FOLDER", tmp_path / "results")
    return tmp_path / "results/logs"


def read(log: Path) -> list[dict]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def test_a_log_has_the_validations_and_the_last_step(tmp_path, logs):
    write_metrics(tmp_path / "runs/en-ko/1/metrics.jsonl", 3, best=2)
    (log,) = keep_logs("l10n", tmp_path / "runs")
    assert log == logs / "l10n.en-ko.1.jsonl"
    kept = read(log)
    assert [(record["step"], "validation" in record) for record in kept] == [
        (20, True),
        (40, True),
        (60, False),
        (60, True),
    ]
    assert kept[2]["loss"] == 3.33333


@pytest.mark.parametrize(("validations", "best"), [(37, 20), (38, 20), (75, 2), (500, 333)])
def test_the_log_of_a_long_run_is_short_and_has_its_best_and_last_validation(tmp_path, logs, validations, best):
    write_metrics(tmp_path / "de-en.2.metrics.jsonl", validations, best=best)
    (log,) = keep_logs("multi30k", tmp_path)
    kept = read(log)
    assert MOST / 2 < len(kept) <= MOST
    steps = [record["step"] for record in kept if "validation" in record]
    assert {20, 20 * best, 20 * validations} <= set(steps)
    assert steps == sorted(steps)


def test_a_run_that_was_never_validated_has_its_last_step(tmp_path, logs):
    (tmp_path / "a.1.metrics.jsonl").write_text('{"step": 10, "loss": 3}\n{"step": 20, "loss": 2}\n')
    assert read(keep_logs("multi30k", tmp_path)[0]) == [{"step": 20, "loss": 2}]


def score_multi30k(folder: Path) -> None:
    (folder / multi30k.ABOUT).write_text('{"device": "a GPU", "torch": "2"}')
    multi30k.score(folder)


def score_low_resource(folder: Path) -> None:
    run = {"seeds": [1], "valid": 12.0, "length_penalty": 1.0, "steps": 20, "minutes": 1.0}
    run["outputs"] = ["a small house stands here"]
    (folder / "transformer.1.json").write_text(json.dumps(run))
    (folder / "device").write_text("a GPU")
    low_resource.score(folder)


@pytest.mark.parametrize(
    ("name", "score"),
    [
        ("multi30k", score_multi30k),
        ("l10n", lambda folder: l10n.score(folder, [], more=False)),
        ("low-resource", score_low_resource),
    ],
)
def test_scoring_keeps_the_logs_of_the_scored_runs(name, score, tmp_path, logs, monkeypatch):
    monkeypatch.setattr(multi30k, "write", lambda *arguments, **settings: None)  # needs sacremoses
    monkeypatch.setattr(low_resource, "lines", lambda language, split="test": ["a small house stands here"])
    write_metrics(tmp_path / "runs/transformer/1/metrics.jsonl", 2, best=1)
    score(tmp_path / "runs")
    assert [log.name for log in logs.iterdir()] == [f"{name}.transformer.1.jsonl"]


@pytest.mark.parametrize(
    ("name", "score"),
    [
        ("captions", lambda folder: captions.measure(folder, [], "cpu", "")),
        ("fine-tuning", lambda folder: fine_tuning.score(folder)),
        ("g2p", lambda folder: g2p.score(folder, "a GPU")),
        ("inflection", lambda folder: inflection.score(folder, "a GPU")),
    ],
)
def test_scoring_keeps_the_logs_of_models_that_are_still_in_their_folders(name, score, tmp_path, logs):
    write_metrics(tmp_path / "runs/hard-1/metrics.jsonl", 2, best=1)
    score(tmp_path / "runs")
    assert [log.name for log in logs.iterdir()] == [f"{name}.hard-1.jsonl"]
