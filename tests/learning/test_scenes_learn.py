"""A captioner learns scenes it can tell apart, by the program's own run, and its words look at what they name."""

import pytest

from jumok.images import scenes
from jumok.tasks import load, make_recipe
from jumok.tasks.captioning_scores import score_captioner
from jumok.tasks.results import EvaluationOptions
from jumok.tasks.run import train
from jumok.training import Report

pytestmark = pytest.mark.long

RECIPE = {
    "images": {"scenes": "en", "count": 1500, "valid_count": 100, "size": 32},
    "tokenizer": {"kind": "word", "size": 60},
    "encoder": {"kind": "patches", "patch": 4, "layers": 0, "width": 48, "dropout": 0.0},
    "decoder": {"kind": "rnn", "attention": "general", "width": 64, "embedding": 32, "dropout": 0.0},
    "batch": {"tokens": 512},
    "training": {
        "steps": 550,
        "learning_rate": 0.005,
        "warmup": 30,
        "schedule": "cosine",
        "label_smoothing": 0.0,
        "validate_every": 1000,
    },
    "decoding": {"beam": 1, "max_length": 16},
}


@pytest.fixture
def two_things_of_one_size(monkeypatch):
    """A circle or a square beside another, in two of six colours: 480 captions."""
    appearances = scenes._appearances
    monkeypatch.setattr(scenes, "SHAPES", ("circle", "square"))
    monkeypatch.setattr(scenes, "RADII", {"": 0.15})
    monkeypatch.setattr(scenes, "_appearances", lambda draws, count: appearances(draws, 2))


@pytest.mark.long(seconds=15)
@pytest.mark.usefixtures("two_things_of_one_size")
def test_a_captioner_of_scenes_names_colours_and_looks_at_them(tmp_path):
    train(make_recipe(RECIPE), out=tmp_path / "model", device="cpu", report=Report(), draw=False)
    found = score_captioner(load(tmp_path / "model", device="cpu"), EvaluationOptions(metrics=("exact_match",)))
    wanted = [scene.caption() for scene in scenes.scenes(len(found.outputs), split="test")]
    colours = [colours_of(said) == colours_of(right) for said, right in zip(found.outputs, wanted, strict=True)]
    assert sum(colours) / len(colours) >= 0.9, "by chance one in thirty"
    assert found.scores[0].value >= 8, "percent of captions right to the word; by chance 0.2"
    assert found.pointing.colour >= 90, "percent of colour words that look at the thing they name; nobody said where"


def colours_of(caption):
    return [word for word in caption.split() if word in scenes.COLOURS]
