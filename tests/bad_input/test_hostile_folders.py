"""A model's folder made to do harm, its checksums right: refused in one line before anything large is built or read."""

import json
import os
import time
from pathlib import Path

import pytest
import torch

from jumok.data import Tokenizer
from jumok.errors import DataError, JumokError
from jumok.images.resnet import ResNet, begin_with_weights
from jumok.models.weights import read_header, read_tensors, to_bytes, weights_of
from jumok.tasks import CAPTIONING, NODE_CLASSIFICATION, load, make_recipe
from jumok.tasks.captioner import TrainedCaptioner
from jumok.tasks.node_classification import TrainedGraph
from support.commands import jumok, write
from support.graphs import stored
from support.refusals import MODEL_FILES, names, refused, refuses, reseal

pytestmark = [
    pytest.mark.usefixtures("here"),
    pytest.mark.skipif(os.name != "posix", reason="pipes, devices and sparse files"),
]
QUICK = 20  # seconds; what is refused here would take hours, or all memory

TOO_MUCH = {
    "lists": (1200 * "[" + 1200 * "]", "nested"),
    "tables": (1200 * "{a = " + "1" + 1200 * "}", "nested"),
    "digits": (4301 * "9", "digits"),
    "hexadecimal": ("0x" + 4301 * "f", "digits"),
}
RECIPES = {kind: (f"a = [{value}]", fact) for kind, (value, fact) in TOO_MUCH.items()} | {
    "dotted": (".".join(5000 * "a") + " = 1", "nested"),
    "long": ("# " + 300_000 * "x", "32,768"),
}


@pytest.fixture(autouse=True)
def quick():
    started = time.monotonic()
    yield
    assert time.monotonic() - started < QUICK


@pytest.fixture
def never_built(monkeypatch):
    """No weight of a model is made."""

    def build(*arguments):
        raise AssertionError("built")

    monkeypatch.setattr("jumok.tasks.task.Task.new_model", build)


def change(folder, setting):
    """Give a setting of the recipe another value, wherever it stands first."""
    text = (folder / "recipe.toml").read_text(encoding="utf-8")
    before = next(line for line in text.splitlines() if line.startswith(f"{setting.partition(' ')[0]} = "))
    write(folder / "recipe.toml", text.replace(before, setting))
    reseal(folder)


@pytest.mark.parametrize("setting", ["layers = 100", "width = 30000", "width = 9000000000000000000"])
@pytest.mark.usefixtures("never_built")
def test_a_recipe_of_a_larger_model_than_its_weights(model, setting):
    change(model, setting)
    names(refused("translate", model), model / "model.safetensors", "recipe", "another model")


def published(task, trained, folder):
    """The folder, with the files of a trained model."""
    (folder / "new").write_bytes(to_bytes(weights_of(trained.model)))
    task.publish(folder, trained, folder / "new")
    return folder


def captioner(folder):
    tables = {
        "images": {"scenes": "ko", "size": 16},
        "tokenizer": {"kind": "char"},
        "encoder": {"kind": "patches", "width": 8, "heads": 2, "layers": 1, "hidden": 8},
        "decoder": {"kind": "rnn", "width": 8, "embedding": 6},
    }
    recipe = make_recipe(tables)
    tokenizer = Tokenizer.train(["빨간 별"], recipe.tokenizer)
    folder.mkdir()
    trained = TrainedCaptioner(CAPTIONING.new_model(recipe, tokenizer), recipe, tokenizer)
    return published(CAPTIONING, trained, folder)


def network(folder):
    graph = stored(folder)
    (folder / "graph").rename(folder / "data")
    recipe = make_recipe({"graph": {"path": "none"}, "network": {"width": 4, "heads": 2}})
    trained = TrainedGraph(NODE_CLASSIFICATION.new_model(recipe, graph), recipe, graph)
    return published(NODE_CLASSIFICATION, trained, folder)


@pytest.mark.slow
@pytest.mark.parametrize("make", [captioner, network])
def test_captioners_and_graph_networks_too(tmp_path, make, request):
    folder = make(tmp_path / "model")
    load(folder)
    request.getfixturevalue("never_built")
    change(folder, "layers = 100")
    with refuses(DataError, folder / "model.safetensors", "recipe"):
        load(folder)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("/dev/zero")
    with refuses(DataError, folder / "model.safetensors", "/dev/zero"):
        load(folder)


@pytest.mark.parametrize("name", ["graph.json", "labels.npy"])
def test_the_graph_in_a_folder_too(tmp_path, name):
    path = network(tmp_path / "model") / "data" / name
    path.rename(tmp_path / name)
    path.symlink_to(tmp_path / name)
    with refuses(DataError, path, "link", tmp_path / name):
        load(tmp_path / "model")
    path.unlink()
    os.mkfifo(path)
    with refuses(DataError, path, "pipe"):
        load(tmp_path / "model")


