"""A graph with a known answer: the label of a node is the colour of the one neighbour that holds what it looks for.

Every node holds one of some symbols, looks for one, and has a colour; all three are in its features. Exactly one of its
neighbours holds what it looks for, and that neighbour's colour is its label. Which neighbour matters depends on who is
looking, so GATv2 can learn it and GAT, which ranks neighbours alike for all, cannot (Brody et al. 2022).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jumok.data.graphs import RawGraph

SYMBOLS, COLOURS = 6, 4
NAMES = ("red", "green", "blue", "white")
FEWEST, MOST = 4, 8
"""Neighbours of a node."""


class Planted(NamedTuple):
    """The graph, and for every node the neighbour it has to look at."""

    graph: RawGraph
    answer: Int[np.ndarray, " node"]


def planted_graph(nodes: int, *, seed: int = 1) -> Planted:
    """Edges point from the neighbour to the node that looks; train on them with graph.undirected = false."""
    draws = np.random.default_rng([seed, nodes])
    holds = draws.permutation(np.arange(nodes) % SYMBOLS)  # every symbol is held by someone
    seeks, colour = draws.integers(SYMBOLS, size=nodes), draws.integers(COLOURS, size=nodes)
    answer = np.empty(nodes, np.int64)
    edges = []
    for node in range(nodes):
        right = np.flatnonzero(holds == seeks[node])
        wrong = np.flatnonzero(holds != seeks[node])
        answer[node] = draws.choice(right[right != node])
        others = draws.choice(wrong[wrong != node], draws.integers(FEWEST, MOST + 1) - 1, replace=False)
        around = draws.permutation([answer[node], *others])
        edges.append(np.stack([around, np.full(len(around), node)]))
    features = np.concatenate([np.eye(SYMBOLS)[holds], np.eye(SYMBOLS)[seeks], np.eye(COLOURS)[colour]], axis=1).astype(
        np.float32
    )
    graph = RawGraph(
        edges=np.concatenate(edges, axis=1),
        features=features,
        labels=colour[answer],
        class_names=NAMES,
        origin="the planted graph",
    )
    return Planted(graph, answer)
