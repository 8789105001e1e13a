"""What can be wrong with a graph: one line that says where, what was seen and what to do."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from jumok.errors import ArgumentError, ConfigError, DataError
from jumok.graphs.files import from_arrays, read_graph, read_node_tables
from jumok.graphs.graph import GraphConfig, SparseTable
from jumok.graphs.network import GatConfig, GraphAttentionNetwork
from jumok.graphs.store import open_graph, write_graph
from jumok.tasks import make_recipe
from jumok.tasks.recipes import GraphRecipe
from support.commands import write
from support.graphs import CONFIG, raw_graph
from support.refusals import names, refused, refuses

TWO_GRAPHS = {"graph": np.arange(40) // 20, "labels": np.array([0, 1])}


def mask(*numbers, length=40):
    found = np.zeros(length, bool)
    found[list(numbers)] = True
    return found


def changed(name, place, value, dtype=None):
    array = np.array(getattr(raw_graph(), name), dtype)
    array[place] = value
    return {name: array}


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        (changed("edges", (1, 7), 40), "edge 7 … 40 … 0 to 39"),
        (changed("edges", (0, 3), -1), "edge 3 … -1 … 0 to 39"),
        ({"edges": np.zeros((2, 3))}, "edges is float64"),
        ({"edges": np.zeros((3, 3), int)}, "edges is int64 [3, 3] … [2, edge]"),
        (changed("labels", 4, -2), "label -2 of item 4"),
        (changed("labels", 4, 900), "label 900 of item 4 … 0 to 39 … -1"),
        ({"labels": np.full(40, -1)}, "two classes … seen: none"),
        ({"labels": np.array([-1, 2] * 20), "class_names": ["a", "b", "cat"]}, "seen: cat"),
        ({"labels": np.zeros(40)}, "labels is float64 [40]"),
        ({"labels": np.arange(39) % 2}, "40 nodes … 39"),
        (changed("features", (6, 2), np.nan), "node 6 … nan"),
        (changed("features", (9, 0), np.inf), "node 9 … inf"),
        (changed("features", (9, 0), -1e300, float), "node 9 … -1e+300 … finite"),
        ({"features": np.zeros(40)}, "features is … [40]"),
        ({"features": np.array([["a"]] * 40)}, "features is <U1"),
        ({"masks": {"train": mask(1, length=39)}}, "train mask is bool [39]"),
        ({"masks": {"train": np.arange(40)}}, "train mask is int64"),
        ({"masks": {"train": mask(1, 2), "test": mask(2)}}, "node 2 … train mask … test mask"),
        ({"masks": {"train": mask(), "test": mask(2)}}, "train mask is empty"),
        ({**changed("labels", 5, -1), "masks": {"train": mask(5)}}, "node 5 … train mask … no label"),
        (TWO_GRAPHS | {"graph": np.zeros(39, int)}, "40 nodes … 39"),
        (TWO_GRAPHS | {"graph": np.full(40, 2)}, "2 to 2 … labels of 2"),
        (
            TWO_GRAPHS | {"edges": np.array([[0, 25, 3, 39], [19, 20, 20, 0]])},
            "edge 2 … node 3 of graph 0 … node 20 of graph 1",
        ),
        ({"edge_features": np.zeros((3, 2))}, "120 edges … 3"),
    ],
)
def test_what_is_wrong_with_a_graph_is_named(tmp_path, changes, facts):
    with refuses(DataError, facts):
        write_graph(tmp_path, replace(raw_graph(), **changes), CONFIG)
    assert open_graph(tmp_path) is None


def test_a_nan_in_sparse_features_is_named_by_its_node(tmp_path):
    values = np.array([1.0, 2.0, np.nan])
    table = SparseTable(starts=np.array([0, 2, 2, 3]), columns=np.array([0, 1, 1]), values=values, width=2)
    raw = raw_graph(nodes=3, edges=2, features=table, labels=np.array([0, 1, 0]))
    with pytest.raises(DataError, match="the graph: a feature of node 2 is nan, but must be a finite number"):
        write_graph(tmp_path, raw, CONFIG)


def test_a_graph_without_nodes_is_empty(tmp_path):
    raw = raw_graph(edges=0, labels=np.zeros(0, int), features=np.zeros((0, 3), np.float32))
    with refuses(DataError, "0 nodes"):
        write_graph(tmp_path, raw, CONFIG)


def test_a_graph_without_edges_and_one_with_unlabelled_nodes_work(tmp_path):
    alone = write_graph(tmp_path / "a", raw_graph(edges=0), CONFIG)
    assert len(alone.sources) == 0
    labels = raw_graph().labels.copy()
    labels[::2] = -1
    partly = write_graph(tmp_path / "b", raw_graph(labels=labels), CONFIG)
    assert not set(partly.train.tolist()) & set(range(0, 40, 2))


def test_arrays_that_are_missing_are_named_with_those_that_are_there():
    with refuses(DataError, "g.npz", "labels or y or label", "edges, x"):
        from_arrays({"x": np.zeros((3, 2)), "edges": np.zeros((2, 0), int)}, "g.npz")
    with refuses(DataError, "g.npz", "feat_data", "feat_indices"):
        from_arrays({"feat_data": np.zeros(3), "labels": np.zeros(3)}, "g.npz")


@pytest.mark.parametrize(
    ("nodes", "edges", "facts"),
    [
        ("label,a\n0,1\n1,2\n", "0,2\n", "edges.csv, line 1 … '2'"),
        ("label,a\n0,1\n1,2\n", "0,1\nx,1\n", "edges.csv, line 2 … 'x'"),
        ("label,a\n0,1\n1,2\n", "0,x\n", "edges.csv, line 1 … 'x'"),
        ("id,label,a\np,0,1\nq,1,2\n", "p,q\np,r\n", "edges.csv, line 2 … 'r'"),
        ("id,label,a\np,0,1\nq,1,2\n", "p,r\n", "edges.csv, line 1 … 'r'"),
        ("id,label,a\np,0,1\np,1,2\n", "", "two nodes … 'p'"),
        ("label,a\n0,one\n", "", "nodes.csv, line 2 … a is 'one'"),
        ("label,a\n0,1\n1,-1e300\n", "0,1\n", "nodes.csv, line 3 … a is -1e300"),
        ("label,a\n0,nan\n1,1\n", "", "nodes.csv, line 2 … a is nan … finite"),
        ("label,a,b\n0,1,2\n1,1,-inf\n", "", "nodes.csv, line 3 … b is -inf … finite"),
        ("label,split,a\n0,trian,1\n", "", "nodes.csv, line 2 … split is 'trian'"),
        ("a,b\n0,1\n", "", "nodes.csv … `label` … a, b"),
        ("label,a\n0,1,2\n", "", "nodes.csv, line 2 … 3 columns … 2"),
        ("label\n0\n", "", "nodes.csv … no features"),
        ("", "", "nodes.csv … empty"),
        ("label,a\n0,1\n", "5\n", "edges.csv, line 1"),
        ("label,a\n0,1\n", "", "edges.csv … no edges"),
        ("label,a\n0,1\n", "source,target\n", "edges.csv … no edges"),
    ],
)
def test_tables_name_the_line_at_fault(tmp_path, nodes, edges, facts):
    paths = [str(write(tmp_path / f"{name}.csv", text)) for name, text in (("nodes", nodes), ("edges", edges))]
    with refuses(DataError, facts):
        write_graph(tmp_path / "data", read_node_tables(*paths), CONFIG)


def test_files_that_are_no_graphs_are_refused_and_run_no_code(tmp_path):
    for name in ("damaged.npz", "damaged.pt"):
        write(tmp_path / name, "not what it says")
    np.savez(tmp_path / "objects.npz", labels=np.array([{}], dtype=object))
    torch.save({"x": GraphConfig(built_in="planted")}, tmp_path / "code.pt")
    for name in ("damaged.npz", "damaged.pt", "objects.npz", "code.pt", "none.npz"):
        with refuses(DataError, tmp_path / name) as raised:
            read_graph(GraphConfig(path=str(tmp_path / name)))
        assert "unsafe" not in str(raised.value)
        assert "pickle" not in str(raised.value)


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({}, "graph.path … graph.nodes … graph.built_in"),
        ({"path": "a", "built_in": "planted"}, "graph.path … graph.built_in"),
        ({"nodes": "a"}, "graph.nodes … graph.edges"),
        ({"path": "a", "shares": (0.0, 0.5, 0.5)}, "graph.shares = [0.0, 0.5, 0.5]"),
        ({"path": "a", "shares": (0.9, 0.5, 0.5)}, "graph.shares … 1"),
    ],
)
def test_where_a_graph_comes_from_is_said_once(settings, facts):
    with refuses(ConfigError, facts):
        GraphConfig(**settings)


def test_recipes_of_graphs_and_of_texts_are_told_apart():
    graph = {"graph": {"built_in": "planted"}}
    assert isinstance(make_recipe(graph), GraphRecipe)
    for tables, facts in (
        ({**graph, "decoder": {}}, "[decoder] … graph, network, sampling, training"),
        ({**graph, "training": {"metric": "bleu"}}, "training.metric = 'bleu' … 'loss', 'accuracy'"),
        ({"data": {"corpus": "reverse"}, "training": {"metric": "accuracy"}}, "training.metric = 'accuracy'"),
        ({**graph, "network": {"head": 3}}, "network.head … heads"),
        ({"graph": 3}, "[graph] … 3"),
        ({**graph, "steps": 3}, "steps … section"),
        ({**graph, "sampling": {"fanout": [0]}}, "sampling.fanout = [0]"),
    ):
        with refuses(ConfigError, facts):
            make_recipe(tables)


def test_pooling_and_labels_of_graphs_go_together(tmp_path):
    recipe = write(tmp_path / "r.toml", '[graph]\nbuilt_in = "planted"\n[network]\npooling = "mean"\n')
    names(refused("train", recipe, "--out", tmp_path / "model"), "network.pooling", "labels", "nodes")


def test_a_network_with_pooling_wants_to_know_the_graph_of_every_node():
    network = GraphAttentionNetwork(GatConfig(pooling="sum"), features=2, classes=3)
    x, edges = torch.zeros(5, 2), torch.zeros(2, 0, dtype=torch.long)
    for given, facts in (
        ({}, "graph"),
        ({"graph": torch.zeros(3).long()}, "[3] … 5"),
        ({"hops": [(5, 0)]}, "hops … 1 … 2"),
    ):
        with refuses(ArgumentError, facts):
            network(x, edges, **given)
