"""Whom a node looked at, and whom its neighbours did: the attention map of a graph network around one node."""

from unicodedata import normalize

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.source_layout import GraphLayout
from jumok.errors import ArgumentError
from jumok.graphs.edges import EdgeWeights
from jumok.graphs.graph import Graph
from jumok.graphs.network import GraphAttentionNetwork, node_features
from jumok.graphs.sampling import ALL, Neighbourhood, sample

RING = 16
"""Neighbours whose own looks are in a map: those the node looked at most in the last layer."""


@torch.no_grad()
def graph_map(model: GraphAttentionNetwork, graph: Graph, node: int) -> AttentionMap:
    """Where a node looked in every layer, and in all but the last where its neighbours looked.

    That is what its answer is made of: in the last layer it looks at what its neighbours were before, which is what
    they looked at until then. What does not reach the answer is 0. A layer with fewer heads than another has the
    average of its heads for those it lacks, so that the average of all heads is that of its own.
    """
    if not 0 <= node < graph.nodes:
        raise ArgumentError(f"there is no node {node}; nodes are 0 to {graph.nodes - 1}")
    layers = len(model.layers)
    seen = sample(graph, np.array([node]), (ALL,) * layers, np.random.default_rng(0))
    logits, attention = _looked(model, graph, seen)
    order = _by_weight(seen, attention[-1])
    targets = [0, *order[: RING if layers > 1 else 0]]
    sources = _sources(seen, order, targets)
    heads = max(layer().shape[1] for layer in attention)
    weights = torch.zeros(layers, heads, len(targets), len(sources))
    for layer, looked in enumerate(attention):
        rows = targets if layer < layers - 1 else targets[:1]
        weights[layer, :, : len(rows)] = _as_many(_matrix(looked, seen, rows, sources), heads)
    numbers = [int(seen.nodes[place]) for place in sources]
    names = tuple(graph.name(number) for number in numbers)
    found, probability = _said(graph, logits)
    classes = tuple(_class(graph, number) for number in numbers)
    layout = GraphLayout(tuple(numbers), classes, len(order), found, probability)
    return AttentionMap(names, names[: len(targets)], weights, layout=layout, title=layout.title(names[0]))


def find_node(graph: Graph, name: str) -> int:
    """The number of a node by its name, or by its number where nodes have no names.

    Names that look the same are the same: "나" as a syllable and, as macOS spells it, in two letters.
    """
    if graph.names:
        if name in graph.names:
            return list(graph.names).index(name)
        composed = [normalize("NFC", one) for one in graph.names]
        if (same := normalize("NFC", name)) in composed:
            return composed.index(same)
        raise ArgumentError(f"there is no node {name!r}; nodes are called {', '.join(map(repr, graph.names[:3]))} …")
    if not name.isdecimal() or len(name) > 18 or int(name) >= graph.nodes:
        raise ArgumentError(f"there is no node {name[:40]}; nodes are 0 to {graph.nodes - 1}")
    return int(name)


def _looked(
    model: GraphAttentionNetwork, graph: Graph, seen: Neighbourhood
) -> tuple[Float[Tensor, " class"] | None, tuple[EdgeWeights, ...]]:
    """What is said of the first node, and the attention of every layer; all in the neighbourhood, nothing cut."""
    device = next(model.parameters()).device
    features = None
    if graph.edge_features is not None:
        features = torch.from_numpy(np.array(graph.edge_features[seen.edges])).to(device)
    pooled = torch.zeros(len(seen.nodes), dtype=torch.long, device=device) if model.pooling else None
    edges = torch.from_numpy(seen.edge_index).to(device)
    found = model.eval()(node_features(graph.rows(seen.nodes)).to(device), edges, features, graph=pooled)
    return None if model.pooling else found.logits[0].float().cpu(), found.attention


def _by_weight(seen: Neighbourhood, looked: EdgeWeights) -> list[int]:
    """The neighbours of the first node, as places in the neighbourhood, those it looked at most first."""
    edges = np.flatnonzero(seen.edge_index[1] == 0)
    weights = looked()[edges].mean(1).tolist()
    ranked = sorted(zip(seen.edge_index[0][edges].tolist(), weights, strict=True), key=lambda one: -one[1])
    return list(dict.fromkeys(place for place, _ in ranked if place != 0))


def _sources(seen: Neighbourhood, neighbours: list[int], targets: list[int]) -> list[int]:
    """The node, its neighbours, and whoever is looked at by a neighbour that is a target."""
    further = seen.edge_index[0][np.isin(seen.edge_index[1], targets[1:])].tolist()
    return list(dict.fromkeys([0, *neighbours, *further]))


def _matrix(
    looked: EdgeWeights, seen: Neighbourhood, targets: list[int], sources: list[int]
) -> Float[Tensor, "head target source"]:
    """The weights of edges and loops into the targets."""
    row = {place: at for at, place in enumerate(targets)}
    column = {place: at for at, place in enumerate(sources)}
    edges = np.flatnonzero(np.isin(seen.edge_index[1], targets))
    into = torch.tensor([row[place] for place in seen.edge_index[1, edges].tolist()], dtype=torch.long)
    of = torch.tensor([column[place] for place in seen.edge_index[0, edges].tolist()], dtype=torch.long)
    own = torch.tensor([column[place] for place in targets])
    on_edges, on_loops = looked()[edges].float().cpu(), looked.loops()[targets].float().cpu()
    found = torch.zeros(len(targets), len(sources), on_edges.shape[1])
    found.index_put_((into, of), on_edges, accumulate=True)
    found.index_put_((torch.arange(len(targets)), own), on_loops, accumulate=True)
    return found.permute(2, 0, 1)


def _as_many(weights: Float[Tensor, "own target source"], heads: int) -> Float[Tensor, "head target source"]:
    """With the average for each head that is not there."""
    mean = weights.mean(0, keepdim=True)
    return torch.cat([weights, mean.expand(heads - len(weights), *mean.shape[1:])])


def _said(graph: Graph, logits: Float[Tensor, " class"] | None) -> tuple[str, float]:
    """The class found, and how sure the model is."""
    if logits is None:
        return "", 0.0
    probability, best = logits.softmax(-1).max(-1)
    return graph.class_name(int(best)), float(probability)


def _class(graph: Graph, node: int) -> str:
    return graph.class_name(int(graph.labels[node] if graph.graph is None else graph.labels[graph.graph[node]]))
