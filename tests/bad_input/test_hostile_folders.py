"""A model's folder made to do harm, its checksums right: refused in one line before anything large is built or read."""

import json
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from jumok.data import Tokenizer
from jumok.errors import ConfigError, DataError, JumokError
from jumok.images.resnet import ResNet, begin_with_weights
from jumok.models.weights import read_header, read_tensors, to_bytes, weights_of
from jumok.tasks import CAPTIONING, NODE_CLASSIFICATION, load, make_recipe
from jumok.tasks.captioning import TrainedCaptioner
from jumok.tasks.node_classification import TrainedGraph
from jumok.toml import parse_toml
from support.commands import jumok, write
from support.graphs import stored
from support.refusals import MODEL_FILES, refused, reseal

pytestmark = [
    pytest.mark.usefixtures("here"),
    pytest.mark.skipif(os.name != "posix", reason="pipes, devices and sparse files"),
]
QUICK = 20  # seconds; what is refused here would take hours, or all memory


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


def change(folder, before, after):
    text = (folder / "recipe.toml").read_text(encoding="utf-8")
    assert before in text
    write(folder / "recipe.toml", text.replace(before, after))
    reseal(folder)


@pytest.mark.parametrize(
    "change_to", ["layers = 1000000000", "width = 30000", "width = 9000000000000000000", "embedding = 300000000"]
)
@pytest.mark.usefixtures("never_built")
def test_a_recipe_of_a_larger_model_than_its_weights(model, change_to):
    setting = change_to.partition(" ")[0]
    text = (model / "recipe.toml").read_text(encoding="utf-8")
    change(model, next(line for line in text.splitlines() if line.startswith(f"{setting} = ")), change_to)
    said = refused("translate", model)
    assert said.startswith(f"{model / 'model.safetensors'} holds ")
    assert "but its recipe needs " in said
    assert said.endswith("it belongs to another model; use the recipe that was saved beside it")


def captioner(folder):
    tables = {
        "images": {"scenes": "ko", "size": 16},
        "tokenizer": {"kind": "char"},
        "encoder": {"kind": "patches", "width": 8, "heads": 2, "layers": 1, "hidden": 8},
        "decoder": {"kind": "rnn", "width": 8, "embedding": 6},
    }
    recipe = make_recipe(tables)
    tokenizer = Tokenizer.train(["빨간 별"], recipe.tokenizer)
    trained = TrainedCaptioner(CAPTIONING.new_model(recipe, tokenizer), recipe, tokenizer)
    folder.mkdir()
    weights = folder / "new"
    weights.write_bytes(to_bytes(weights_of(trained.model)))
    CAPTIONING.publish(folder, trained, weights)


def network(folder):
    graph = stored(folder)
    (folder / "graph").rename(folder / "data")
    recipe = make_recipe({"graph": {"path": "none"}, "network": {"width": 4, "heads": 2}})
    trained = TrainedGraph(NODE_CLASSIFICATION.new_model(recipe, graph), recipe, graph)
    weights = folder / "new"
    weights.write_bytes(to_bytes(weights_of(trained.model)))
    NODE_CLASSIFICATION.publish(folder, trained, weights)


@pytest.mark.parametrize("make", [captioner, network])
def test_captioners_and_graph_networks_too(tmp_path, make, request):
    folder = tmp_path / "model"
    make(folder)
    load(folder)
    request.getfixturevalue("never_built")
    text = (folder / "recipe.toml").read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("layers = "))
    change(folder, line, "layers = 1000000000")
    with pytest.raises(DataError, match="but its recipe needs"):
        load(folder)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to("/dev/zero")
    with pytest.raises(DataError, match=r"model.safetensors is a link to /dev/zero, outside"):
        load(folder)


@pytest.mark.parametrize("name", ["graph.json", "labels.npy"])
def test_the_graph_in_a_folder_too(tmp_path, name):
    network(tmp_path / "model")
    path = tmp_path / "model/data" / name
    path.rename(tmp_path / name)
    path.symlink_to(tmp_path / name)
    with pytest.raises(DataError, match=r"is a link to .*, outside"):
        load(tmp_path / "model")
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DataError, match="is a pipe"):
        load(tmp_path / "model")


@pytest.mark.parametrize("name", MODEL_FILES)
def test_a_pipe_in_place_of_a_file(model, name):
    (model / name).unlink()
    os.mkfifo(model / name)
    assert refused("translate", model) == f"{model / name} is a pipe, not a regular file; replace it with one"


@pytest.mark.parametrize("name", MODEL_FILES)
def test_a_link_to_an_endless_device(model, name):
    (model / name).unlink()
    (model / name).symlink_to("/dev/zero")
    assert refused("translate", model) == (
        f"{model / name} is a link to /dev/zero, outside {model}; copy the file itself there"
    )


def test_a_link_out_of_the_folder_is_refused_and_one_within_it_followed(model, tmp_path):
    weights = model / "model.safetensors"
    weights.rename(model / "weights")
    weights.symlink_to("weights")
    assert jumok("translate", model, stdin="12\n").code == 0
    (model / "weights").rename(tmp_path / "elsewhere")
    weights.unlink()
    weights.symlink_to("../elsewhere")
    assert f"{weights} is a link to {tmp_path / 'elsewhere'}, outside {model}" in refused("translate", model)


def test_a_folder_behind_a_link_is_read(model, tmp_path):
    (tmp_path / "latest").symlink_to(model)
    assert jumok("translate", tmp_path / "latest", stdin="12\n").code == 0


@pytest.mark.parametrize(
    ("name", "size"), [("model.safetensors", 2**33), ("tokenizer.model", 2**33), ("recipe.toml", 2**33)]
)
@pytest.mark.usefixtures("never_built")
def test_a_sparse_file_that_says_it_holds_gigabytes(model, name, size):
    os.truncate(model / name, size)
    said = refused("translate", model)
    assert said.startswith(f"{model / name} ")
    assert f"{size:,}" in said


