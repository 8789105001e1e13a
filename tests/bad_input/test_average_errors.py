"""What `jumok average` says when something is wrong, and that nothing is half written."""

import os
import shutil
from pathlib import Path

import pytest

from support.commands import BRIEFLY, RECIPE, well, write
from support.refusals import MODEL_FILES, contents, damage, full, names, refused, write_recipe

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize("name", MODEL_FILES)
def test_an_average_with_a_tampered_model(model, reverser, name):
    damage(model / name, "tampered")
    assert name in refused("average", reverser, model, "--out", "mean")
    assert not os.path.exists("mean")


def test_an_average_of_models_with_other_words(reverser):
    letters = "abcdefghij"
    write(Path("letters.tsv"), "".join(f"{one}{other}\t{other}{one}\n" for one in letters for other in letters))
    data = [f"--set=data.{change}" for change in ("corpus=", "pairs=letters.tsv", "size=50000", "longest=12")]
    well("train", write_recipe(RECIPE), "--out", "letters", "--device", "cpu", *BRIEFLY, *data)
    names(refused("average", reverser, "letters", "--out", "mean"), "letters", reverser, "vocabulary")


def test_an_average_of_models_of_other_widths_asks_for_the_same_recipe(reverser):
    well("train", write_recipe(RECIPE), "--out", "narrow", "--device", "cpu", *BRIEFLY, "--set=decoder.width=32")
    names(refused("average", reverser, "narrow", "--out", "mean"), "narrow", "same recipe as", reverser)


def test_an_average_of_no_model_folder(model):
    names(refused("average", model / "model.safetensors", "--out", "mean"), "model.safetensors", "model folder")
    for models in ([model, "none"], ["none"]):
        said = refused("average", *models, "--out", "mean")
        assert said == "there is no model none; name folders of models or .safetensors files"
    assert not os.path.exists("mean")


def test_a_full_disk_while_a_model_is_written(model, monkeypatch):
    before = contents(model)
    monkeypatch.setattr("jumok.files.os.fsync", full)
    names(refused("average", model, model, "--out", model.parent / "mean"), "No space left on device")
    assert contents(model) == before


def test_a_mean_of_models_into_a_file(reverser, tmp_path):
    write(tmp_path / "file", "")
    names(refused("average", reverser, "--out", "file"), "file", "not a folder")


def test_a_mean_does_not_go_into_a_run_that_is_not_validated_yet(reverser):
    Path("run/checkpoints/step-00000003").mkdir(parents=True)
    names(refused("average", reverser, "--out", "run"), "run", "training run", "another folder")
    assert not contents(Path("run"))


@pytest.mark.parametrize("name", ["README.md", "checksums.json"])
def test_a_mean_does_not_overwrite_a_file_of_the_users_own_and_goes_beside_others(reverser, name):
    mine = {Path("mine") / name: b"my own", Path("mine/notes.txt"): b"my notes"}
    Path("mine").mkdir()
    for path, content in mine.items():
        path.write_bytes(content)
    names(refused("average", reverser, "--out", "mine"), "mine", name, "another folder")
    assert contents(Path("mine")) == mine
    (Path("mine") / name).unlink()
    well("average", reverser, "--out", "mine")
    assert Path("mine/notes.txt").read_text() == "my notes"


def test_models_are_counted_without_backup_copies(reverser):
    shutil.copytree(reverser, "copy.bak")
    said = well("average", reverser, "copy.bak", "--out", "mean").err.splitlines()
    assert said[0] == "the mean of 1 model is in mean"
    assert "name several" in said[1]
    names(Path("mean/README.md").read_text(), "averaged over: 1 model\n")
