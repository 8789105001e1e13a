"""A trained node classifier: the classes of nodes or whole graphs, their accuracy, and which neighbours counted."""

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.analysis.maps.attention_map import AttentionMap
from jumok.errors import ArgumentError, ConfigError, DataError
from jumok.graphs.graph import Graph
from jumok.graphs.map import find_node, graph_map
from jumok.graphs.network import GraphAttentionNetwork, GraphPrediction, Hop, SortedEdges, SparseRows, node_features
from jumok.graphs.sampling import ALL, SamplingConfig, sample
from jumok.screen import progress

if TYPE_CHECKING:
    from jumok.tasks.node_classification import TrainedGraph


class NodeClassifier:
    """Classifies the nodes of the graph that a model was trained on, or its graphs if it was trained on several."""

    def __init__(self, trained: "TrainedGraph") -> None:
        self.trained = trained
        self.trained.model.eval()

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "auto") -> "NodeClassifier":
        """Load a model folder, onto a GPU if there is one; its graph is the copy there, or is made from its source."""
        from jumok.tasks import NODE_CLASSIFICATION, load  # which use this class

        classifier: NodeClassifier = load(folder, device=device, task=NODE_CLASSIFICATION)
        return classifier

    @property
    def graph(self) -> Graph:
        """The graph with all its nodes."""
        return self.trained.graph

    def classify(self, items: Int[np.ndarray, " item"] | None = None) -> Int[np.ndarray, " item"]:
        """The class number of each of these nodes or graphs, given by their numbers; defaults to all."""
        model, recipe, graph = self.trained
        items = np.arange(len(graph.labels)) if items is None else items
        device = next(model.parameters()).device
        batches = GraphBatches(
            graph, items, recipe.sampling, layers=recipe.network.layers, training=False, device=device
        )
        logits = predictions(model, batches, watch=lambda steps: progress(steps, "classifying", "batches", len(steps)))
        classes: np.ndarray = logits.argmax(-1).cpu().numpy()
        return classes

    def accuracy(self) -> "Accuracy":
        """The accuracy on the test nodes or graphs."""
        graph = self.graph
        if not len(graph.test):
            raise DataError(f"the graph has no test {graph.classified}; set graph.shares, or a test mask in the data")
        return accuracy(self.classify(np.asarray(graph.test)), np.asarray(graph.labels[graph.test]))

    def attention(self, node: int | str) -> AttentionMap:
        """The attention of a node, given by its number or name, and of its neighbours."""
        return graph_map(self.trained.model, self.graph, find_node(self.graph, str(node)))


class Accuracy(NamedTuple):
    """In percent, with a 95% interval (Wilson 1927)."""

    value: float
    low: float
    high: float
    items: int


def accuracy(found: Int[np.ndarray, " item"], wanted: Int[np.ndarray, " item"]) -> Accuracy:
    """The share of items whose class was found.

    >>> accuracy(np.array([0, 1, 1, 2]), np.array([0, 1, 2, 2])).value
    75.0
    """
    if not len(wanted):
        raise ArgumentError("there is no accuracy of no items")
    count, share, z = len(wanted), float((found == wanted).mean()), 1.96
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    reach = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return Accuracy(100 * share, 100 * max(middle - reach, 0.0), 100 * min(middle + reach, 1.0), count)


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

    def pinned(self) -> "GraphBatch":
        """As it is: a whole graph is on its device already."""
        return self


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
        if self.fanout and graph.graph is not None:
            raise ConfigError("sampling.fanout is for nodes; where graphs are classified, leave it []")
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
    found: GraphPrediction = model(
        batch.x, batch.edge_index, batch.edge_features, hops=batch.hops, graph=batch.graph, graphs=batch.graphs
    )
    return found


@torch.no_grad()
def predictions(
    model: GraphAttentionNetwork, batches: GraphBatches, watch: Callable[[range], Iterable[int]] = iter
) -> Float[Tensor, "item class_"]:
    """The logits of all items of some batches, in their order; `watch` sees every step go by."""
    device = next(model.parameters()).device
    found = []
    for step in watch(range(batches.steps(0))):
        batch = batches.batch(0, step).to(device)
        found.append(predict(model, batch).logits[batch.items].float())
    return torch.cat(found) if found else torch.zeros(0, model.classes, device=device)


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
    """On a GPU with its edges sorted, once for all steps and layers."""
    if not isinstance(whole.edge_index, Tensor) or not whole.edge_index.is_cuda:
        return whole
    return whole._replace(edge_index=SortedEdges.of(whole.edge_index, whole.x.shape[0]))


def neighbourhood_batch(
    graph: Graph, asked: Int[np.ndarray, " asked"], fanout: tuple[int, ...], draws: np.random.Generator
) -> GraphBatch:
    """What some nodes see; every layer gets as much of it as the next one needs."""
    found = sample(graph, asked, fanout, draws)
    layers = len(fanout)
    # Layer l of L is needed at the nodes within L - l steps, and looks along the edges into those within L - l - 1.
    hops = tuple(Hop(found.reach[layers - number][0], found.reach[layers - number][1]) for number in range(layers))
    features = None if graph.edge_features is None else _tensor(graph.edge_features[found.edges])
    return GraphBatch(
        node_features(graph.rows(found.nodes)),
        _tensor(found.edge_index),
        torch.arange(len(asked)),
        _tensor(graph.labels[asked]),
        features,
        hops,
    )


def _fanout(sampling: SamplingConfig, layers: int, *, training: bool) -> tuple[int, ...]:
    if not sampling.fanout:
        return ()
    fanout = sampling.fanout if training else sampling.evaluation_fanout or (ALL,) * layers
    if len(fanout) != layers:
        name = "fanout" if training else "evaluation_fanout"
        raise ConfigError(
            f"sampling.{name} = {list(fanout)} has {len(fanout)} numbers, but network.layers = {layers}; "
            "wanted one a layer"
        )
    return fanout


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(array))  # a copy: files are opened read-only
