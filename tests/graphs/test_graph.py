"""Graphs from every kind of file, put in order in bounded memory."""

from unicodedata import normalize

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from jumok.graphs import graph as graphs
from jumok.graphs import store as graph_store
from jumok.graphs.files import COLOURS, SYMBOLS, planted_graph, read_graph, read_node_tables
from jumok.graphs.graph import GraphConfig, SparseTable
from jumok.graphs.store import open_graph, prepare_graph, write_graph
from support.graphs import CONFIG, raw_graph, stored


def edges_of(graph):
    target = np.repeat(np.arange(graph.nodes), np.diff(graph.starts))
    return set(zip(np.asarray(graph.sources).tolist(), target.tolist(), strict=True))


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize("chunk", [7, 2**22])
def test_edges_are_sorted_by_target_each_once_however_they_are_read(tmp_path, monkeypatch, undirected, chunk):
    monkeypatch.setattr(graph_store, "chunks", lambda count, size=0: graphs.chunks(count, chunk))
    raw = raw_graph(nodes=20, edges=150)
    graph = write_graph(tmp_path, raw, GraphConfig(path="x", undirected=undirected))
    wanted = set(zip(*raw.edges.tolist(), strict=True))
    wanted |= {(target, source) for source, target in wanted} if undirected else set()
    assert edges_of(graph) == wanted
    assert len(graph.sources) == len(wanted)


def test_features_of_edges_go_with_their_edges(tmp_path):
    raw = raw_graph(edges=60)
    graph = write_graph(tmp_path, raw_graph(edges=60, edge_features=raw.edges.T.astype(np.float32)), CONFIG)
    target = np.repeat(np.arange(graph.nodes), np.diff(graph.starts))
    assert len(graph.sources) == 120
    both = {frozenset(pair) for pair in np.asarray(graph.edge_features).astype(int).tolist()}
    assert both == {frozenset(pair) for pair in zip(graph.sources.tolist(), target.tolist(), strict=True)}


def test_a_graph_is_made_once_and_again_when_its_file_changes(tmp_path):
    path, said = tmp_path / "graph.npz", []
    config = GraphConfig(path=str(path))
    np.savez(path, **{name: getattr(raw_graph(), name) for name in ("edges", "features", "labels")})
    first = prepare_graph(tmp_path / "data", config, say=said.append)
    prepare_graph(tmp_path / "data", config, say=said.append)
    assert len(said) == 1
    np.savez(path, **{name: getattr(raw_graph(nodes=41), name) for name in ("edges", "features", "labels")})
    assert prepare_graph(tmp_path / "data", config, say=said.append).nodes == first.nodes + 1
    assert open_graph(tmp_path / "nothing") is None


def test_sparse_features_are_kept_sparse_and_normalised_by_row(tmp_path):
    table = SparseTable(starts=np.array([0, 2, 2, 3]), columns=np.array([0, 3, 1]), values=np.array([1, 3, 5]), width=4)
    raw = raw_graph(nodes=3, edges=4, features=table, labels=np.array([0, 1, 0]))
    graph = write_graph(tmp_path, raw, GraphConfig(path="x", normalise=True))
    assert isinstance(graph.features, SparseTable)
    assert graph.features.values.tolist() == [0.25, 0.75, 1.0]
    some = graph.features.rows(np.array([2, 0]))
    assert (some.starts.tolist(), some.columns.tolist()) == ([0, 1, 3], [1, 0, 3])


def test_an_npz_a_folder_of_arrays_a_saved_pyg_graph_and_its_dict_are_the_same_graph(tmp_path):
    raw = raw_graph()
    masks = {"train_mask": np.arange(40) < 20, "val_mask": np.arange(40) >= 30, "test_mask": np.zeros(40, bool)}
    arrays = {"edge_index": raw.edges, "x": raw.features, "y": raw.labels, **masks}
    np.savez(tmp_path / "graph.npz", **arrays)
    (tmp_path / "folder").mkdir()
    for name, array in arrays.items():
        np.save(tmp_path / "folder" / f"{name}.npy", array)
    data = Data(**{name: torch.from_numpy(array) for name, array in arrays.items()})
    torch.save(data.to_dict(), tmp_path / "dict.pt")
    torch.save(data, tmp_path / "data.pt")
    paths = [tmp_path / name for name in ("graph.npz", "folder", "dict.pt", "data.pt")]
    for number, path in enumerate(paths):
        graph = write_graph(tmp_path / str(number), read_graph(GraphConfig(path=str(path))), CONFIG)
        assert edges_of(graph) == edges_of(write_graph(tmp_path / "raw", raw, CONFIG))
        assert np.array_equal(graph.features, raw.features)
        assert graph.train.tolist() == list(range(20))
        assert graph.valid.tolist() == list(range(30, 40))


