"""Batches for a graph network: the whole graph, or the neighbourhoods of a few nodes, and its predictions for them."""

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.graphs.graph import Graph
from jumok.graphs.network import (
    GraphAttentionNetwork,
    GraphPrediction,
    Hop,
    SortedEdges,
    SparseRows,
    node_features,
)
from jumok.graphs.sampling import ALL, SamplingConfig, sample
from jumok.progress import Watch, unwatched


class GraphBatch(NamedTuple):
    """A graph or a neighbourhood in it, and which of its items to say the class of."""

    x: Float[Tensor, "node feature"] | SparseRows
    edge_index: Int[Tensor, "2 edge"] | SortedEdges
    items: Int[Tensor, " item"]
    """Rows of the network's output."""
    labels: Int[Tensor, " item"]
    edge_features: Float[Tensor, "edge edge_width"] | None = None
    hops: tuple[Hop, ...] = ()
    graph: Int[Tensor, " node"] | None = None
    graphs: int | None = None

    def to(self, device: torch.device | str) -> "GraphBatch":
        """The same on another device."""
        moved: dict[str, Any] = {
            name: part.to(device)
            for name, part in self._asdict().items()
            if isinstance(part, Tensor | SparseRows | SortedEdges)
        }
        return self._replace(**moved)


class GraphBatches:
    """Batches of some items of a graph: the whole graph every time, or neighbourhoods of a few items each."""

    def __init__(
        self,
        graph: Graph,
        items: Int[np.ndarray, " item"],
        sampling: SamplingConfig,
        *,
        layers: int,
        seed: int = 1,
        training: bool = True,
        device: torch.device | str = "cpu",
    ) -> None:
        self.graph, self.items, self.sampling, self.seed, self.training = graph, items, sampling, seed, training
        self.fanout = _fanout(sampling, layers, training=training)
        self._whole = None if self.fanout else _sorted(whole_graph(graph, items).to(device))

    def steps(self, epoch: int) -> int:
        """How many batches the epoch has."""
        return -(-len(self.items) // self.sampling.batch) if self.fanout else int(len(self.items) > 0)

    def batch(self, epoch: int, step: int) -> GraphBatch:
        """The batch of one step; its draws depend on (seed, epoch, step) alone."""
        if self._whole is not None:
            return self._whole
        order = self.items
        if self.training:
            order = np.random.default_rng([self.seed, epoch]).permutation(self.items)
        asked = np.asarray(order[step * self.sampling.batch : (step + 1) * self.sampling.batch])
        draws = np.random.default_rng([self.seed, epoch, step])
        return neighbourhood_batch(self.graph, asked, self.fanout, draws)


def predict(model: GraphAttentionNetwork, batch: GraphBatch) -> GraphPrediction:
    """What the network says of a batch on its device."""
    prediction: GraphPrediction = model(
        batch.x, batch.edge_index, batch.edge_features, hops=batch.hops, graph=batch.graph, graphs=batch.graphs
    )
    return prediction


@torch.no_grad()
def predictions(
    model: GraphAttentionNetwork, batches: GraphBatches, watch: Watch = unwatched
) -> Float[Tensor, "item class_"]:
    """The logits of all items of some batches, in their order; `watch` sees every step go by."""
    device = next(model.parameters()).device
    steps = batches.steps(0)
    logits = [batch_logits(model, batches, step) for step in watch(range(steps), "classifying", steps)]
    return torch.cat(logits) if logits else torch.zeros(0, model.classes, device=device)


def batch_logits(model: GraphAttentionNetwork, batches: GraphBatches, step: int) -> Float[Tensor, "item class_"]:
    """The logits of the items of one batch."""
    batch = batches.batch(0, step).to(next(model.parameters()).device)
    return predict(model, batch).logits[batch.items].float()


def whole_graph(graph: Graph, items: Int[np.ndarray, " item"]) -> GraphBatch:
    """All nodes and edges."""
    target = np.repeat(np.arange(graph.nodes), np.diff(graph.starts))
    return GraphBatch(
        node_features(graph.rows(np.arange(graph.nodes))),
        _tensor(np.stack([np.asarray(graph.sources), target])),
        _tensor(items),
        _tensor(graph.labels[items]),
        None if graph.edge_features is None else _tensor(graph.edge_features),
        (),
        None if graph.graph is None else _tensor(graph.graph),
        None if graph.graph is None else len(graph.labels),
    )


def _sorted(whole: GraphBatch) -> GraphBatch:
    """With its edges sorted, once for all steps and layers."""
    assert isinstance(whole.edge_index, Tensor)
    return whole._replace(edge_index=SortedEdges.of(whole.edge_index, whole.x.shape[0]))


def neighbourhood_batch(
    graph: Graph, asked: Int[np.ndarray, " asked"], fanout: tuple[int, ...], draws: np.random.Generator
) -> GraphBatch:
    """What some nodes see; every layer gets as much of it as the next one needs."""
    neighbourhood = sample(graph, asked, fanout, draws)
    layers = len(fanout)
    # Layer l of L is needed at the nodes within L - l steps, and looks along the edges into those within L - l - 1.
    hops = tuple(
        Hop(neighbourhood.reach[layers - number][0], neighbourhood.reach[layers - number][1])
        for number in range(layers)
    )
    features = None if graph.edge_features is None else _tensor(graph.edge_features[neighbourhood.edges])
    return GraphBatch(
        node_features(graph.rows(neighbourhood.nodes)),
        _tensor(neighbourhood.edge_index),
        torch.arange(len(asked)),
        _tensor(graph.labels[asked]),
        features,
        hops,
    )


def _fanout(sampling: SamplingConfig, layers: int, *, training: bool) -> tuple[int, ...]:
    if not sampling.fanout:
        return ()
    return sampling.fanout if training else sampling.evaluation_fanout or (ALL,) * layers


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(array))  # a copy: files are opened read-only
