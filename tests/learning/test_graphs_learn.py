"""Graph attention from nothing to the one neighbour that matters, in seconds; and where GAT's fixed ranking fails."""

from dataclasses import replace

import numpy as np
import pytest

from jumok.analysis.maps.graph_map import graph_map
from jumok.graphs.batches import predict, whole_graph
from jumok.graphs.files import planted_graph
from jumok.graphs.graph import GraphConfig
from jumok.graphs.sampling import SamplingConfig
from jumok.tasks import read_recipe
from jumok.tasks.run import train
from jumok.training import Report

pytestmark = pytest.mark.long

SIZE = 1200


def planted(tmp_path, *changes):
    recipe = read_recipe("recipes/planted-graph.toml", [f"graph.size={SIZE}", "training.steps=300", *changes])
    return train(recipe, out=tmp_path / "model", device="cpu", report=Report())


def share_looking_right(run):
    """Of the nodes never trained on, how many look most at the neighbour that was planted."""
    trained = run.model.trained
    model, graph = trained.model, trained.graph
    answer = planted_graph(SIZE, seed=trained.recipe.graph.seed).answer
    weights = predict(model, whole_graph(graph, graph.test)).attention[-1]().mean(1).detach().numpy()
    most = [
        graph.sources[start:end][weights[start:end].argmax()]
        for start, end in zip(graph.starts[:-1], graph.starts[1:], strict=True)
    ]
    return float((np.array(most) == answer)[graph.test].mean())


@pytest.fixture(autouse=True)
def at_root(monkeypatch, request):
    monkeypatch.chdir(request.config.rootpath)


def test_gatv2_looks_at_the_planted_neighbour(tmp_path):
    run = planted(tmp_path)
    assert share_looking_right(run) >= 0.95
    assert run.metrics["test accuracy"] >= 90
    shown = graph_map(run.model.trained.model, run.model.trained.graph, 7)
    assert float(shown.mean()[0].sum()) == pytest.approx(1, abs=1e-5)


def test_gatv2_learns_it_from_sampled_neighbourhoods(tmp_path):
    run = planted(tmp_path, "sampling.fanout=[-1]", "sampling.batch=240")
    assert share_looking_right(run) >= 0.95


def test_gat_cannot_as_it_ranks_neighbours_alike_for_every_node(tmp_path):
    assert share_looking_right(planted(tmp_path, "network.kind=gat")) < 0.6


def test_whole_graphs_are_told_apart_by_pooling(tmp_path):
    """Class 1 has an edge between its two marked nodes, which only a look along edges can tell."""
    draws, count, each = np.random.default_rng(0), 200, 6
    labels = np.arange(count) % 2
    edges = []
    for number, label in enumerate(labels):
        others = draws.permutation(np.arange(2, each))
        edges += [(number * each, number * each + (1 if label else others[0]))]
        edges += [(number * each + 1, number * each + others[1])]
    features = np.tile(np.eye(each)[[0, 0, 1, 1, 1, 1]][:, :2], (count, 1)).astype(np.float32)
    path = tmp_path / "many.npz"
    np.savez(path, edges=np.array(edges), features=features, labels=labels, graph=np.repeat(np.arange(count), each))
    recipe = read_recipe(
        "recipes/planted-graph.toml",
        [
            "network.pooling=sum",
            "network.layers=2",
            "network.width=16",
            "network.heads=2",
            "network.self_loops=true",
            "training.steps=200",
            "training.learning_rate=0.01",
        ],
    )
    recipe = replace(recipe, graph=GraphConfig(path=str(path)), sampling=SamplingConfig())
    assert train(recipe, out=tmp_path / "model", device="cpu", report=Report()).metrics["test accuracy"] == 100
