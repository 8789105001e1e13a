"""The recipes that come with jumok can be read, and say what they are for."""

import tomllib
from pathlib import Path

import pytest

from jumok.recipe import write_recipe
from jumok.tasks import make_recipe, read_recipe

RECIPES = sorted((Path(__file__).resolve().parents[1] / "recipes").glob("*.toml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_read_without_complaint_and_begins_with_a_sentence(path, monkeypatch):
    for name in ("JUMOK_DATA", "JUMOK_L10N"):
        monkeypatch.setenv(name, "somewhere")
    recipe = read_recipe(path)
    assert path.read_text(encoding="utf-8").startswith("# ")
    assert recipe.training.steps > 0
    assert make_recipe(tomllib.loads(write_recipe(recipe)), variables=False) == recipe


def test_there_is_a_recipe_for_every_model_in_every_direction():
    names = {path.stem for path in RECIPES}
    for direction in ("en-de", "de-en", "en-fr"):
        assert {f"multi30k-{direction}-{model}" for model in ("fixed", "rnnsearch", "luong", "transformer")} <= names
    assert {"cldr-en-ko", "dates", "reverse", "g2p-kor", "ko-en-python-docs"} <= names
    assert {"cora", "citeseer", "planted-graph"} <= names
    assert {"scenes-en", "scenes-ko", "flickr8k"} <= names


def test_two_files_are_a_recipe():
    recipe = make_recipe({"data": {"source": "train.en", "target": "train.ko"}})
    assert recipe.encoder.kind == recipe.decoder.kind == "transformer"