def test_a_link_out_of_the_folder_is_refused_and_one_within_it_followed(model, tmp_path):
    weights = model / "model.safetensors"
    weights.rename(model / "weights")
    weights.symlink_to("weights")
    (tmp_path / "latest").symlink_to(model)
    assert jumok("translate", tmp_path / "latest", stdin="12\n").code == 0
    (model / "weights").rename(tmp_path / "elsewhere")
    weights.unlink()
    weights.symlink_to("../elsewhere")
    names(refused("translate", model), weights, tmp_path / "elsewhere", f"outside {model}")


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.model", "recipe.toml"])
@pytest.mark.usefixtures("never_built")
def test_a_sparse_file_that_says_it_holds_gigabytes(model, name):
    os.truncate(model / name, 2**33)
    names(refused("translate", model), model / name, f"{2**33:,}")


@pytest.mark.usefixtures("never_built")
def test_weights_with_a_huge_tensor_that_the_model_has_not(model):
    """The weights get another header, and as many bytes as that asks for, most of them a hole."""
    path = model / "model.safetensors"
    content = path.read_bytes()
    entries = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    del entries["__metadata__"]
    end = max(entry["data_offsets"][1] for entry in entries.values())
    entries["extra"] = {"dtype": "F32", "shape": [2**31], "data_offsets": [end, end + 2**33]}
    text = json.dumps(entries).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + end + 2**33)
    names(refused("translate", model), path, "extra")


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 0]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]},
        {"dtype": "F32", "shape": [0] * 100, "data_offsets": [0, 0]},
        {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": "1", "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1]},
        [],
        None,
    ],
)
def test_a_header_whose_shapes_do_not_agree_with_its_bytes(tmp_path, entry):
    text = json.dumps({"a": entry}).encode()
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    with refuses(DataError, path):
        read_header(path)


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, b"\xff" * 100, (10**6).to_bytes(8, "little") + b"[" * 10**6])
def test_a_header_that_is_none(tmp_path, content):
    (tmp_path / "a.safetensors").write_bytes(content)
    with refuses(DataError, tmp_path / "a.safetensors"):
        read_tensors(tmp_path / "a.safetensors")


@pytest.mark.parametrize("kind", RECIPES)
def test_toml_beyond_its_bounds(model, kind):
    text, fact = RECIPES[kind]
    recipe = write(model / "recipe.toml", text)
    reseal(model)
    for command in ["translate", model], ["train", recipe]:
        if kind != "long" or command[0] == "translate":
            names(refused(*command), recipe, fact)


@pytest.mark.parametrize("kind", TOO_MUCH)
def test_a_change_beyond_the_bounds_of_toml(kind):
    value, fact = TOO_MUCH[kind]
    said = refused("train", write(Path("r.toml"), ""), "--set", f"training.steps={value}")
    names(said, "--set training.steps=", fact)
    assert len(said) < 250


def test_checksums_may_name_what_is_never_read(model):
    digests = json.loads((model / "checksums.json").read_text())
    (model / "checksums.json").write_text(json.dumps(digests | {"huge": "0" * 64}))
    os.mkfifo(model / "huge")
    assert jumok("translate", model, stdin="12\n").code == 0


def test_checksums_that_are_nested_too_deeply(model):
    (model / "checksums.json").write_text(100_000 * "[")
    names(refused("translate", model), "checksums.json", "JSON")


def test_a_tokenizer_with_a_piece_that_is_no_text(model):
    content = (model / "tokenizer.model").read_bytes()
    place = content.index(b"\n\x011") + 2
    (model / "tokenizer.model").write_bytes(content[:place] + b"\xff" + content[place + 1 :])
    reseal(model)
    names(refused("translate", model), model / "tokenizer.model", "damaged")


def test_files_handed_to_average(model):
    os.mkfifo("pipe.safetensors")
    with open("sparse.safetensors", "wb") as file:
        file.truncate(2**33)
    names(refused("average", model, "pipe.safetensors", "--out", "mean"), "pipe.safetensors is a pipe")
    names(refused("average", model, "sparse.safetensors", "--out", "mean"), "sparse.safetensors")


def test_weights_of_a_residual_network(tmp_path):
    resnet = ResNet(block="basic", blocks=(1,), channels=4)
    torch.save(resnet.state_dict(), tmp_path / "right.pth")
    begin_with_weights(resnet, tmp_path / "right.pth")
    os.mkfifo(tmp_path / "pipe.pth")
    with open(tmp_path / "sparse.pth", "wb") as file:
        file.truncate(2**33)
    for name, fact in (("pipe.pth", "pipe"), ("sparse.pth", "8,589,934,592 bytes"), ("none.pth", "no file")):
        with refuses(JumokError, tmp_path / name, fact):
            begin_with_weights(resnet, tmp_path / name)


def test_loading_leaves_the_random_numbers_alone(reverser):
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    load(reverser, device="cpu")
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("name", MODEL_FILES)
def test_a_pipe_or_a_link_to_an_endless_device_in_place_of_a_file(model, name):
    (model / name).unlink()
    os.mkfifo(model / name)
    assert refused("translate", model) == f"{model / name} is a pipe, not a regular file; replace it with one"
    (model / name).unlink()
    (model / name).symlink_to("/dev/zero")
    names(refused("translate", model), model / name, "/dev/zero", f"outside {model}")
