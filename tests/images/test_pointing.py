"""Whether words look at what they name, by attention that was made to be right, wrong or undecided."""

import json
from pathlib import Path

import numpy as np
import pytest

from jumok.errors import ArgumentError
from jumok.images.pointing import named_property, pointing, regions
from jumok.images.scenes import COLOURS, KOREAN, SHAPES, scenes

GRID = (8, 8)
ROOT = Path(__file__).resolve().parents[2]


def looks(language, thing_of):
    """Every word looks evenly at the regions of the thing that `thing_of` chooses for it."""
    for scene in scenes(10):
        reach = regions(scene, GRID)
        weights = []
        for word in scene.words(language):
            chosen = reach[thing_of(word.thing or 0, len(reach))].astype(float)
            weights.append(chosen / chosen.sum())
        yield scene, np.stack(weights)


@pytest.mark.parametrize("language", ["en", "ko"])
def test_words_that_look_at_their_things_point(language):
    found = pointing(looks(language, lambda thing, count: thing), language=language)
    assert found.all == found.size == found.colour == found.shape == 100
    assert found.mass == pytest.approx(100)
    assert found.words == sum(word.thing is not None for scene in scenes(10) for word in scene.words(language))


def test_words_that_look_at_another_thing_do_not():
    found = pointing(looks("en", lambda thing, count: (thing + 1) % count))
    assert found.all == 0
    assert found.mass < 20  # things can share a region at their edges


def test_words_that_look_everywhere_do_not():
    even = ((scene, np.full((len(scene.words()), *GRID), 1 / 64)) for scene in scenes(10))
    assert pointing(even).all == 0


def test_regions_are_those_that_a_thing_reaches_into():
    for scene in scenes(10):
        masks, reach = scene.masks(64), regions(scene, GRID)
        wanted = masks.reshape(len(masks), 8, 8, 8, 8).any((2, 4))
        assert (reach == wanted).mean() > 0.97  # edges fall between other pixels
        assert reach.any((1, 2)).all()


def test_kinds_of_words():
    assert {named_property(word) for word in COLOURS} == {"colour"}
    assert {named_property(KOREAN[word]) for word in COLOURS} == {"colour"}
    assert {named_property(word) for word in SHAPES} == {"shape"}
    assert named_property("별이") == named_property("동그라미가") == "shape"
    assert named_property("작은") == named_property("large") == "size"


def test_as_many_words_must_have_looked_as_there_are():
    (scene,) = scenes(1)
    with pytest.raises(ArgumentError, match="must match"):
        pointing([(scene, np.zeros((2, *GRID)))])


def test_the_recipes_of_scenes_were_measured_to_point():
    rows = json.loads((ROOT / "benchmarks/results/captions.json").read_text(encoding="utf-8"))["rows"]
    measured = {(row["system"], row["id"]): row["value"] for row in rows}
    for language in ("English", "Korean"):
        assert measured[f"jumok, {language}", "scenes/words that point"] >= 90
        assert measured[f"jumok, {language}", "scenes/words of colour that point"] >= 90
        assert measured[f"jumok, {language}", "scenes/captions right"] >= 90
