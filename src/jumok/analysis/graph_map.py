"""Whom a node looks at: the weights of its edges, and those of its neighbours one layer below."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from jumok.data.graphs import Graph
from jumok.data.neighbours import ALL, sample
from jumok.errors import ArgumentError
from jumok.models.gat import GraphAttentionNetwork, node_features


class Seen(NamedTuple):
    """A node that was looked at, and how much: on average, and by each head."""

    node: int
    name: str
    label: str
    """Its class; "?" where it is not known."""
    weight: float
    heads: tuple[float, ...]


@dataclass(frozen=True)
class GraphMap:
    """What one node looked at, the most first; its own loop among it."""

    node: int
    name: str
    label: str
    """Its true class; "?" where it is not known."""
    found: str
    """The class the model says; "" where it classifies whole graphs."""
    probability: float
    layer: int
    layers: int
    seen: tuple[Seen, ...]
    below: dict[int, tuple[Seen, ...]]
    """What each of the nodes seen looked at in the layer before; empty for the first layer."""

    def title(self) -> str:
        """The node, its class and what the model says of it, in one line."""
        said = f", found to be {self.found} ({self.probability:.0%})" if self.found else ""
        return f"node {self.name}: class {self.label}{said}"

    def as_plain(self) -> dict[str, Any]:
        """Numbers, texts, lists and dicts only."""
        return {
            "node": self.node,
            "name": self.name,
            "class": self.label,
            "found": self.found,
            "probability": round(self.probability, 6),
            "layer": self.layer,
            "layers": self.layers,
            "attention": [_plain(one) for one in self.seen],
            "below": {str(node): [_plain(one) for one in seen] for node, seen in self.below.items()},
        }

    def save(self, path: str | Path) -> Path:
        """Write it to a file; the ending of the name says how: .svg .png .pdf .html .json."""
        from jumok.analysis.saving import save_as

        return save_as(path, self._content)

    def _content(self, kind: str) -> bytes:
        if kind == "json":
            return (json.dumps(self.as_plain(), ensure_ascii=False) + "\n").encode(errors="replace")
        if kind == "html":
            from jumok.analysis.graph_page import graph_page

            return graph_page(self).encode(errors="replace")
        if kind == "svg":
            from jumok.analysis.graph_svg import graph_svg

            return graph_svg(self).encode(errors="replace")
        from jumok.analysis.graph_picture import graph_picture

        return graph_picture(self, kind)


@torch.no_grad()
def graph_map(
    model: GraphAttentionNetwork,
    graph: Graph,
    node: int,
    *,
    layer: int | None = None,
    heads: Sequence[int] | None = None,
) -> GraphMap:
    """Where a node looked in a layer, counted from 0, the last unless told; averaged over all heads or some."""
    layers = len(model.layers)
    at = _checked(node, layer, graph.nodes, layers)
    found = sample(graph, np.array([node]), (ALL,) * layers, np.random.default_rng(0))
    logits, attention = _looked(model, graph, found.nodes, found.edge_index, found.edges)
    sources, targets = found.edge_index

    def seen_from(place: int, layer: int) -> tuple[Seen, ...]:
        weights = attention[layer]
        chosen = list(heads) if heads and layer == at else None
        edges = np.flatnonzero(targets == place)
        on_edges, on_loop = weights(heads=chosen)[edges].cpu(), weights.loops(heads=chosen)[place].cpu()
        rows = [(int(found.nodes[sources[edge]]), row) for edge, row in zip(edges, on_edges, strict=True)]
        if bool((on_loop > 0).any()):
            rows.append((int(found.nodes[place]), on_loop))
        return tuple(sorted((_seen(graph, one, row) for one, row in rows), key=lambda one: -one.weight))

    seen = seen_from(0, at)
    place = {int(one): number for number, one in enumerate(found.nodes)}
    below = {one.node: seen_from(place[one.node], at - 1) for one in seen} if at else {}
    probability, best = (float(part) for part in logits.softmax(-1).max(-1)) if logits is not None else (0.0, -1)
    label = int(graph.labels[node]) if graph.graph is None else int(graph.labels[graph.graph[node]])
    said = graph.class_name(int(best)) if logits is not None else ""
    return GraphMap(node, graph.name(node), graph.class_name(label), said, probability, at, layers, seen, below)


def find_node(graph: Graph, name: str) -> int:
    """The number of a node by its name, or by its number where nodes have no names."""
    if graph.names:
        if name in graph.names:
            return list(graph.names).index(name)
        raise ArgumentError(f"there is no node {name!r}; nodes are called {', '.join(map(repr, graph.names[:3]))} …")
    if not name.isdigit() or int(name) >= graph.nodes:
        raise ArgumentError(f"there is no node {name}; nodes are 0 to {graph.nodes - 1}")
    return int(name)


def _looked(
    model: GraphAttentionNetwork, graph: Graph, nodes: np.ndarray, edge_index: np.ndarray, edges: np.ndarray
) -> tuple[Tensor | None, tuple[Any, ...]]:
    """What is said of the first node, and the attention of every layer; all in the neighbourhood, nothing cut."""
    device = next(model.parameters()).device
    features = None
    if graph.edge_features is not None:
        features = torch.from_numpy(np.array(graph.edge_features[edges])).to(device)
    pooled = torch.zeros(len(nodes), dtype=torch.long, device=device) if model.pooling else None
    found = model.eval()(
        node_features(graph.rows(nodes)).to(device), torch.from_numpy(edge_index).to(device), features, graph=pooled
    )
    return None if model.pooling else found.logits[0].float().cpu(), found.attention


def _checked(node: int, layer: int | None, nodes: int, layers: int) -> int:
    if not 0 <= node < nodes:
        raise ArgumentError(f"there is no node {node}; nodes are 0 to {nodes - 1}")
    at = layers - 1 if layer is None else layer
    if not 0 <= at < layers:
        raise ArgumentError(f"there is no layer {layer}; layers are 0 to {layers - 1}")
    return at


def _seen(graph: Graph, node: int, weights: Tensor) -> Seen:
    label = int(graph.labels[node]) if graph.graph is None else int(graph.labels[graph.graph[node]])
    heads = tuple(weights.float().tolist())
    return Seen(node, graph.name(node), graph.class_name(label), sum(heads) / len(heads), heads)


def _plain(seen: Seen) -> dict[str, Any]:
    return {
        "node": seen.node,
        "name": seen.name,
        "class": seen.label,
        "weight": round(seen.weight, 6),
        "heads": [round(weight, 6) for weight in seen.heads],
    }
