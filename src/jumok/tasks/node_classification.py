"""Node classification: recipes with a section [graph], trained on the labelled nodes of a graph, or on graphs."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from jumok.analysis.maps.attention_map import AttentionMap
from jumok.data.fingerprint import PREPARED_FILES
from jumok.errors import ArgumentError, ConfigError, DataError, TrainingError
from jumok.files import check_plain
from jumok.graphs.graph import Graph, GraphConfig
from jumok.graphs.map import find_node, graph_map
from jumok.graphs.network import (
    GatConfig,
    GraphAttentionNetwork,
    GraphPrediction,
    Hop,
    SortedEdges,
    SparseRows,
    node_features,
)
from jumok.graphs.sampling import ALL, SamplingConfig, sample
from jumok.graphs.store import open_graph, prepare_graph, why_outdated
from jumok.model_folder import ModelFolder
from jumok.progress import progress
from jumok.screen import to_screen
from jumok.settings import Fraction, NonNegativeInt
from jumok.tasks.describe import network_in_words
from jumok.tasks.task import RunContext, Task, TaskData, parameters
from jumok.training.config import Schedule, TrainingConfig
from jumok.training.loss import Loss, smoothed_cross_entropy
from jumok.training.processes import here


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
        logits = predictions(model, batches, watch=lambda steps: progress(steps, "classifying", len(steps)))
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
        raise ArgumentError("accuracy needs at least one item")
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
    found = [_logits(model, batches, step) for step in watch(range(batches.steps(0)))]
    return torch.cat(found) if found else torch.zeros(0, model.classes, device=device)


def _logits(model: GraphAttentionNetwork, batches: GraphBatches, step: int) -> Float[Tensor, "item class_"]:
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


MOST_FACTS, MOST_ARRAY = 2**28, 2**62
"""Bytes of graph.json, which names the nodes; arrays are mapped, not read."""


@dataclass(frozen=True, kw_only=True)
class GraphTraining(TrainingConfig):
    """Training on a graph: a constant learning rate, without warm-up or label smoothing."""

    schedule: Schedule = "constant"
    """Learning rate schedule after the warm-up: "constant", "inverse_sqrt", "cosine" (to 0 at `steps`) or "noam"."""
    warmup: NonNegativeInt = 0
    """Steps over which the learning rate rises linearly from 0 to its peak."""
    label_smoothing: Fraction = 0.0
    """Label smoothing: share of the probability spread over all classes."""
    metric: Literal["loss", "accuracy"] = "loss"
    """Score that selects the best checkpoint: "loss" or "accuracy"; the lower loss decides between equal scores."""


@dataclass(frozen=True, kw_only=True)
class GraphRecipe:
    """Everything that decides the result of a run: the graph, the network, what a step sees, how it is trained."""

    graph: GraphConfig
    network: GatConfig
    sampling: SamplingConfig
    training: GraphTraining


class TrainedGraph(NamedTuple):
    """A network and the graph it was trained on."""

    model: GraphAttentionNetwork
    recipe: GraphRecipe
    graph: Graph


class NodeClassificationTask(Task[GraphRecipe, Graph]):
    """Learns the classes of nodes, or of graphs; its models are used through a `NodeClassifier`."""

    name = "node classification"
    does = "classifies the nodes of a graph"
    recipe = GraphRecipe
    own_sections = frozenset({"graph", "network"})
    model_sections: ClassVar = ("network",)
    trained = TrainedGraph
    unit = "node"
    draws_curve = False  # a picture would take longer than the steps between two validations

    def __init__(self, graph: Graph | None = None) -> None:
        self.graph = graph
        """A graph that is in memory already, to be trained on instead of the recipe's."""

    def check(self, recipe: GraphRecipe, run: RunContext) -> None:
        """A resumed run needs the graph it began with."""
        if run.resumed and self.graph is None and (why := why_outdated(run.data, recipe.graph)):
            raise ConfigError(why)

    def prepare(self, recipe: GraphRecipe, run: RunContext) -> TaskData[GraphRecipe, Graph]:
        """Sort the edges of the graph by their targets, and split its nodes."""
        graph = self.graph or prepare_graph(run.data, recipe.graph, say=run.say)
        run.say(str(graph))
        check_pooling(recipe, graph)
        check_shared(recipe.sampling)
        layers, seed = recipe.network.layers, recipe.training.seed
        held_out = GraphBatches(graph, graph.valid, recipe.sampling, layers=layers, training=False, device=run.device)
        return TaskData(
            recipe=recipe,
            assets=graph,
            train=GraphBatches(graph, graph.train, recipe.sampling, layers=layers, seed=seed, device=run.device),
            held_out=held_out if len(graph.valid) else None,
            fingerprint=graph.fingerprint,
        )

    def build(self, recipe: GraphRecipe, assets: Graph) -> GraphAttentionNetwork:
        """A network that fits the graph."""
        width = assets.edge_width
        return GraphAttentionNetwork(recipe.network, features=assets.width, classes=assets.classes, edge_width=width)

    def items(self, batch: GraphBatch) -> int:
        """Labelled nodes or graphs."""
        return len(batch.items)

    def loss(self, model: nn.Module, batch: GraphBatch, device: torch.device, config: TrainingConfig) -> Loss:
        """Cross-entropy of the classes, summed over the items, and the network's own penalty for each of them."""
        assert isinstance(model, GraphAttentionNetwork)
        batch = batch.to(device)
        logits = predict(model, batch).logits[batch.items]
        loss = smoothed_cross_entropy(logits, batch.labels, smoothing=config.label_smoothing)
        if not model.config.l2:
            return loss
        return loss._replace(total=loss.total + len(batch.items) * model.penalty())

    def size(self, batch: GraphBatch) -> str:
        """In nodes and edges."""
        edges = batch.edge_index if isinstance(batch.edge_index, torch.Tensor) else batch.edge_index.edge_index
        return f"{batch.x.shape[0]} nodes, {edges.shape[1]} edges"

    def halves(self, batch: GraphBatch) -> list[GraphBatch]:
        """A graph has no halves."""
        raise TrainingError(
            f"out of memory with {self.size(batch)}; draw neighbours, for example "
            "sampling.fanout = [10, 10], or fewer of them, or set a smaller sampling.batch"
        )

    def validate(self, trained: TrainedGraph, held_out: GraphBatches) -> dict[str, float]:
        """Loss, and accuracy in percent."""
        return held_out_scores(trained.model, held_out)

    def test(self, predictor: NodeClassifier, run: RunContext) -> dict[str, float]:
        """The accuracy on the test nodes, where there are any."""
        graph = predictor.graph
        if not len(graph.test):
            return {}
        accuracy = predictor.accuracy().value
        run.say(f"accuracy on the test {graph.classified}: {accuracy:.1f}%")
        return {"test accuracy": accuracy}

    def predictor(self, trained: TrainedGraph) -> NodeClassifier:
        """A NodeClassifier."""
        return NodeClassifier(trained)

    def read_assets(self, folder: ModelFolder, recipe: GraphRecipe) -> Graph:
        """The copy of the graph in the folder; where there is none, it is made from its source."""
        data = folder.path / "data"
        for made in (data / name for name in PREPARED_FILES):
            if made.exists() or made.is_symlink():
                check_plain(made, most=MOST_FACTS if made.suffix == ".json" else MOST_ARRAY, within=data)
        graph = open_graph(data) or prepare_graph(data, recipe.graph, say=to_screen)
        check_pooling(recipe, graph)
        return graph

    def describe(self, trained: TrainedGraph) -> dict[str, Any]:
        """The network and its graph."""
        network, graph = trained.recipe.network, trained.graph
        return {
            "does": "classifies whole graphs" if network.pooling else self.does,
            "network": network.kind,
            "in words": {"network": network_in_words(network)},
            "layers": network.layers,
            "parameters": parameters(trained.model),
            "features": graph.width,
            "classes": graph.classes,
            "trained on": trained.recipe.graph.origin,
            "the graph": str(graph),
        }

    def commands(self, folder: str, trained: TrainedGraph | None = None) -> tuple[str, ...]:
        """`jumok evaluate` and `jumok look`."""
        node = "0" if trained is None else quote(trained.graph.name(0))
        return f"jumok evaluate {folder}", f"jumok look {folder} --node {node}"

    def difference(self, one: TrainedGraph, other: TrainedGraph) -> str:
        """The networks must have seen the same graph."""
        return "" if one.recipe.graph == other.recipe.graph else "was trained on another graph than"


