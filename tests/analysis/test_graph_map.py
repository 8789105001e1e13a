"""Whom a node looked at: the weights are the model's own, and drawings hold whatever names there are."""

from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from graphs import raw_graph
from jumok.analysis.graph_map import GraphMap, Seen, find_node, graph_map
from jumok.analysis.graph_page import graph_page
from jumok.analysis.graph_scene import MOST, scene_of
from jumok.analysis.graph_scores import accuracy
from jumok.analysis.graph_svg import graph_svg
from jumok.data.graph_store import write_graph
from jumok.data.graphs import GraphConfig
from jumok.errors import ArgumentError
from jumok.models.gat import GatConfig, GraphAttentionNetwork


@pytest.fixture
def graph(tmp_path):
    names = [f"노드 {number}" for number in range(40)]
    return write_graph(
        tmp_path, raw_graph(names=names, class_names=["<b>\x07", "둘\x1b", "셋\x00"]), GraphConfig(path="x")
    )


@pytest.mark.parametrize("layer", [None, 0])
def test_weights_are_those_the_whole_graph_gives(graph, layer):
    network = GraphAttentionNetwork(GatConfig(width=8, heads=2), features=3, classes=3).eval()
    target = np.repeat(np.arange(40), np.diff(graph.starts))
    edges = torch.from_numpy(np.stack([graph.sources, target]))
    out = network(torch.from_numpy(np.array(graph.features)), edges)
    weights = out.attention[-1 if layer is None else layer]
    for node in (0, 11, 39):
        shown = graph_map(network, graph, node, layer=layer)
        here = target == node
        wanted = dict(zip(graph.sources[here].tolist(), weights()[here].mean(1).tolist(), strict=True))
        if weights.loops()[node].sum() > 0:
            wanted[node] = weights.loops()[node].mean().item()
        assert {one.node: pytest.approx(one.weight, abs=1e-5) for one in shown.seen} == wanted
        assert [one.weight for one in shown.seen] == sorted((one.weight for one in shown.seen), reverse=True)
        assert shown.found == graph.class_name(int(out.logits[node].argmax()))
        assert bool(shown.below) == (layer is None)


def test_names_are_written_as_text_and_shortened_to_their_discs(graph):
    network = GraphAttentionNetwork(GatConfig(width=8, heads=2), features=3, classes=3)
    shown = graph_map(network, graph, find_node(graph, "노드 7"))
    texts = [element.text for element in ElementTree.fromstring(graph_svg(shown)).iter() if element.text]
    assert any("노드 7" in text for text in texts)
    page = graph_page(shown)
    assert "<b>" not in page.replace("<body>", "")
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    with pytest.raises(ArgumentError, match="there is no node '8'; nodes are called '노드 0'"):
        find_node(graph, "8")


@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_every_word_and_disc_lies_inside_the_picture(count):
    seen = tuple(Seen(number + 1, str(number * 111), "class", 1 / count, (1 / count,)) for number in range(count))
    below = {
        one.node: (Seen(90, "long name indeed", "x", 0.5, (0.5,)), Seen(91, "b", "x", 0.5, (0.5,))) for one in seen
    }
    scene = scene_of(GraphMap(0, "0", "a", "b", 0.5, 1, 2, seen, below))
    for disc in scene.discs:
        assert disc.radius < disc.x < scene.width - disc.radius
        assert disc.radius < disc.y < scene.height - disc.radius
    assert len(scene.discs) == 2 + 3 * min(count, MOST)
    assert any(f"and {count - MOST} more" in words.text for words in scene.words) == (count > MOST)
    assert any("wrong" in words.text for words in scene.words)


def test_accuracy_has_the_interval_of_wilson():
    from statsmodels.stats.proportion import proportion_confint

    found = np.array([0] * 83 + [1] * 17)
    low, high = proportion_confint(83, 100, method="wilson")
    assert accuracy(found, np.zeros(100, int)) == pytest.approx((83.0, 100 * low, 100 * high, 100), abs=1e-3)
