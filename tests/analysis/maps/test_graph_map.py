"""Whom a node looked at: the weights are the model's own, and drawings hold whatever names there are."""

from dataclasses import replace
from unicodedata import normalize
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from jumok.analysis import draw
from jumok.analysis.draw.graph import RING as DRAWN
from jumok.analysis.draw.graph import graph_drawing
from jumok.analysis.draw.page import attention_page
from jumok.analysis.draw.shapes import Disc, Label, Line
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.graph_map import RING, graph_map
from jumok.errors import ArgumentError
from jumok.graphs.graph import GraphConfig, find_node
from jumok.graphs.network import GatConfig, GraphAttentionNetwork
from jumok.graphs.store import write_graph
from jumok.tasks.node_classification import accuracy
from support.graph_maps import example
from support.graphs import raw_graph


@pytest.fixture
def graph(tmp_path):
    names = [f"노드 {number}" for number in range(40)]
    return write_graph(
        tmp_path, raw_graph(names=names, class_names=["<b>\x07", "둘\x1b", "셋\x00"]), GraphConfig(path="x")
    )


def whole(network, graph):
    """The network over all of the graph, and the weights of every layer as a matrix [head, node, node]."""
    targets = np.repeat(np.arange(40), np.diff(graph.starts))
    out = network(torch.from_numpy(np.array(graph.features)), torch.from_numpy(np.stack([graph.sources, targets])))
    matrices = []
    for weights in out.attention:
        matrix = torch.zeros(weights().shape[1], 40, 40)
        matrix[:, targets, torch.from_numpy(np.array(graph.sources)).long()] = weights().T
        matrix[:, range(40), range(40)] += weights.loops().T
        matrices.append(matrix)
    return out.logits, matrices


@pytest.mark.parametrize("degree_exponent", [0.0, 0.5])
@pytest.mark.parametrize("loops", [True, False])
def test_weights_are_those_the_whole_graph_gives(graph, loops, degree_exponent):
    config = GatConfig(width=8, heads=2, output_heads=2, self_loops=loops, degree_exponent=degree_exponent)
    network = GraphAttentionNetwork(config, features=3, classes=3).eval()
    with torch.no_grad():
        logits, matrices = whole(network, graph)
    for node in (0, 11, 39):
        shown = graph_map(network, graph, node)
        numbers = list(shown.layout.numbers)
        rows = numbers[: len(shown.target)]
        torch.testing.assert_close(shown.weights[0], matrices[0][:, rows][:, :, numbers], atol=1e-5, rtol=0)
        torch.testing.assert_close(shown.weights[1, :, 0], matrices[1][:, node][:, numbers], atol=1e-5, rtol=0)
        assert not shown.weights[1, :, 1:].any()  # what others look at last does not reach this node
        assert numbers[0] == node
        around = shown.mean()[0, 1 : 1 + shown.layout.neighbours]
        assert len(around) == len(set(graph.sources[graph.starts[node] : graph.starts[node + 1]]) - {node})
        assert shown.layout.predicted == graph.class_name(int(logits[node].argmax()))
        assert shown.source[: len(rows)] == shown.target == tuple(f"노드 {number}" for number in rows)


def test_a_layer_of_several_hops_also_shows_the_attention_of_the_neighbours(graph):
    network = GraphAttentionNetwork(GatConfig(layers=1, width=8, heads=2, hops=(3,)), features=3, classes=3).eval()
    with torch.no_grad():
        logits, (matrix,) = whole(network, graph)
    shown = graph_map(network, graph, 11)
    numbers = list(shown.layout.numbers)
    rows = numbers[: len(shown.target)]
    assert len(rows) > 1
    torch.testing.assert_close(shown.weights[0], matrix[:, rows][:, :, numbers], atol=1e-5, rtol=0)
    assert shown.layout.predicted == graph.class_name(int(logits[11].argmax()))
    assert shown.layout.probability == pytest.approx(logits[11].softmax(-1).max().item(), abs=1e-5)
    draw.to_svg(shown)


def test_a_layer_with_fewer_heads_has_their_average_in_the_place_of_the_others(graph):
    network = GraphAttentionNetwork(GatConfig(width=12, heads=4, output_heads=3), features=3, classes=3).eval()
    with torch.no_grad():
        _, matrices = whole(network, graph)
    shown = graph_map(network, graph, 11)
    wanted = matrices[1][:, 11][:, list(shown.layout.numbers)]
    torch.testing.assert_close(shown.weights[1, :3, 0], wanted, atol=1e-5, rtol=0)
    torch.testing.assert_close(shown.weights[1, 3, 0], wanted.mean(0), atol=1e-5, rtol=0)
    torch.testing.assert_close(shown.select(layer=1, head="mean").weights[0, 0, 0], wanted.mean(0), atol=1e-5, rtol=0)


