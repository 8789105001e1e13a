"""What `jumok average` says when something is wrong, and that nothing is half written."""

import os
import shutil
from pathlib import Path

import pytest

from support.commands import BRIEFLY, RECIPE, well, write
from support.refusals import MODEL_FILES, contents, damage, full, refused, write_recipe

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize("name", MODEL_FILES)
def test_an_average_with_a_tampered_model(model, reverser, name):
    damage(model / name, "tampered")
    assert name in refused("average", reverser, model, "--out", "mean")
    assert not os.path.exists("mean")


def test_one_model_is_not_called_models(reverser):
    assert well("average", reverser, "--out", "mean").err == "the mean of 1 model is in mean\n"
    assert "- averaged over: 1 model\n" in Path("mean/README.md").read_text()


def test_backup_copies_are_not_averaged(reverser):
    shutil.copytree(reverser, "copy.bak")
    assert well("average", reverser, "copy.bak", "--out", "mean").err == "the mean of 1 model is in mean\n"


def test_an_average_of_models_with_other_words(reverser):
    write(
        Path("letters.tsv"), "".join(f"{one}{other}\t{other}{one}\n" for one in "abcdefghij" for other in "abcdefghij")
    )
    data = "--set=data.corpus=", "--set=data.pairs=letters.tsv"
    well("train", write_recipe(RECIPE), "--out", "letters", "--device", "cpu", *BRIEFLY, *data)
    assert refused("average", reverser, "letters", "--out", "mean") == (
        f"letters has another vocabulary than {reverser}, so their weights have no mean"
    )


def test_an_average_of_no_model_folder(model):
    said = refused("average", model / "model.safetensors", "--out", "mean")
    assert said.endswith("is a model folder; at least one must be")
    assert "none of " in said
    for models in ([model, "none"], ["none"]):
        said = refused("average", *models, "--out", "mean")
        assert said == "there is no model none; name folders of models or .safetensors files"
    assert not os.path.exists("mean")


def test_a_full_disk_while_a_model_is_written(model, monkeypatch):
    before = contents(model)
    monkeypatch.setattr("jumok.files.os.fsync", full)
    said = refused("average", model, model, "--out", model.parent / "mean")
    assert "No space left on device" in said
    assert contents(model) == before


def test_a_mean_of_models_into_a_file(reverser, tmp_path):
    write(tmp_path / "file", "")
    assert refused("average", reverser, "--out", "file").startswith("file is a file, not a folder")


@pytest.mark.parametrize("name", ["README.md", "recipe.toml", "tokenizer.model", "checksums.json"])
def test_a_mean_does_not_overwrite_a_file_of_the_users_own(reverser, name):
    Path("mine").mkdir()
    write(Path("mine") / name, "my own")
    assert refused("average", reverser, "--out", "mine") == (
        f"mine holds {name}, which the model's own would overwrite; write the mean into another folder"
    )
    assert contents(Path("mine")) == {Path("mine") / name: b"my own"}


def test_a_mean_goes_beside_files_of_other_names(reverser):
    Path("mine").mkdir()
    write(Path("mine/notes.txt"), "my own")
    well("average", reverser, "--out", "mine")
    assert Path("mine/notes.txt").read_text() == "my own"


def test_a_mean_does_not_go_into_a_run_that_is_not_validated_yet(reverser):
    Path("run/checkpoints/step-00000003").mkdir(parents=True)
    said = refused("average", reverser, "--out", "run")
    assert said == "run holds a training run; write the mean into another folder"
    assert not contents(Path("run"))
