"""Small graphs for tests."""

from pathlib import Path

import numpy as np

from jumok.graphs.graph import Graph, GraphConfig, RawGraph
from jumok.graphs.store import write_graph

CONFIG = GraphConfig(path="unused")


def raw_graph(nodes: int = 40, edges: int = 120, classes: int = 3, seed: int = 0, **changes) -> RawGraph:
    """Random edges; features that say the class, but for noise."""
    draws = np.random.default_rng(seed)
    labels = draws.integers(classes, size=nodes)
    parts = {
        "edges": draws.integers(nodes, size=(2, edges)),
        "features": (np.eye(classes)[labels] + 0.5 * draws.normal(size=(nodes, classes))).astype(np.float32),
        "labels": labels,
    }
    return RawGraph(**{**parts, **changes})


def stored(folder: Path, config: GraphConfig = CONFIG, **settings) -> Graph:
    """The same graph, in order."""
    return write_graph(folder / "graph", raw_graph(**settings), config)