def test_neighbours_come_in_the_order_of_the_last_layer_and_the_first_of_them_are_targets(tmp_path):
    edges = np.stack([np.arange(1, 40), np.zeros(39, int)])  # all into node 0
    graph = write_graph(tmp_path, replace(raw_graph(), edges=edges), GraphConfig(path="x", undirected=False))
    network = GraphAttentionNetwork(GatConfig(width=8, heads=2), features=3, classes=3)
    shown = graph_map(network, graph, 0)
    weights = shown.weights[-1, :, 0, 1:].mean(0)
    assert (weights.diff() <= 0).all()
    assert len(shown.target) == 1 + RING
    assert (len(shown.source), shown.layout.neighbours) == (40, 39)


def test_the_json_brings_back_the_map_and_draws_the_same(graph):
    network = GraphAttentionNetwork(GatConfig(width=8, heads=2), features=3, classes=3)
    shown = graph_map(network, graph, 7)
    again = AttentionMap.from_json(shown.to_json())
    assert again.to_json() == shown.to_json()
    assert draw.to_svg(again) == draw.to_svg(shown)


def test_a_node_is_found_however_its_name_is_spelt_in_unicode(graph):
    assert find_node(graph, normalize("NFD", "노드 7")) == 7
    spelt = replace(graph, names=[normalize("NFD", name) for name in graph.names])
    assert find_node(spelt, "노드 7") == find_node(spelt, normalize("NFD", "노드 7")) == 7


def test_names_are_written_as_text_and_shortened_to_their_discs(graph):
    network = GraphAttentionNetwork(GatConfig(width=8, heads=2), features=3, classes=3)
    shown = graph_map(network, graph, find_node(graph, "노드 7"))
    texts = [element.text for element in ElementTree.fromstring(draw.to_svg(shown)).iter() if element.text]
    assert any("노드 7" in text for text in texts)
    assert "<b>" not in attention_page(shown).replace("<body>", "")
    with pytest.raises(ArgumentError, match="there is no node '8'; nodes are called '노드 0'"):
        find_node(graph, "8")
    with pytest.raises(ArgumentError, match="there is no node 40; nodes are 0 to 39"):
        graph_map(network, graph, 40)


def shapes(kind, shown):
    return [shape for shape in graph_drawing(shown).shapes if isinstance(shape, kind)]


def test_the_drawing_is_of_the_last_layer_and_around_it_of_the_one_before():
    hints = [line.hint for line in shapes(Line, example())]
    assert "가 ← 나: 0.700" in hints  # (0.8 + 0.6) / 2
    assert "나 ← 라: 0.500, class d" in hints
    alone = example().select(layer=0)
    assert [line.hint for line in shapes(Line, alone)] == ["가 ← 나: 0.400", "가 ← <b>다</b>: 0.400"]
    assert any("layer 0" in label.text for label in shapes(Label, alone))


@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_every_word_and_disc_lies_inside_the_picture(count):
    names = ("0", *(str(number * 111) for number in range(count)), "long name indeed", "b")
    weights = torch.zeros(2, 1, 1 + count, len(names))
    weights[1, 0, 0, 1 : 1 + count] = 1 / max(count, 1)
    weights[0, 0, 1:, -2:] = 0.5
    shown = example(names, weights=weights, classes=["a", *["class"] * (len(names) - 1)])
    scene, discs, labels = graph_drawing(shown), shapes(Disc, shown), shapes(Label, shown)
    for disc in discs:
        assert disc.radius < disc.x < scene.width - disc.radius
        assert disc.radius < disc.y < scene.height - disc.radius
    assert len(discs) == 2 + 3 * min(count, DRAWN)
    assert any(f"and {count - DRAWN} more" in label.text for label in labels) == (count > DRAWN)
    assert any("wrong" in label.text for label in labels)


def test_a_terminal_shows_the_weights_of_the_last_layer_the_most_first():
    lines = draw.to_terminal(example(), plain=True).plain.splitlines()
    assert [line.split()[0] for line in lines] == ["node", "나", "<b>다</b>", "가"]
    assert lines[1].split()[1:3] == ["b", "0.700"]
    assert "가 (itself)" in lines[3]
    assert lines[1].count("█") == 24
    alone = example(("x",), weights=torch.zeros(1, 1, 1, 1), classes="a")
    assert draw.to_terminal(alone, plain=True).plain == "the node has no neighbours and attends to nothing"
    hostile = draw.to_terminal(example(("a\x1b[2J", "b\n", "c\x07", "d")), plain=True).plain
    assert not {"\x1b", "\x07"} & set(hostile)


def test_accuracy_has_the_interval_of_wilson():
    from statsmodels.stats.proportion import proportion_confint

    found = np.array([0] * 83 + [1] * 17)
    low, high = proportion_confint(83, 100, method="wilson")
    assert accuracy(found, np.zeros(100, int)) == pytest.approx((83.0, 100 * low, 100 * high, 100), abs=1e-3)