def header(model, change):
    """Write the weights with another header and as many bytes as that asks for, most of them a hole."""
    path = model / "model.safetensors"
    content = path.read_bytes()
    entries = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    change(entries)
    text = json.dumps(entries).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + max(entry["data_offsets"][1] for entry in entries.values()))


@pytest.mark.usefixtures("never_built")
def test_weights_with_a_huge_tensor_that_the_model_has_not(model):
    def add(entries):
        end = max(entry["data_offsets"][1] for entry in entries.values())
        entries["extra"] = {"dtype": "F32", "shape": [2**31], "data_offsets": [end, end + 2**33]}

    header(model, add)
    assert "model.safetensors holds extra, which this model does not have" in refused("translate", model)


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
    with pytest.raises(DataError, match="is not a whole safetensors file"):
        read_header(path)


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, b"\xff" * 100, (10**6).to_bytes(8, "little") + b"[" * 10**6])
def test_a_header_that_is_none(tmp_path, content):
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(DataError, match="is not a whole safetensors file"):
        read_tensors(tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (".".join(20_000 * ["a"]) + " = 1", "a key has more than 20 parts joined by dots"),
        (".".join(10_000 * [r'"\""']) + " = 1", "a key has more than 20 parts joined by dots"),
        ("[" + ".".join(20_000 * ["a"]) + "]", "a key has more than 20 parts joined by dots"),
        ("a = " + 1200 * "[" + 1200 * "]", "lists or tables are nested too deeply"),
        ("a = " + 1200 * "{a = " + "1" + 1200 * "}", "lists or tables are nested too deeply"),
        ("a = " + 4301 * "9", "a number has too many digits"),
        ("a = [0x" + 4301 * "f" + "]", "a number has too many digits"),
        ("# " + 300_000 * "x", "262,144"),
    ],
    ids=["dotted", "quoted", "section", "lists", "tables", "digits", "hexadecimal", "long"],
)
def test_toml_beyond_its_bounds(model, text, why):
    write(model / "recipe.toml", text)
    reseal(model)
    assert why in refused("translate", model)
    if why != "262,144":
        assert refused("train", model / "recipe.toml").startswith(f"{model / 'recipe.toml'}: {why}")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (1200 * "[" + 1200 * "]", "lists or tables are nested too deeply"),
        (4301 * "9", "a number has too many digits"),
        ("0x" + 4301 * "f", "a number has too many digits"),
    ],
    ids=["lists", "digits", "hexadecimal"],
)
def test_a_change_beyond_the_bounds_of_toml(value, why):
    said = refused("train", write(Path("r.toml"), ""), "--set", f"training.steps={value}")
    assert said.startswith("--set training.steps=")
    assert why in said
    assert len(said) < 250


def test_checksums_may_name_what_is_never_read(model):
    digests = json.loads((model / "checksums.json").read_text())
    (model / "checksums.json").write_text(json.dumps(digests | {"huge": "0" * 64}))
    os.mkfifo(model / "huge")
    assert jumok("translate", model, stdin="12\n").code == 0


def test_checksums_that_are_nested_too_deeply(model):
    (model / "checksums.json").write_text(100_000 * "[")
    assert "checksums.json is damaged: it is not JSON" in refused("translate", model)


def test_a_tokenizer_with_a_piece_that_is_no_text(model):
    content = (model / "tokenizer.model").read_bytes()
    place = content.index(b"\n\x011") + 2
    (model / "tokenizer.model").write_bytes(content[:place] + b"\xff" + content[place + 1 :])
    reseal(model)
    assert f"{model / 'tokenizer.model'} is not a jumok tokenizer, or is damaged" in refused("translate", model)


def test_files_handed_to_average(model):
    os.mkfifo("pipe.safetensors")
    assert "pipe.safetensors is a pipe" in refused("average", model, "pipe.safetensors", "--out", "mean")
    with open("sparse.safetensors", "wb") as file:
        file.truncate(2**33)
    assert "is not a whole safetensors file" in refused("average", model, "sparse.safetensors", "--out", "mean")


def test_weights_of_a_residual_network(tmp_path):
    resnet = ResNet(block="basic", blocks=(1,), channels=4)
    torch.save(resnet.state_dict(), tmp_path / "right.pth")
    begin_with_weights(resnet, tmp_path / "right.pth")
    os.mkfifo(tmp_path / "pipe.pth")
    with open(tmp_path / "sparse.pth", "wb") as file:
        file.truncate(2**33)
    for name, why in (("pipe.pth", "is a pipe"), ("sparse.pth", "holds 8,589,934,592 bytes"), ("none.pth", "no file")):
        with pytest.raises(JumokError, match=why):
            begin_with_weights(resnet, tmp_path / name)


def test_loading_leaves_the_random_numbers_alone(reverser):
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    load(reverser, device="cpu")
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize("text", ["a = {}", "# {}", 'a = "{}', '"""{}'], ids=["string", "comment", "no end", "long"])
def test_a_recipe_of_quotation_marks_is_read_in_no_time(text):
    began = time.process_time()
    with suppress(ConfigError):
        parse_toml(text.format('"' + 120_000 * r"\"" + '"').encode(), "recipe.toml")
    assert time.process_time() - began < 5  # it took a quarter of an hour


def test_dots_in_strings_comments_and_numbers_join_no_key():
    dots = ".".join(30 * ["a"])
    text = f'# {dots}\na = "{dots}"\nb = [{", ".join(30 * ["0.5"])}]'
    assert parse_toml(text.encode(), "recipe.toml") == {"a": dots, "b": 30 * [0.5]}
