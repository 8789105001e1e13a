"""What is said of a model folder that is damaged, incomplete or none."""

import json
from pathlib import Path

import pytest

from jumok.errors import ArgumentError
from jumok.tasks import TASKS, load
from support.commands import write
from support.refusals import MODEL_FILES, damage, names, refused, refuses, reseal, write_recipe

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize("how", ["missing", "truncated", "tampered"])
@pytest.mark.parametrize("name", MODEL_FILES)
def test_a_model_with_a_damaged_file(model, name, how):
    damage(model / name, how)
    for command in ("translate", "inspect"):
        names(refused(command, model), name, "missing" if how == "missing" else "")


def test_a_model_folder_that_is_none(tmp_path):
    assert refused("inspect", "none") == "there is no model folder none; `jumok train` writes one"
    Path("models/first").mkdir(parents=True)
    assert refused("inspect", "models/frist") == "there is no model folder models/frist; did you mean models/first?"
    write(Path("test.toml"), "")
    assert refused("inspect", "test.toml") == (
        "test.toml is a file, not a model folder; `jumok train test.toml` writes the folder of its model, runs/test by "
        "default"
    )
    (tmp_path / "empty").mkdir()
    names(refused("inspect", "empty"), "empty", "recipe.toml is missing")
    (tmp_path / "begun/checkpoints/step-00000002").mkdir(parents=True)
    names(refused("translate", "begun"), "begun", "recipe.toml is missing", "--resume")
    for name, file in (("first", "recipe.toml"), ("second", "model.safetensors"), ("third", "model.safetensors")):
        (tmp_path / "runs" / name).mkdir(parents=True)
        write(tmp_path / "runs" / name / file, "")
    names(refused("translate", "runs"), "recipe.toml is missing; the models in it: runs/second, runs/third")
    names(refused("translate", write_recipe("")), "recipe.toml", "not a model folder")


@pytest.mark.parametrize("arguments", [["translate"], ["inspect"], ["look"], ["evaluate", "--reference=none"]])
def test_a_file_of_a_model_is_answered_with_its_folder(model, arguments):
    command, *options = arguments
    names(refused(command, model / "model.safetensors", *options), f"folder … {model}")


@pytest.mark.parametrize("found", ["[]", "3", '{"model.safetensors": 3}', "{}", '{"../model": "00"}', "\udcff"])
def test_checksums_that_are_none(model, found):
    (model / "checksums.json").write_bytes(found.encode("utf-8", "surrogateescape"))
    names(refused("inspect", model), model / "checksums.json", "damaged")


def test_a_checksum_that_is_changed_is_not_blamed_on_the_weights_alone(model):
    text = (model / "checksums.json").read_text()
    digest = json.loads(text)["model.safetensors"]
    (model / "checksums.json").write_text(text.replace(digest, digest[::-1]))
    names(refused("inspect", model), "model.safetensors", "checksums.json")
    (model / "checksums.json").write_text(text.replace(digest, digest[:-1] + "~"))
    names(refused("inspect", model), "checksums.json is damaged", "'model.safetensors'")


def test_a_model_whose_weights_have_another_shape(model):
    recipe = (model / "recipe.toml").read_text(encoding="utf-8")
    write(model / "recipe.toml", recipe.replace("width = 64", "width = 32"))
    names(refused("translate", model), "recipe.toml", "checksums.json")
    reseal(model)
    names(refused("translate", model), model / "model.safetensors", "another model")


def test_a_model_that_lacks_its_tokenizer_in_the_checksums(model):
    digests = json.loads((model / "checksums.json").read_text())
    del digests["tokenizer.model"]
    (model / "checksums.json").write_text(json.dumps(digests))
    damage(model / "tokenizer.model", "tampered")
    assert "tokenizer.model" in refused("translate", model)


@pytest.mark.parametrize("wrong", [3, None, ["runs"]])
def test_what_is_not_the_path_of_a_folder_is_refused(wrong):
    for task in TASKS:
        with refuses(ArgumentError, "folder", "path", repr(wrong)):
            task.load(wrong)


@pytest.mark.parametrize("wrong", [5, None, [5]])
def test_load_refuses_what_is_not_a_folder(wrong):
    with refuses(ArgumentError, "folder must be the path of a model's folder, but it is"):
        load(wrong)


@pytest.mark.parametrize("name", ["tokenizer.model", "model.safetensors"])
def test_a_sealed_file_that_is_cut_short_is_named(model, name):
    damage(model / name, "truncated")
    reseal(model)
    names(refused("translate", model), model / name)
