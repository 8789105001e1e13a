"""`jumok inspect` and `jumok average`."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from jumok.decoding.shortlist import read_shortlist
from jumok.model_folder import BUNDLED
from jumok.tasks import TRANSLATION
from jumok.training import read_metrics
from support.commands import BRIEFLY, RECIPE, jumok, well, write


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
    assert ["shared", "vocabulary", "yes"] in [line.split() for line in lines]


def test_inspect_tells_the_model_in_words_and_its_parameters_by_part(reverser, transformer):
    found = json.loads(well("inspect", reverser, "--json").out)
    assert found["does"] == "translates text"
    assert found["in words"]["encoder"] == "bidirectional GRU, 1 layer, 64 wide, embeddings 32 wide"
    assert "additive (Bahdanau's) attention" in found["in words"]["decoder"]
    assert found["tokenizer"].startswith("letters, ")
    weights = load_file(reverser / "model.safetensors")
    assert sum(found["parts"].values()) == found["parameters"]
    assert found["parts"]["source embeddings"] == weights["encoder.embedding.table"].numel()
    table = well("inspect", transformer).out
    for words in ("Transformer, ", " heads, feed-forward ", "sinusoidal positions added", "embeddings", "pre-norm"):
        assert words in table


def test_inspect_tells_which_texts_are_translated_in_parts(reverser):
    said = json.loads(well("inspect", reverser, "--json").out)["longest source"]
    whole = "a single sentence of up to 14 tokens is translated whole"
    assert said == f"7 tokens; longer texts are translated in parts, but {whole}"
    assert "was translated whole" in well("translate", reverser, stdin="123456 54321\n").err
    assert "translated in 2 parts" in well("translate", reverser, stdin="1234567 7654321\n").err


def test_inspect_tells_how_the_model_was_trained_and_what_is_in_its_folder(reverser, tmp_path):
    found = json.loads(well("inspect", reverser, "--json").out)
    best = max((r for r in read_metrics(reverser / "metrics.jsonl") if r.get("best")), key=lambda r: r["step"])
    assert found["training"]["steps"] == 120
    assert found["training"]["best"] == best["validation"]["exact_match"]
    assert found["training"]["best step"] == best["step"]
    assert found["files"]["model.safetensors"] == (reverser / "model.safetensors").stat().st_size
    assert found["files"]["checkpoints/"] > found["files"]["model.safetensors"]
    shown = well("inspect", reverser).out
    assert f"% at step {best['step']}" in shown
    assert "120 steps, " in shown
    shared = shutil.copytree(reverser, tmp_path / "shared", ignore=shutil.ignore_patterns("metrics.jsonl"))
    assert "not known: metrics.jsonl is not in the folder" in well("inspect", shared).out


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


@pytest.mark.slow
def test_the_average_keeps_the_joined_shortlists_of_its_models_if_all_have_one(tmp_path):
    models = [shutil.copytree(BUNDLED, tmp_path / name) for name in ("one", "other")]
    for first, model in zip((10, 50), models, strict=True):
        text = write(tmp_path / "text", "".join(f"{number} days ago\n" for number in range(first, first + 30)))
        assert well("shortlist", model, "--source", text).code == 0
        if model is models[0]:
            well("average", *models, "--out", tmp_path / "half")
            assert not (tmp_path / "half/shortlist.txt").exists()
    well("average", *models, "--out", tmp_path / "mean")
    tokenizers = TRANSLATION.load(BUNDLED, device="cpu").trained.tokenizers
    one, other, mean = (read_shortlist(path / "shortlist.txt", tokenizers) for path in (*models, tmp_path / "mean"))
    assert mean.likely.keys() == one.likely.keys() | other.likely.keys()
    assert mean.always == one.always | other.always


@pytest.mark.slow
@pytest.mark.parametrize("ema", [0, 0.5])
def test_the_checkpoints_of_a_run_have_a_mean_of_what_was_validated(tmp_path, ema):
    folder = tmp_path / "run"
    command = ["train", write(tmp_path / "reverse.toml", RECIPE), "--out", folder, "--device", "cpu", *BRIEFLY]
    well(*command, "--set", f"training.ema={ema}")
    steps = sorted((folder / "checkpoints").glob("*"))
    assert len(steps) == 2
    done = well("average", *steps, "--out", tmp_path / "mean")
    assert done.err == f"the mean of 2 models is in {tmp_path / 'mean'}\n"
    name = "average.safetensors" if ema else "model.safetensors"
    one, other = (load_file(step / name) for step in steps)
    for key, weight in load_file(tmp_path / "mean/model.safetensors").items():
        torch.testing.assert_close(weight, (one[key] + other[key]) / 2)
    assert len(well("translate", tmp_path / "mean", stdin="12\n").out.splitlines()) == 1


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
