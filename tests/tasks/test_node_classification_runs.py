"""Graph models on the command line: train, resume, evaluate, look."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from jumok.analysis.maps.attention_map import AttentionMap
from support.commands import jumok, well, write
from support.graphs import raw_graph
from support.runs import assert_same_run

RECIPE = """
[graph]
path = "$GRAPHS/graph.npz"

[network]
width = 8
heads = 2
dropout = 0.1
attention_dropout = 0.0

[training]
steps = 60
learning_rate = 0.02
validate_every = 10
metric = "accuracy"
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    raw = raw_graph(nodes=80, edges=160)
    np.savez(folder / "graph.npz", edges=raw.edges, features=raw.features, labels=raw.labels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHS", str(folder))
        done = well("train", write(folder / "graph.toml", RECIPE), "--out", folder / "model", "--json")
    found = json.loads(done.out)
    assert found["stopped"] in ("steps", "patience")
    assert found["test accuracy"] > 60
    return folder / "model"


def test_evaluate_gives_the_accuracy_that_training_said(model, tmp_path):
    found = json.loads(well("evaluate", model, "--json", "--save", tmp_path / "classes.txt").out)
    assert found["low"] < found["accuracy"] < found["high"]
    assert found["items"] == 16
    assert f"test accuracy: {found['accuracy']:.4g}" in (model / "README.md").read_text()
    assert "accuracy" in well("evaluate", model).out
    classes = (tmp_path / "classes.txt").read_text().split()
    assert len(classes) == 80
    assert set(classes) <= {"0", "1", "2"}


def test_training_says_what_was_classified_and_names_a_node_to_look_at(tmp_path):
    write(
        tmp_path / "nodes.csv", "id,label,a\n" + "".join(f"n {number},{number % 2},{number}\n" for number in range(20))
    )
    write(tmp_path / "edges.csv", "n 0,n 1\n")
    few = "[training]\nsteps = 1\nvalidate_every = 1\n"
    tables = f'[graph]\nnodes = "{tmp_path}/nodes.csv"\nedges = "{tmp_path}/edges.csv"\n{few}'
    said = well("train", write(tmp_path / "tables.toml", tables), "--out", tmp_path / "tables").err
    assert "accuracy on the test nodes: " in said
    assert said.rstrip().endswith("--node 'n 0'")
    assert "--node 'n 0'" in (tmp_path / "tables/README.md").read_text()
    raw = raw_graph(nodes=40, edges=10)
    edges = np.stack([np.arange(40), np.arange(40) // 4 * 4])  # everybody knows the first of their graph
    labels, graph = np.arange(10) % 2, np.arange(40) // 4
    np.savez(tmp_path / "graphs.npz", edges=edges, features=raw.features, labels=labels, graph=graph)
    whole = f'[graph]\npath = "{tmp_path}/graphs.npz"\n[network]\npooling = "mean"\n{few}'
    assert (
        "accuracy on the test graphs: " in well("train", write(tmp_path / "w.toml", whole), "--out", tmp_path / "w").err
    )


def test_look_shows_whom_a_node_looked_at_in_the_terminal_and_in_files(model, tmp_path):
    kinds = ["svg", "png", "html", "json"]
    done = well("look", model, "--node", 5, *(f"--out={tmp_path / f'five.{kind}'}" for kind in kinds))
    assert done.out.startswith("node 5: class")
    assert "5 (itself)" in done.out
    shown = AttentionMap.from_json((tmp_path / "five.json").read_text())
    assert shown.weights[-1, :, 0].sum(-1).tolist() == pytest.approx([1, 1], abs=1e-4)
    found = json.loads(well("look", model, "--node", 5, "--json").out)
    assert (found["node"], found["text"]) == (5, shown.title)
    assert found["attention"] == shown.as_plain()
    ElementTree.fromstring((tmp_path / "five.svg").read_text())
    assert (tmp_path / "five.png").read_bytes().startswith(b"\x89PNG")
    assert "attention of a node" in (tmp_path / "five.html").read_text()


def test_look_at_one_layer_and_head(model):
    found = json.loads(well("look", model, "--node", 5, "--layer", 0, "--head", 1, "--json").out)["attention"]
    every = json.loads(well("look", model, "--node", 5, "--json").out)["attention"]
    assert found["weights"] == [[every["weights"][0][1]]]
    assert found["names"] == {"layers": ["0"], "heads": ["1"]}
    last = json.loads(well("look", model, "--node", 5, "--layer", -1, "--head", -1, "--json").out)["attention"]
    assert last["weights"] == [[every["weights"][1][0]]]  # the last layer has one head


def test_training_that_stopped_goes_on_to_the_same_model(tmp_path, monkeypatch, model):
    monkeypatch.setenv("GRAPHS", str(model.parent))
    recipe = model.parent / "graph.toml"
    well("train", recipe, "--out", tmp_path / "whole", "--set", "training.steps=20", "--device", "cpu")
    well("train", recipe, "--out", tmp_path / "parts", "--set", "training.steps=10", "--device", "cpu")
    well("train", recipe, "--out", tmp_path / "parts", "--set", "training.steps=20", "--device", "cpu", "--resume")
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_a_graph_model_does_not_translate_and_a_translator_has_no_nodes(model, reverser):
    done = jumok("translate", model, stdin="hello\n")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert f"{model} does not hold a model that translates text; `jumok inspect" in done.err
    done = jumok("look", reverser, "--node", 3)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "--node applies only to graph models" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--node", "80"], "there is no node 80; nodes are 0 to 79"),
        (["--node", "x"], "there is no node x"),
        ([], "--node 0"),
        (["--node", "5", "--layer", "2"], "layer = 2 does not exist; there are 2, counted from 0"),
        (["--node", "5", "--head", "1"], "layer 1, head = 1 does not exist; there are 1"),
        (["--node", "5", "--grid"], "--grid does not apply to"),
        (["--node", "5", "--target", "x"], "--target does not apply to"),
        (["--node", "5", "--out", "five.doc"], "should end in one of"),
    ],
)
def test_what_cannot_be_looked_at_is_one_line(model, arguments, said):
    done = jumok("look", model, *arguments)
    assert (done.code, done.err.count("\n"), done.out) == (1, 1, "")
    assert said in done.err


def test_a_copied_model_reads_its_graph_again_and_says_when_it_is_gone(model, tmp_path):
    import shutil

    shutil.copytree(model, tmp_path / "copy", ignore=shutil.ignore_patterns("data", "checkpoints"))
    before = well("evaluate", model, "--json").out
    assert well("evaluate", tmp_path / "copy", "--json").out == before
    shutil.rmtree(tmp_path / "copy" / "data")
    (model.parent / "graph.npz").rename(model.parent / "gone.npz")
    done = jumok("evaluate", tmp_path / "copy")
    (model.parent / "gone.npz").rename(model.parent / "graph.npz")
    assert done.code == 1
    assert "there is no file" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--report", "x.html"],
        ["--source", "a"],
        ["--reference", "b"],
        ["--by-length"],
        ["--beam", "2"],
        ["--metrics", "bleu"],
        ["--tokenize", "13a"],
        ["--lowercase"],
    ],
)
def test_what_is_asked_of_texts_only_is_refused_not_ignored(model, arguments):
    done = jumok("evaluate", model, *arguments)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"jumok: {arguments[0]} ")
    assert f"does not apply to {model}, which classifies the nodes of a graph" in done.err


