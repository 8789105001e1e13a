"""`jumok inspect` and `jumok average`."""

import json

import torch
from safetensors.torch import load_file

from commands import jumok, well


def test_inspect_says_what_a_model_is_made_of(reverser):
    found = json.loads(well("inspect", reverser, "--json").out)
    assert (found["encoder"], found["decoder"], found["trained on"]) == ("rnn", "rnn", "reverse")
    weights = load_file(reverser / "model.safetensors")
    assert found["parameters"] == sum(tensor.numel() for tensor in weights.values())
    assert found["source vocabulary"] == found["target vocabulary"] == 15
    assert "weights" not in found


def test_inspect_lists_every_weight_with_its_shape(transformer):
    found = json.loads(well("inspect", transformer, "--weights", "--json").out)["weights"]
    weights = load_file(transformer / "model.safetensors")
    assert found == {name: list(tensor.shape) for name, tensor in weights.items()}
    table = well("inspect", transformer, "--weights").out
    assert all(name in table for name in weights)


def test_inspect_prints_a_table(reverser):
    lines = well("inspect", reverser).out.splitlines()
    assert lines[0].strip() == str(reverser)
    assert ["shared", "vocabulary", "True"] in [line.split() for line in lines]


def test_the_average_of_checkpoints_is_their_mean_and_translates(reverser, tmp_path):
    newest = sorted((reverser / "checkpoints").iterdir())[-1] / "model.safetensors"
    done = well("average", reverser, newest, "--out", tmp_path / "mean", "--json")
    assert json.loads(done.out) == {"folder": str(tmp_path / "mean"), "averaged": [str(reverser), str(newest)]}
    paths = (reverser / "model.safetensors", newest, tmp_path / "mean/model.safetensors")
    one, other, mean = map(load_file, paths)
    for name in mean:
        torch.testing.assert_close(mean[name], (one[name] + other[name]) / 2)
    assert (tmp_path / "mean/tokenizer.model").read_bytes() == (reverser / "tokenizer.model").read_bytes()
    assert well("translate", tmp_path / "mean", stdin="12\n").out.count("\n") == 1


def test_the_average_of_a_model_with_itself_is_itself(reverser, tmp_path):
    done = well("average", reverser, reverser, "--out", tmp_path / "mean")
    assert done.out == ""
    assert done.err == f"the mean of 2 models is in {tmp_path / 'mean'}\n"
    one, mean = (load_file(folder / "model.safetensors") for folder in (reverser, tmp_path / "mean"))
    assert all(torch.equal(one[name], mean[name]) for name in one)


def test_models_of_different_shapes_have_no_average(reverser, transformer, tmp_path):
    done = jumok("average", reverser, transformer, "--out", tmp_path / "mean")
    assert done.code == 1
    assert done.err.startswith(f"jumok: {transformer / 'model.safetensors'}")
    assert not (tmp_path / "mean").exists()
