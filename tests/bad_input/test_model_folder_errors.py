"""What is said of a model folder that is damaged, incomplete or none."""

import json

import pytest

from support.commands import write
from support.refusals import MODEL_FILES, damage, refused, reseal, write_recipe

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize("how", ["missing", "truncated", "tampered"])
@pytest.mark.parametrize("name", MODEL_FILES)
@pytest.mark.parametrize("command", ["translate", "inspect"])
def test_a_model_with_a_damaged_file(model, command, name, how):
    damage(model / name, how)
    said = refused(command, model)
    assert name in said
    assert "missing" in said or how != "missing"


def test_a_model_folder_that_is_none(tmp_path):
    assert refused("inspect", "none") == "there is no model folder none; `jumok train` writes one"
    (tmp_path / "empty").mkdir()
    assert refused("inspect", "empty") == "empty is not a complete model: recipe.toml is missing"
    (tmp_path / "begun/checkpoints/step-00000002").mkdir(parents=True)
    assert refused("translate", "begun") == (
        "begun is not a complete model: recipe.toml is missing; it holds a training run: go on with it by --resume, "
        "and the model is there once it is validated"
    )
    (tmp_path / "runs" / "first").mkdir(parents=True)
    write(tmp_path / "runs" / "first" / "recipe.toml", "")
    assert refused("translate", "runs").endswith("recipe.toml is missing; the models in it: runs/first")
    assert refused("translate", write_recipe("")).startswith("recipe.toml is a file, not a model folder")


@pytest.mark.parametrize("found", ["[]", "3", '{"model.safetensors": 3}', "{}", '{"../model": "00"}', "\udcff"])
def test_checksums_that_are_none(model, found):
    (model / "checksums.json").write_bytes(found.encode("utf-8", "surrogateescape"))
    said = refused("inspect", model)
    assert said.startswith(f"{model / 'checksums.json'} is damaged: ")
    assert said.endswith("; copy the folder again")


def test_a_checksum_that_is_changed_is_not_blamed_on_the_weights_alone(model):
    text = (model / "checksums.json").read_text()
    digest = json.loads(text)["model.safetensors"]
    (model / "checksums.json").write_text(text.replace(digest, digest[::-1]))
    assert "model.safetensors is not the file that was saved, or checksums.json is not" in refused("inspect", model)
    (model / "checksums.json").write_text(text.replace(digest, digest[:-1] + "~"))
    said = refused("inspect", model)
    assert said.endswith("is damaged: what it says of 'model.safetensors' is no checksum; copy the folder again")


def test_a_model_whose_weights_have_another_shape(model):
    recipe = (model / "recipe.toml").read_text(encoding="utf-8")
    write(model / "recipe.toml", recipe.replace("width = 64", "width = 32"))
    said = refused("translate", model)
    assert "recipe.toml is not the file that was saved, or checksums.json is not" in said
    reseal(model)
    said = refused("translate", model)
    assert f"{model / 'model.safetensors'} " in said
    assert "it belongs to another model; use the recipe that was saved beside it" in said


def test_a_sealed_tokenizer_that_is_none(model):
    damage(model / "tokenizer.model", "truncated")
    reseal(model)
    assert "tokenizer.model" in refused("translate", model)


def test_sealed_weights_that_are_none(model):
    damage(model / "model.safetensors", "truncated")
    reseal(model)
    assert f"{model / 'model.safetensors'} is not a whole safetensors file" in refused("translate", model)


def test_a_model_that_lacks_its_tokenizer_in_the_checksums(model):
    digests = json.loads((model / "checksums.json").read_text())
    del digests["tokenizer.model"]
    (model / "checksums.json").write_text(json.dumps(digests))
    damage(model / "tokenizer.model", "tampered")
    assert "tokenizer.model" in refused("translate", model)
