"""The attention map of a graph network around one node: its own attention and that of its neighbours."""

from typing import NamedTuple

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
"""Neighbours whose own attention is in a map: those with the largest weights in the last layer."""


class NodePrediction(NamedTuple):
    """What a network makes of a node, and the attention of every layer over all that the node sees."""

    neighbourhood: Neighbourhood
    """Its first node is the one in question."""
    probabilities: Float[Tensor, " class_"] | None
    """Of every class; None if the network classifies whole graphs."""
    attention: tuple[EdgeWeights, ...]


@torch.no_grad()
def predict_node(model: GraphAttentionNetwork, graph: Graph, node: int) -> NodePrediction:
    """The prediction for one node, from no more of the graph than the node sees."""
    if not 0 <= node < graph.nodes:
        raise ArgumentError(f"there is no node {node}; nodes are 0 to {graph.nodes - 1}")
    depth = model.config.reach + (model.config.degree_exponent > 0)  # the degrees of the farthest nodes: one more hop
    neighbourhood = sample(graph, np.array([node]), (ALL,) * depth, np.random.default_rng(0))
    logits, attention = _run(model, graph, neighbourhood)
    return NodePrediction(neighbourhood, None if logits is None else logits.softmax(-1), attention)


def graph_map(model: GraphAttentionNetwork, graph: Graph, node: int) -> AttentionMap:
    """A node's attention in every layer, and that of its neighbours in all but a last layer of one hop.

    These are the weights that affect its prediction; all others are 0. If a layer has fewer heads than another, the
    average of its heads fills the missing ones, so the average over all heads stays that of its own.
    """
    return map_of_prediction(model, graph, predict_node(model, graph, node))


@torch.no_grad()
def map_of_prediction(model: GraphAttentionNetwork, graph: Graph, prediction: NodePrediction) -> AttentionMap:
    """The same for a prediction that has been made."""
    neighbourhood, probabilities, attention = prediction
    layers, reach = len(model.layers), model.config.reach
    order = _by_weight(neighbourhood, attention[-1])
    targets = [0, *order[: RING if reach > 1 else 0]]
    sources = _sources(neighbourhood, order, targets)
    heads = max(layer().shape[1] for layer in attention)
    weights = torch.zeros(layers, heads, len(targets), len(sources))
    for layer, edge_weights in enumerate(attention):
        rows = targets if layer < layers - 1 or model.layers[-1].hops != 1 else targets[:1]
        weights[layer, :, : len(rows)] = _fill_heads(_matrix(edge_weights, neighbourhood, rows, sources), heads)
    numbers = [int(neighbourhood.nodes[place]) for place in sources]
    names = tuple(graph.name(number) for number in numbers)
    predicted, probability = _prediction(graph, probabilities)
    classes = tuple(_class(graph, number) for number in numbers)
    layout = GraphLayout(tuple(numbers), classes, len(order), predicted, probability)
    return AttentionMap(names, names[: len(targets)], weights, layout=layout, title=layout.title(names[0]))


def _run(
    model: GraphAttentionNetwork, graph: Graph, neighbourhood: Neighbourhood
) -> tuple[Float[Tensor, " class"] | None, tuple[EdgeWeights, ...]]:
    """Logits of the first node, and the attention of every layer over the whole neighbourhood."""
    device = next(model.parameters()).device
    features = None
    if graph.edge_features is not None:
        features = torch.from_numpy(np.array(graph.edge_features[neighbourhood.edges])).to(device)
    pooled = torch.zeros(len(neighbourhood.nodes), dtype=torch.long, device=device) if model.pooling else None
    edges = torch.from_numpy(neighbourhood.edge_index).to(device)
    prediction = model.eval()(node_features(graph.rows(neighbourhood.nodes)).to(device), edges, features, graph=pooled)
    return None if model.pooling else prediction.logits[0].float().cpu(), prediction.attention


def _by_weight(neighbourhood: Neighbourhood, edge_weights: EdgeWeights) -> list[int]:
    """The neighbours of the first node, as indices into the neighbourhood, by falling weight."""
    edges = np.flatnonzero(neighbourhood.edge_index[1] == 0)
    weights = edge_weights()[edges].mean(1).tolist()
    ranked = sorted(zip(neighbourhood.edge_index[0][edges].tolist(), weights, strict=True), key=lambda pair: -pair[1])
    return list(dict.fromkeys(place for place, _ in ranked if place != 0))


def _sources(neighbourhood: Neighbourhood, neighbours: list[int], targets: list[int]) -> list[int]:
    """The node, its neighbours, and the neighbours of those that are targets."""
    further = neighbourhood.edge_index[0][np.isin(neighbourhood.edge_index[1], targets[1:])].tolist()
    return list(dict.fromkeys([0, *neighbours, *further]))


def _matrix(
    edge_weights: EdgeWeights, neighbourhood: Neighbourhood, targets: list[int], sources: list[int]
) -> Float[Tensor, "head target source"]:
    """The weights of edges and self-loops into the targets."""
    row = {place: number for number, place in enumerate(targets)}
    column = {place: number for number, place in enumerate(sources)}
    edges = np.flatnonzero(np.isin(neighbourhood.edge_index[1], targets))
    into = torch.tensor([row[place] for place in neighbourhood.edge_index[1, edges].tolist()], dtype=torch.long)
    of = torch.tensor([column[place] for place in neighbourhood.edge_index[0, edges].tolist()], dtype=torch.long)
    own = torch.tensor([column[place] for place in targets])
    on_edges, on_loops = edge_weights()[edges].float().cpu(), edge_weights.loops()[targets].float().cpu()
    matrix = torch.zeros(len(targets), len(sources), on_edges.shape[1])
    matrix.index_put_((into, of), on_edges, accumulate=True)
    matrix.index_put_((torch.arange(len(targets)), own), on_loops, accumulate=True)
    return matrix.permute(2, 0, 1)


def _fill_heads(weights: Float[Tensor, "own target source"], heads: int) -> Float[Tensor, "head target source"]:
    """The weights, with their average for each missing head."""
    mean = weights.mean(0, keepdim=True)
    return torch.cat([weights, mean.expand(heads - len(weights), *mean.shape[1:])])


def _prediction(graph: Graph, probabilities: Float[Tensor, " class_"] | None) -> tuple[str, float]:
    """The predicted class and its probability."""
    if probabilities is None:
        return "", 0.0
    probability, best = probabilities.max(-1)
    return graph.class_name(int(best)), float(probability)


def _class(graph: Graph, node: int) -> str:
    return graph.class_name(int(graph.labels[node] if graph.graph is None else graph.labels[graph.graph[node]]))
