"""What the other commands say when something is wrong: one clear line, exit code 1, 2 for usage."""

import os

import pytest

from commands import RECIPE, jumok, write
from refusals import refused, train, write_recipe

pytestmark = pytest.mark.usefixtures("here")


def test_an_unknown_device(reverser):
    assert refused("translate", reverser, "--device", "gpu") == "device = 'gpu' must be auto, cpu or cuda"
    assert train(RECIPE, "--device", "tpu:x") == "device = 'tpu:x' must be auto, cpu or cuda"
    assert refused("translate", reverser, "--device", "meta") == "device = 'meta' must be auto, cpu or cuda"
    assert not os.path.exists("run")


def test_a_gpu_that_is_not_there(reverser, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    said = refused("translate", reverser, "--device", "cuda:7")
    assert said == "device = 'cuda:7' was asked for, but there are only: cuda:0"


def test_an_unknown_score():
    write_recipe("a\n")
    said = refused("evaluate", "--output", "recipe.toml", "--reference", "recipe.toml", "--metrics", "bleu,blue")
    assert said == "'blue' is not a score; there are bleu, chrf, ter, exact_match, wer"


def test_outputs_that_cannot_be_kept(reverser, tmp_path):
    write(tmp_path / "text", "1\n")
    command = ["evaluate", reverser, "--source", "text", "--reference", "text", "--save", "text/out"]
    assert refused(*command).startswith("text is a file, not a folder")


def test_a_usage_error_is_two():
    assert jumok("train").code == 2
    assert jumok("trian").code == 2


def test_an_empty_key_does_not_leave_a_server_open():
    assert refused("serve", "--api-key", "") == (
        "the API key is empty; give one, or leave --api-key and JUMOK_API_KEY out"
    )


def test_a_text_and_a_model_the_wrong_way_round_are_noticed(model):
    assert (
        refused("look", "a text", model) == f"'a text' is no model folder, but {str(model)!r} is; the model comes first"
    )


def test_no_text_is_not_taken_for_the_folder_one_is_in():
    assert refused("look", "") == "there is no attention map of an empty text"
