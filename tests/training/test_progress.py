import io
import json
import re
import sys
import types
from dataclasses import replace

import pytest

from jumok.training import BarReport, LineReport, TrainingConfig, read_metrics, report_to_stderr, train
from jumok.training.metrics import Metrics
from jumok.training.progress import TimeLeft, clock, pace
from jumok.training.progress import scores as shown_scores
from jumok.training.score_names import lower_is_better, score_text
from support.tiny import TinyBatches, TinyModel, validate

CONFIG = TrainingConfig(steps=6, validate_every=3, log_every=2, metric="loss", warmup=2)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_log_file_gets_a_line_for_every_record(tmp_path, capsys):
    train(TinyModel(), TinyBatches(), CONFIG, folder=tmp_path / "run", validate=validate, report=LineReport())
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert re.fullmatch(r"step 2/6  loss \d\.\d{3}  [\d.]+k? tok/s  0:\d\d left", lines[0])
    assert re.fullmatch(r"step 3/6  validation: loss \S+  perplexity \S+ \*", lines[1])
    assert (
        lines[-1]
        == "step 6: training.steps = 6 reached; to continue, raise it and use --resume (in Python resume=True)"
    )


def test_a_terminal_gets_a_bar_with_loss_pace_time_left_and_the_last_validation(tmp_path, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    report = report_to_stderr()
    assert isinstance(report, BarReport)
    train(TinyModel(), TinyBatches(), CONFIG, folder=tmp_path / "run", validate=validate, report=report)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())
    last = [line for line in re.split(r"[\r\n]+", shown) if "6/6" in line][-1]
    assert re.search(r"step 6/6 .* loss \d\.\d{3}  [\d.]+k? tok/s 0:00 left loss \S+", last)
    assert "step 3: loss" in shown
    assert "training.steps = 6 reached" in shown


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("exact_match", 97.3, "exact match 97.3%"),
        ("wer", 12.0, "WER 12%"),
        ("accuracy", 81.25, "accuracy 81.25%"),
        ("bleu", 31.416, "BLEU 31.42"),
        ("chrf", 55.0, "chrF 55"),
        ("loss", 1.25, "loss 1.25"),
        ("validation accuracy", 80.0, "validation accuracy 80%"),
    ],
)
def test_a_score_has_its_name_and_its_unit(name, value, text):
    assert score_text(name, value) == text
    if name == "exact_match":
        assert shown_scores({"validation": {"loss": 0.1, name: value}, "best": True}) == f"loss 0.1  {text} *"


def test_errors_are_better_when_lower_in_every_corpus_of_a_mixture():
    assert all(map(lower_is_better, ["loss", "wer", "medical wer", "ter"]))
    assert not any(map(lower_is_better, ["bleu", "medical bleu", "validation accuracy"]))


def test_no_terminal_means_lines(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert isinstance(report_to_stderr(), LineReport)


def test_the_bar_is_gone_when_training_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    report = BarReport()

    def broken(model):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        train(TinyModel(), TinyBatches(), CONFIG, folder=tmp_path / "run", validate=broken, report=report)
    assert report._bar is None


def test_the_bar_shows_the_numbers_of_its_last_step(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    report = BarReport()
    report.begin(step=0, steps=2, minutes=0, seconds=0)
    bar = report._bar
    for step, loss in ((1, 2.5), (2, 1.25)):
        report.step(step)
        report.record({"step": step, "loss": loss, "tokens_per_second": 10.0, "skipped": 0})
    report.end()
    assert "1.25" in bar.tasks[0].fields["numbers"]


@pytest.mark.parametrize(("seconds", "text"), [(None, "-:--"), (0, "0:00"), (61.2, "1:01"), (3723, "1:02:03")])
def test_time_reads_as_on_a_clock(seconds, text):
    assert clock(seconds) == text


@pytest.mark.parametrize(("rate", "text"), [(3.2, "3"), (999, "999"), (12345.6, "12.3k")])
def test_pace_is_short(rate, text):
    assert pace(rate) == text


def test_time_left_goes_by_the_pace_since_the_resume_and_by_the_limit_of_minutes(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    by_steps = TimeLeft(step=10, steps=30, minutes=0, seconds=50)
    by_minutes = TimeLeft(step=10, steps=30, minutes=1, seconds=50)
    assert by_steps.after(10) is None
    now[0] += 5
    assert by_steps.after(15) == 15
    assert by_minutes.after(15) == 5
    now[0] += 60
    assert by_minutes.after(16) == 0
    assert by_minutes.done(16) == 1


def test_a_limit_of_minutes_is_told_from_the_first_step_and_fills_the_bar(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    left = TimeLeft(step=0, steps=100_000, minutes=1, seconds=0)
    assert left.after(0) == 60
    assert left.done(0) == 0
    now[0] += 30
    assert left.after(10) == 30
    assert left.done(10) == 0.5
    assert TimeLeft(step=0, steps=20, minutes=1, seconds=0).done(15) == 0.75  # the steps are nearer their end


def test_steps_are_not_counted_against_a_number_that_will_not_be_reached(tmp_path, capsys):
    config = replace(CONFIG, minutes=10)
    train(TinyModel(), TinyBatches(), config, folder=tmp_path / "run", validate=validate, report=LineReport())
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"step 2  loss \d\.\d{3}  [\d.]+k? tok/s  \d:\d\d left", first)
    assert second.startswith("step 3  validation: loss")


def test_tensorboard_gets_the_same_numbers_where_it_is_installed(tmp_path, monkeypatch):
    written, made = [], []

    class SummaryWriter:
        def __init__(self, folder, purge_step):
            made.append((folder, purge_step))

        def add_scalar(self, name, value, step):
            written.append((name, value, step))

        def close(self):
            written.append("closed")

    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=SummaryWriter))
    metrics = Metrics(tmp_path, step=4, validated=0)
    metrics.write({"step": 6, "loss": 1.5})
    metrics.write({"step": 6, "validation": {"bleu": 20.0}, "best": True})
    metrics.close()
    assert made == [(str(tmp_path / "tensorboard"), 5)]
    assert written == [("training/loss", 1.5, 6), ("validation/bleu", 20.0, 6), "closed"]


def test_tensorboard_itself_reads_the_same_numbers_and_a_resumed_run_replaces_lost_steps(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for steps in (6, 10):
        config = replace(CONFIG, steps=steps)
        train(TinyModel(), TinyBatches(), config, folder=tmp_path, validate=validate, resume=steps == 10)
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    lines = read_metrics(tmp_path / "metrics.jsonl")
    for name, records in (
        ("training/loss", {line["step"]: line["loss"] for line in lines if "loss" in line}),
        ("validation/loss", {line["step"]: line["validation"]["loss"] for line in lines if "validation" in line}),
    ):
        assert {event.step: event.value for event in board.Scalars(name)} == pytest.approx(records)


def test_numbers_that_are_not_finite_are_written_as_null(tmp_path):
    metrics = Metrics(tmp_path, step=0, validated=0)
    metrics.write({"step": 1, "loss": float("nan"), "validation": {"loss": float("inf")}})
    metrics.close()
    assert json.loads(metrics.path.read_text()) == {"step": 1, "loss": None, "validation": {"loss": None}}