def test_inspect_shows_what_a_graph_model_is_made_of(model):
    facts = json.loads(well("inspect", model, "--json", "--weights").out)
    assert (facts["network"], facts["layers"], facts["features"], facts["classes"]) == ("gat", 2, 3, 3)
    weights = load_file(model / "model.safetensors")
    assert facts["weights"] == {name: list(weight.shape) for name, weight in weights.items()}
    assert facts["parameters"] == sum(weight.numel() for weight in weights.values())
    assert facts["does"] == "classifies the nodes of a graph"
    assert facts["in words"]["network"].startswith("graph attention (GAT), 2 layers, ")
    assert list(facts["parts"]) == ["layer 0", "layer 1"]
    assert facts["training"]["steps"] > 0


def test_the_average_of_graph_models_is_their_mean(model, reverser, tmp_path):
    newest = sorted((model / "checkpoints").iterdir())[-1] / "model.safetensors"
    well("average", model, newest, "--out", tmp_path / "mean")
    one, other, mean = map(load_file, (model / "model.safetensors", newest, tmp_path / "mean/model.safetensors"))
    for name in mean:
        torch.testing.assert_close(mean[name], (one[name] + other[name]) / 2)
    assert json.loads(well("evaluate", tmp_path / "mean", "--json").out)["items"] == 16
    done = jumok("average", model, reverser, "--out", tmp_path / "other")
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert f"{reverser} does not hold a model that classifies the nodes of a graph" in done.err
