"""What can be wrong with a graph: one line that says where, what was seen and what to do."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from jumok.errors import ArgumentError, ConfigError, DataError
from jumok.graphs.files import from_arrays, read_graph, read_tables
from jumok.graphs.graph import GraphConfig, SparseTable
from jumok.graphs.network import GatConfig, GraphAttentionNetwork
from jumok.graphs.sampling import SamplingConfig
from jumok.graphs.store import open_graph, write_graph
from jumok.tasks import make_recipe
from jumok.tasks.node_classification import GraphRecipe
from support.commands import jumok, write
from support.graphs import CONFIG, raw_graph


def mask(*numbers, length=40):
    found = np.zeros(length, bool)
    found[list(numbers)] = True
    return found


def changed(name, place, value, dtype=None):
    array = np.array(getattr(raw_graph(), name), dtype)
    array[place] = value
    return {name: array}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (changed("edges", (1, 7), 40), r"edge 7 goes from \d+ to 40, but nodes are 0 to 39"),
        (changed("edges", (0, 3), -1), r"edge 3 goes from -1 to \d+, but nodes are 0 to 39"),
        ({"edges": np.zeros((2, 3))}, r"edges hold float64; wanted whole numbers"),
        ({"edges": np.zeros((3, 3), int)}, r"edges are \[3, 3\]; wanted \[2, edge\]"),
        (changed("labels", 4, -2), r"label -2 of item 4; wanted 0 or more, or -1"),
        (changed("labels", 4, 900), r"label 900 of item 4 is out of range: there are only 40 items"),
        ({"labels": np.full(40, -1)}, r"no node has a label"),
        ({"labels": np.zeros(40, np.int64)}, r"every label is 0, so there is nothing to learn; wanted two classes or"),
        ({"labels": np.array([-1, 2] * 20), "class_names": ["a", "b", "cat"]}, r"every label is cat, so there is"),
        ({"labels": np.zeros(40)}, r"labels are float64 \[40\]"),
        ({"labels": np.arange(39) % 2}, r"features of 40 nodes but labels of 39"),
        (changed("features", (6, 2), np.nan), r"a feature of node 6 is nan; wanted finite numbers"),
        (changed("features", (9, 0), np.inf), r"a feature of node 9 is inf; wanted finite numbers"),
        (changed("features", (9, 0), -1e300, float), r"node 9 is -1e\+300, which is too large for single precision"),
        ({"features": np.zeros(40)}, r"features are \[40\]; wanted \[node, feature\]"),
        ({"features": np.array([["a"]] * 40)}, r"features are <U1; wanted numbers"),
        ({"masks": {"train": mask(1, length=39)}}, r"the train mask is \[39\], but there are 40 nodes"),
        ({"masks": {"train": np.arange(40)}}, r"the train mask holds int64; wanted booleans"),
        ({"masks": {"train": mask(1, 2), "test": mask(2)}}, r"node 2 is both in the train mask and in the test mask"),
        ({"masks": {"train": mask(), "test": mask(2)}}, r"nothing to train on; the train mask is empty"),
        ({**changed("labels", 5, -1), "masks": {"train": mask(5)}}, r"node 5 is in the train mask but has no label"),
        ({"graph": np.zeros(39, int), "labels": np.array([0, 1])}, r"40 nodes, but 39 have the number of their graph"),
        ({"graph": np.full(40, 2), "labels": np.array([0, 1])}, r"graphs 2 to 2, but there are labels of 2"),
        (
            {
                "graph": np.arange(40) // 20,
                "labels": np.array([0, 1]),
                "edges": np.array([[0, 25, 3, 39], [19, 20, 20, 0]]),
            },
            r"edge 2 joins two graphs: node 3 is of graph 0, node 20 of graph 1; take it out",
        ),
        ({"edge_features": np.zeros((3, 2))}, r"there are 120 edges but edge features of 3"),
    ],
)
def test_what_is_wrong_with_a_graph_is_named(tmp_path, changes, said):
    with pytest.raises(DataError, match=said) as raised:
        write_graph(tmp_path, replace(raw_graph(), **changes), CONFIG)
    assert "\n" not in str(raised.value)
    assert open_graph(tmp_path) is None


def test_a_nan_in_sparse_features_is_named_by_its_node(tmp_path):
    values = np.array([1.0, 2.0, np.nan])
    table = SparseTable(starts=np.array([0, 2, 2, 3]), columns=np.array([0, 1, 1]), values=values, width=2)
    raw = raw_graph(nodes=3, edges=2, features=table, labels=np.array([0, 1, 0]))
    with pytest.raises(DataError, match=r"a feature of node 2 is nan"):
        write_graph(tmp_path, raw, CONFIG)


def test_a_graph_without_nodes_is_empty(tmp_path):
    raw = raw_graph(edges=0, labels=np.zeros(0, int), features=np.zeros((0, 3), np.float32))
    with pytest.raises(DataError, match="is empty: it has no nodes"):
        write_graph(tmp_path, raw, CONFIG)


def test_a_graph_without_edges_and_one_with_unlabelled_nodes_work(tmp_path):
    alone = write_graph(tmp_path / "a", raw_graph(edges=0), CONFIG)
    assert len(alone.sources) == 0
    labels = raw_graph().labels.copy()
    labels[::2] = -1
    partly = write_graph(tmp_path / "b", raw_graph(labels=labels), CONFIG)
    assert not set(partly.train.tolist()) & set(range(0, 40, 2))


def test_arrays_that_are_missing_are_named_with_those_that_are_there():
    with pytest.raises(DataError, match=r"g.npz has no labels or y or label; it has edges, x"):
        from_arrays({"x": np.zeros((3, 2)), "edges": np.zeros((2, 0), int)}, "g.npz")
    with pytest.raises(DataError, match=r"feat_data but no feat_indices"):
        from_arrays({"feat_data": np.zeros(3), "labels": np.zeros(3)}, "g.npz")


@pytest.mark.parametrize(
    ("nodes", "edges", "said"),
    [
        ("label,a\n0,1\n1,2\n", "0,2\n", r"edges.csv, line 1: edge from 0 to 2, but nodes are 0 to 1"),
        ("label,a\n0,1\n1,2\n", "0,1\nx,1\n", r"edges.csv, line 2: an edge with 'x', wanted a number"),
        ("id,label,a\np,0,1\nq,1,2\n", "p,q\np,r\n", r"edges.csv, line 2: an edge with 'r', which is no id"),
        ("id,label,a\np,0,1\nq,1,2\n", "p,r\n", r"edges.csv, line 1: an edge with 'r', which is no id"),
        ("label,a\n0,1\n1,2\n", "0,x\n", r"edges.csv, line 1: an edge with 'x', wanted a number"),
        ("id,label,a\np,0,1\np,1,2\n", "", r"two nodes have the id 'p'"),
        ("label,a\n0,one\n", "", r"nodes.csv, line 2: a is 'one'; wanted a number"),
        ("label,a\n0,1\n1,-1e300\n", "0,1\n", r"nodes.csv, line 3: a is -1e300, which is too large for single prec"),
        ("label,a\n0,nan\n1,1\n", "", r"a feature of node 0 is nan"),
        ("label,split,a\n0,trian,1\n", "", r"nodes.csv, line 2: split is 'trian'; wanted train, valid, test"),
        ("a,b\n0,1\n", "", r"nodes.csv has no column `label`; its columns are a, b"),
        ("label,a\n0,1,2\n", "", r"nodes.csv, line 2: 3 columns, but the header has 2"),
        ("label\n0\n", "", r"nodes.csv has no features"),
        ("", "", r"nodes.csv is empty"),
        ("label,a\n0,1\n", "5\n", r"edges.csv, line 1: wanted two columns"),
    ],
)
def test_tables_name_the_line_at_fault(tmp_path, nodes, edges, said):
    paths = [str(write(tmp_path / f"{name}.csv", text)) for name, text in (("nodes", nodes), ("edges", edges))]
    with pytest.raises(DataError, match=said) as raised:
        write_graph(tmp_path / "data", read_tables(*paths), CONFIG)
    assert "\n" not in str(raised.value)


def test_files_that_are_no_graphs_are_refused_and_run_no_code(tmp_path):
    for name in ("damaged.npz", "damaged.pt"):
        write(tmp_path / name, "not what it says")
        with pytest.raises(DataError, match=name) as raised:
            read_graph(GraphConfig(path=str(tmp_path / name)))
        assert "unsafe" not in str(raised.value)
        assert "pickle" not in str(raised.value)
    np.savez(tmp_path / "objects.npz", labels=np.array([{}], dtype=object))
    with pytest.raises(DataError, match=r"objects.npz is not a whole .npz file of plain arrays"):
        read_graph(GraphConfig(path=str(tmp_path / "objects.npz")))
    torch.save({"x": GraphConfig(built_in="planted")}, tmp_path / "code.pt")
    with pytest.raises(DataError, match=r"code.pt is damaged, or holds more than tensors"):
        read_graph(GraphConfig(path=str(tmp_path / "code.pt")))
    with pytest.raises(DataError, match="there is no file"):
        read_graph(GraphConfig(path=str(tmp_path / "none.npz")))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, r"set one of graph.path, graph.nodes and graph.built_in"),
        ({"path": "a", "built_in": "planted"}, r"there is graph.path and graph.built_in"),
        ({"nodes": "a"}, r"graph.nodes and graph.edges go together"),
        ({"path": "a", "shares": (0.0, 0.5, 0.5)}, r"graph.shares = \[0.0, 0.5, 0.5\]"),
        ({"path": "a", "shares": (0.9, 0.5, 0.5)}, r"sum to at most 1"),
    ],
)
def test_where_a_graph_comes_from_is_said_once(settings, said):
    with pytest.raises(ConfigError, match=said):
        GraphConfig(**settings)


def test_recipes_of_graphs_and_of_texts_are_told_apart():
    graph = {"graph": {"built_in": "planted"}}
    assert isinstance(make_recipe(graph), GraphRecipe)
    with pytest.raises(ConfigError, match=r"no section \[decoder\]; there are graph, network, sampling, training"):
        make_recipe({**graph, "decoder": {}})
    with pytest.raises(ConfigError, match=r"training.metric = 'bleu' is not one of 'loss', 'accuracy'"):
        make_recipe({**graph, "training": {"metric": "bleu"}})
    with pytest.raises(ConfigError, match=r"training.metric = 'accuracy' is not one of"):
        make_recipe({"data": {"corpus": "reverse"}, "training": {"metric": "accuracy"}})
    with pytest.raises(ConfigError, match=r"network.head is not a setting; did you mean heads"):
        make_recipe({**graph, "network": {"head": 3}})
    with pytest.raises(ConfigError, match=r"\[graph\] must be a section of its own, but it is the value 3"):
        make_recipe({"graph": 3})
    with pytest.raises(ConfigError, match="steps stands before the first section"):
        make_recipe({**graph, "steps": 3})
    with pytest.raises(ConfigError, match=r"sampling.fanout = \[0\]"):
        SamplingConfig(fanout=(0,))


def test_pooling_and_labels_of_graphs_go_together(tmp_path):
    recipe = write(tmp_path / "r.toml", '[graph]\nbuilt_in = "planted"\n[network]\npooling = "mean"\n')
    done = jumok("train", recipe, "--out", tmp_path / "model")
    assert (done.code, "the labels are of nodes" in done.err) == (1, True)


def test_a_network_with_pooling_wants_to_know_the_graph_of_every_node():
    network = GraphAttentionNetwork(GatConfig(pooling="sum"), features=2, classes=3)
    x, edges = torch.zeros(5, 2), torch.zeros(2, 0, dtype=torch.long)
    with pytest.raises(ArgumentError, match="graph is missing"):
        network(x, edges)
    with pytest.raises(ArgumentError, match=r"\[3\]; wanted one number for each of the 5 nodes"):
        network(x, edges, graph=torch.zeros(3, dtype=torch.long))
    with pytest.raises(ArgumentError, match="hops has 1 entries for 2 layers"):
        network(x, edges, hops=[(5, 0)])