def test_two_tables_with_names_classes_and_splits(tmp_path):
    nodes = "id,label,split,age,size\n가,cat,train,1,0.5\n나,dog,,2,1\n다,,test,3,2\n라,dog,val,4,0\n".replace(
        "다,,test", "다,cat,test"
    )
    (tmp_path / "nodes.csv").write_text(nodes, encoding="utf-8")
    (tmp_path / "edges.csv").write_text("source,target\n가,나\n나,다\n", encoding="utf-8")
    config = GraphConfig(nodes=str(tmp_path / "nodes.csv"), edges=str(tmp_path / "edges.csv"))
    graph = prepare_graph(tmp_path / "data", config)
    assert (graph.nodes, graph.classes, graph.width) == (4, 2, 2)
    assert [graph.class_name(int(label)) for label in graph.labels] == ["cat", "dog", "cat", "dog"]
    assert (graph.train.tolist(), graph.valid.tolist(), graph.test.tolist()) == ([0], [3], [2])
    assert edges_of(graph) == {(0, 1), (1, 0), (1, 2), (2, 1)}
    assert graph.name(0) == "가"


def test_names_that_look_the_same_are_the_same_however_they_are_spelt_in_unicode(tmp_path):
    composed, letters = "나", normalize("NFD", "나")
    (tmp_path / "nodes.tsv").write_text(
        f"id\tlabel\tx\n{composed}\t개\t1\n너\t{normalize('NFD', '개')}\t2\n", encoding="utf-8"
    )
    (tmp_path / "edges.tsv").write_text(f"{letters}\t너\n", encoding="utf-8")
    raw = read_node_tables(str(tmp_path / "nodes.tsv"), str(tmp_path / "edges.tsv"))
    assert raw.edges.tolist() == [[0], [1]]
    assert list(raw.class_names) == ["개"]


def test_without_a_split_one_is_drawn_from_labelled_nodes_the_same_every_time(tmp_path):
    labels = raw_graph().labels.copy()
    labels[:10] = -1
    one, other = (stored(tmp_path / name, labels=labels) for name in "ab")
    parts = [set(part.tolist()) for part in (one.train, one.valid, one.test)]
    assert [len(part) for part in parts] == [18, 6, 6]
    assert set.union(*parts) == set(range(10, 40))
    assert one.train.tolist() == other.train.tolist()
    third = write_graph(tmp_path / "c", raw_graph(labels=labels), GraphConfig(path="x", seed=2))
    assert third.train.tolist() != one.train.tolist()


def test_in_the_planted_graph_exactly_one_neighbour_holds_what_a_node_seeks_and_has_the_colour_of_its_label():
    graph, answer = planted_graph(300, seed=3)
    holds, seeks, colour = np.split(graph.features, [SYMBOLS, 2 * SYMBOLS], axis=1)
    assert colour.shape[1] == COLOURS
    for node in range(300):
        around = graph.edges[0][graph.edges[1] == node]
        matching = [one for one in around if (holds[one] == seeks[node]).all()]
        assert matching == [answer[node]]
        assert colour[answer[node]].argmax() == graph.labels[node]


def test_a_graph_on_disk_is_mapped_not_read(tmp_path):
    graph = stored(tmp_path)
    assert all(isinstance(part, np.memmap) for part in (graph.starts, graph.sources, graph.features, graph.labels))
    some = graph.rows(np.array([3, 1]))
    assert np.array_equal(some, raw_graph().features[[3, 1]])