@torch.no_grad()
def held_out_scores(model: GraphAttentionNetwork, batches: GraphBatches) -> dict[str, float]:
    """Loss, and accuracy in percent, on held-out items, which processes share."""
    parts = here().map(lambda steps: [_logits(model, batches, step).cpu() for step in steps], range(batches.steps(0)))
    logits = torch.cat(parts).to(next(model.parameters()).device)
    labels = torch.from_numpy(np.asarray(batches.graph.labels[batches.items])).to(logits.device)
    right = (logits.argmax(-1) == labels).double().mean()
    loss, accuracy = torch.stack([F.cross_entropy(logits, labels).double(), 100 * right]).tolist()
    return {"loss": loss, "accuracy": accuracy}


def check_shared(sampling: SamplingConfig) -> None:
    """Raise a ConfigError if several processes are to train on a whole graph, of which there is one batch."""
    if here().world > 1 and not sampling.fanout:
        raise ConfigError(
            f"without sampling.fanout every step sees the whole graph, which {here().world} processes cannot share; "
            "train with one process, or draw neighbours, for example sampling.fanout = [10, 10]"
        )


def check_pooling(recipe: GraphRecipe, graph: Graph) -> None:
    """Raise a ConfigError if the network classifies nodes where the labels are of graphs, or the other way round."""
    if graph.graph is not None and not recipe.network.pooling:
        raise ConfigError('the labels are of whole graphs; set network.pooling = "mean", "max" or "sum"')
    if graph.graph is None and recipe.network.pooling:
        raise ConfigError(
            f'network.pooling = "{recipe.network.pooling}", but the labels are of nodes; set it to "", or give the '
            "number of every node's graph in an array `graph`"
        )
