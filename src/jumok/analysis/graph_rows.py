"""One row of a graph's map: whom a node looked at in one layer, the most first."""

from typing import NamedTuple

from jumok.analysis.attention_map import AttentionMap
from jumok.analysis.nodes import Nodes


class Seen(NamedTuple):
    """A node that was looked at, and how much."""

    place: int
    """Which of the sources it is."""
    name: str
    label: str
    """Its class."""
    weight: float


class Row(NamedTuple):
    """What a node looked at."""

    name: str
    itself: list[Seen]
    """Its look at itself; empty where it has none."""
    others: list[Seen]


def row_of(attention: AttentionMap, target: int = 0, *, layer: int = -1) -> Row:
    """Averaged over heads; of the first node its neighbours are in it even if their weight is 0."""
    nodes = attention.place
    assert isinstance(nodes, Nodes)
    weights = attention.weights[layer, :, target].mean(0).tolist()
    seen = [
        Seen(at, name, label, weight)
        for at, (name, label, weight) in enumerate(zip(attention.source, nodes.classes, weights, strict=True))
        if weight > 0 or (target == 0 < at <= nodes.neighbours)
    ]
    others = sorted((one for one in seen if one.place != target), key=lambda one: -one.weight)
    return Row(attention.target[target], [one for one in seen if one.place == target], others)
