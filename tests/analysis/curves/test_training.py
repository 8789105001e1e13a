import json
import sys

import pytest

from jumok.analysis.curves.training import curve_picture, read_curves
from jumok.errors import ArgumentError, DataError, MissingExtraError


@pytest.fixture
def metrics(tmp_path):
    path = tmp_path / "metrics.jsonl"
    records = [
        {"step": 10, "loss": 3.0},
        {"step": 20, "loss": None},
        {"step": 20, "validation": {"loss": 2.5, "perplexity": 12.2, "bleu": 3.0}, "best": True},
        {"step": 30, "loss": 2.0},
        {"step": 40, "validation": {"loss": 2.2, "perplexity": 9.0, "bleu": 5.0}, "best": True},
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_curves_are_read_by_name_without_missing_values(metrics):
    assert read_curves(metrics) == {
        "training": ([10, 30], [3.0, 2.0]),
        "loss": ([20, 40], [2.5, 2.2]),
        "perplexity": ([20, 40], [12.2, 9.0]),
        "bleu": ([20, 40], [3.0, 5.0]),
    }


def test_the_picture_has_a_chart_for_loss_and_one_for_every_score_with_the_best_in_its_title(metrics, tmp_path):
    text = curve_picture(metrics, tmp_path / "curve.svg").read_text()
    for words in ("Loss, best: 2.2 at step 40", "BLEU, best: 5 at step 40", "training", "validation", "step"):
        assert words in text, words
    assert curve_picture(metrics, tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_without_validation_has_one_chart(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 10, "loss": 3.0}\n{"step": 20, "loss": 2.0}\n')
    text = curve_picture(path, tmp_path / "curve.svg").read_text()
    assert "Loss" in text
    assert "best" not in text


def test_what_cannot_be_drawn_is_said(metrics, tmp_path, monkeypatch):
    with pytest.raises(ArgumentError, match=r"curve.docx should end in one of .*\.png"):
        curve_picture(metrics, tmp_path / "curve.docx")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match=r"empty.jsonl holds no numbers yet"):
        curve_picture(tmp_path / "empty.jsonl", tmp_path / "curve.png")
    (tmp_path / "bad.jsonl").write_text("nonsense\n")
    with pytest.raises(DataError, match=r"bad.jsonl, line 1: not a JSON object"):
        curve_picture(tmp_path / "bad.jsonl", tmp_path / "curve.png")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[plot\]'"):
        curve_picture(metrics, tmp_path / "curve.png")
