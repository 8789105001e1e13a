"""The Python API: jumok.train, jumok.load and what a Run holds."""

import pytest

import jumok
from jumok.errors import ArgumentError, ConfigError, ModelError
from jumok.tasks import TRANSLATION
from jumok.training import Report

RECIPE = """
[data]
corpus = "reverse"
size = 60
valid_size = 6
longest = 4
[tokenizer]
kind = "char"
[encoder]
kind = "rnn"
width = 8
embedding = 6
[decoder]
kind = "rnn"
width = 8
embedding = 6
[training]
steps = 100
metric = "loss"
validate_every = 2
"""
GRAPH = {
    "graph": {"built_in": "planted", "size": 60},
    "network": {"width": 4, "heads": 2},
    "training": {"steps": 2, "validate_every": 1},
}


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.toml").write_text(RECIPE, encoding="utf-8")
    return "tiny.toml"


@pytest.mark.slow
def test_a_recipe_is_trained_with_overrides_and_loaded_again(recipe):
    run = jumok.train(recipe, overrides={"training.steps": 4}, device="cpu", report=Report())
    assert str(run.folder) == "runs/tiny"
    assert (run.stopped, run.state.step) == ("steps", 4)
    assert run.metrics.keys() >= {"loss", "perplexity"}
    assert isinstance(run.model, jumok.Translator)
    loaded = jumok.load("runs/tiny", device="cpu")
    assert loaded.translate(["12"])[0].text == run.model.translate(["12"])[0].text


@pytest.mark.slow
def test_a_run_is_resumed(recipe):
    settings = {"out": "here", "device": "cpu", "report": Report()}
    jumok.train(recipe, overrides=["training.steps=2"], **settings)
    assert jumok.train(recipe, overrides={"training.steps": 4}, resume=True, **settings).state.step == 4


def test_tables_are_a_recipe_and_their_sections_tell_the_task(tmp_path):
    run = jumok.train(GRAPH, out=tmp_path / "graph", device="cpu", report=Report())
    assert isinstance(run.model, jumok.NodeClassifier)
    assert run.metrics.keys() >= {"loss", "accuracy", "test accuracy"}
    loaded = jumok.load(tmp_path / "graph", device="cpu")
    assert loaded.accuracy().value == run.metrics["test accuracy"]
    assert loaded.attention(0).weights.sum() > 0
    with pytest.raises(ModelError, match="does not hold a model that translates text"):
        TRANSLATION.load(tmp_path / "graph", device="cpu")


def test_without_a_folder_the_bundled_model_is_loaded():
    assert isinstance(jumok.load(device="cpu"), jumok.Translator)


@pytest.mark.parametrize("overrides", [{"training.step": 4}, ["training.step=4"], {"steps": 4}])
def test_a_wrong_override_is_named(recipe, overrides):
    with pytest.raises(ConfigError) as raised:
        jumok.train(recipe, overrides=overrides, report=Report())
    assert "steps" in str(raised.value)
    assert ("--set" if isinstance(overrides, list) else "overrides[") in str(raised.value)


def test_a_recipe_without_a_file_needs_a_folder():
    with pytest.raises(ArgumentError, match="out is missing"):
        jumok.train(GRAPH, report=Report())
