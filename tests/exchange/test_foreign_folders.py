"""What `jumok import` does not read: one line says what it is, what is read, or what to do; nothing is left behind."""

import argparse
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from jumok.model_folder import BUNDLED
from support.commands import jumok

READ = ["`jumok import` reads", "marian", "m2m_100", "JoeyNMT", "OpenNMT-py"]


def folder_with(place: Path, **files: str) -> Path:
    place.mkdir()
    for name, content in files.items():
        (place / name.replace("__", ".")).write_text(content)
    return place


def saved(place: Path, content: object) -> Path:
    torch.save(content, place)
    return place


def of_type(kind: str) -> Callable[[Path], Path]:
    return lambda place: folder_with(place, config__json=json.dumps({"model_type": kind}), model__safetensors="")


def only_weights(place: Path) -> Path:
    saved(folder_with(place) / "pytorch_model.bin", {"weight": torch.ones(2)})
    return place


def fairseq(place: Path) -> Path:
    arguments = argparse.Namespace(arch="transformer")
    return saved(place.with_suffix(".pt"), {"args": arguments, "model": {"encoder.embed_tokens.weight": torch.ones(2)}})


WRONG: dict[str, tuple[Callable[[Path], Path], list[str]]] = {
    "GPT-2": (of_type("gpt2"), ['type "gpt2"', *READ]),
    "T5": (of_type("t5"), ['type "t5"', *READ]),
    "mBART": (of_type("mbart"), ['type "mbart"', *READ]),
    "an empty folder": (lambda place: folder_with(place), ["has no config.json", *READ]),
    "weights alone": (only_weights, ["has no config.json", *READ]),
    "a config without a type": (lambda place: folder_with(place, config__json="{}"), ["names a type", *READ]),
    "CTranslate2": (
        lambda place: folder_with(place, config__json='{"bos_token": "<s>"}', model__bin=""),
        ["CTranslate2", "import the model it was made from"],
    ),
    "our own": (lambda place: Path(shutil.copytree(BUNDLED, place)), ["model folder of jumok already", "translate"]),
    "Marian itself": (lambda place: folder_with(place, model__npz=""), ["Marian itself", "convert_marian_to_pytorch"]),
    "a text": (lambda place: folder_with(place, notes__txt="x") / "notes.txt", ["notes.txt", *READ]),
    "a file of a folder": (
        lambda place: folder_with(place, config__json="{}", model__safetensors="") / "model.safetensors",
        ["is a file; name its folder: jumok import"],
    ),
    "fairseq": (fairseq, ["fairseq, whose models are not read", "name it instead"]),
    "nothing": (lambda place: place, ["there is no folder or file"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_model_that_is_not_read_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    make, words = WRONG[name]
    done = jumok("import", make(tmp_path / "model"), "--out", tmp_path / "out")
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert not [word for word in words if word not in done.err], done.err
    assert not (tmp_path / "out").exists()


def test_a_name_of_hugging_face_is_answered_with_the_commands_that_download_and_import_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = jumok("import", "Helsinki-NLP/opus-mt-en-de", "--out", "runs/en-de")
    assert "hf download Helsinki-NLP/opus-mt-en-de --local-dir opus-mt-en-de" in done.err.replace("\n       ", " ")
    assert "jumok import opus-mt-en-de --out runs/opus-mt-en-de" in done.err.replace("\n       ", " ")
