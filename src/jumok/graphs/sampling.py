"""Neighbour sampling: the part of a graph that a few nodes see in a number of layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Int

from jumok.errors import ConfigError
from jumok.graphs.graph import Graph
from jumok.settings import OnlyWith, PositiveInt, Settings

ALL = -1
"""Stands for all neighbours in a fanout."""


@dataclass(frozen=True, kw_only=True)
class SamplingConfig(Settings):
    """How much of the graph goes into one step; by default all of it."""

    section: ClassVar[str] = "sampling"

    fanout: tuple[int, ...] = ()
    """Neighbours to sample per node, one number per layer, the last layer first; -1 takes all, [] the whole graph."""
    batch: Annotated[PositiveInt, OnlyWith("fanout")] = 512
    """Nodes per training step when neighbours are sampled."""
    evaluation_fanout: Annotated[tuple[int, ...], OnlyWith("fanout")] = ()
    """The same for validation and prediction; [] takes all neighbours."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("fanout", "evaluation_fanout"):
            if any(number < 1 and number != ALL for number in getattr(self, name)):
                raise ConfigError(f"{self.shown(name)} must be numbers above 0, or -1 for all neighbours")


class Neighbourhood(NamedTuple):
    """Part of a graph: `nodes` are numbers in it, those asked for first; edges are between places in `nodes`."""

    nodes: Int[np.ndarray, " node"]
    edge_index: Int[np.ndarray, "2 edge"]
    edges: Int[np.ndarray, " edge"]
    """The number of each edge in the graph."""
    reach: tuple[tuple[int, int], ...]
    """How many of the first nodes and edges the nodes asked for see in 0, 1, 2 ... steps."""


def sample(
    graph: Graph, asked: Int[np.ndarray, " asked"], fanout: Sequence[int], draws: np.random.Generator
) -> Neighbourhood:
    """Sample the neighbourhood of the nodes `asked`, in one step for each number of `fanout`."""
    place = {int(node): number for number, node in enumerate(asked)}
    nodes, reach = [np.asarray(asked, np.int64)], [(len(asked), 0)]
    columns: list[np.ndarray] = []
    numbers: list[np.ndarray] = []
    frontier, first = np.asarray(asked, np.int64), 0
    for count in fanout:
        edges, row = _edges_into(graph, frontier, count, draws)
        sources = np.asarray(graph.sources[edges], np.int64)
        new = [int(node) for node in dict.fromkeys(sources.tolist()) if int(node) not in place]
        place |= {node: number for number, node in enumerate(new, start=len(place))}
        places = np.fromiter((place[node] for node in sources.tolist()), np.int64, len(sources))
        columns.append(np.stack([places, row + first]))
        numbers.append(edges)
        first += len(frontier)
        frontier = np.array(new, np.int64)
        nodes.append(frontier)
        reach.append((len(place), reach[-1][1] + len(edges)))
    return Neighbourhood(np.concatenate(nodes), np.concatenate(columns, 1), np.concatenate(numbers), tuple(reach))


def _edges_into(
    graph: Graph, nodes: np.ndarray, count: int, draws: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of at most `count` edges into every node, and which node each belongs to."""
    starts = np.asarray(graph.starts[nodes])
    degrees = np.asarray(graph.starts[nodes + 1]) - starts
    row = np.repeat(np.arange(len(nodes)), degrees)
    within = np.arange(len(row)) - np.repeat(degrees.cumsum() - degrees, degrees)
    edges = starts[row] + within
    if count == ALL or not len(row) or degrees.max() <= count:
        return edges, row
    order = np.lexsort((draws.random(len(row)), row))  # the edges of each node, shuffled
    kept = np.sort(order[within < count])
    return edges[kept], row[kept]
