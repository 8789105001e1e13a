"""A whole training run on a graph: from a recipe to a trained model folder, and its accuracy on the test nodes."""

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from jumok.cli.output import progress
from jumok.errors import ArgumentError, ConfigError, DataError, TrainingError
from jumok.graphs.graph import Graph
from jumok.graphs.network import GraphAttentionNetwork, GraphPrediction, Hop, SortedEdges, SparseRows, node_features
from jumok.graphs.sampling import ALL, SamplingConfig, sample
from jumok.graphs.store import prepare_graph, why_outdated
from jumok.models.memory_check import check_memory
from jumok.sealed_folder import is_whole
from jumok.tasks.graph_model import (
    GraphRecipe,
    TrainedGraph,
    describe_graph_model,
    load_graph_model,
    network_for,
    new_network,
    publish_graph_model,
)
from jumok.tasks.run import begin_run
from jumok.tasks.translator import find_device
from jumok.training.config import TrainingConfig
from jumok.training.loop import train
from jumok.training.loss import Loss, smoothed_cross_entropy
from jumok.training.progress import Report, score_value
from jumok.training.state import TrainingState


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


class GraphTask:
    """Cross-entropy of the classes, and the network's own penalty."""

    unit = "node"

    def items(self, batch: GraphBatch) -> int:
        """Labelled nodes or graphs."""
        return len(batch.items)

    def loss(self, model: nn.Module, batch: GraphBatch, device: torch.device, config: TrainingConfig) -> Loss:
        """Summed over the items, the penalty counted once for each of them."""
        assert isinstance(model, GraphAttentionNetwork)
        batch = batch.to(device)
        logits = predict(model, batch).logits[batch.items]
        loss = smoothed_cross_entropy(logits, batch.labels, smoothing=config.label_smoothing)
        if not model.config.l2:
            return loss
        return loss._replace(total=loss.total + len(batch.items) * model.penalty())

    def size(self, batch: GraphBatch) -> str:
        """In nodes and edges."""
        edges = batch.edge_index if isinstance(batch.edge_index, Tensor) else batch.edge_index.edge_index
        return f"{batch.x.shape[0]} nodes, {edges.shape[1]} edges"

    def halves(self, batch: GraphBatch) -> list[GraphBatch]:
        """A graph has no halves."""
        raise TrainingError(
            f"out of memory with {self.size(batch)}; draw neighbours, for example "
            "sampling.fanout = [10, 10], or fewer of them, or set a smaller sampling.batch"
        )


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


@torch.no_grad()
def held_out_scores(model: GraphAttentionNetwork, batches: GraphBatches) -> dict[str, float]:
    """Loss and accuracy in percent: what a validator gives back."""
    logits = predictions(model, batches)
    labels = torch.from_numpy(np.asarray(batches.graph.labels[batches.items])).to(logits.device)
    right = (logits.argmax(-1) == labels).double().mean()
    loss, accuracy = torch.stack([F.cross_entropy(logits, labels).double(), 100 * right]).tolist()
    return {"loss": loss, "accuracy": accuracy}


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


class GraphRun(NamedTuple):
    """What a run gave."""

    trained: TrainedGraph
    graph: Graph
    stopped: str
    scores: dict[str, float]
    """Of the best validation, and the accuracy on the test items where there are any."""


def run_graph_recipe(
    recipe: GraphRecipe,
    folder: str | Path,
    *,
    resume: bool = False,
    device: str = "auto",
    report: Report | None = None,
    graph: Graph | None = None,
) -> GraphRun:
    """Put the graph in order, unless it is given, train on it, and write the model folder."""
    begun = begin_run(recipe, folder, resume=resume, device=device, report=report)
    if begun.goes_on and graph is None and (why := why_outdated(begun.folder / "data", recipe.graph)):
        raise ConfigError(why)  # before its graph is made anew
    graph = graph or prepare_graph(begun.folder / "data", recipe.graph, say=begun.report.say)
    begun.report.say(str(graph))
    check_memory(lambda network: network_for(network, graph), recipe.network, device=begun.device)
    model = new_network(recipe, graph).to(begun.device)
    trained = TrainedGraph(model, recipe)
    held_out = batches_of(recipe, graph, graph.valid, device=begun.device)

    def publish(weights: Path, state: TrainingState) -> None:
        publish_graph_model(begun.folder, trained, graph, weights, scores=_shown(_scores(state)))

    result = train(
        model,
        GraphBatches(
            graph,
            graph.train,
            recipe.sampling,
            layers=recipe.network.layers,
            seed=recipe.training.seed,
            device=begun.device,
        ),
        recipe.training,
        folder=begun.folder,
        validate=(lambda found: held_out_scores(found, held_out)) if len(graph.valid) else None,  # type: ignore[arg-type]
        report=begun.report,
        resume=resume,
        data=graph.fingerprint,
        settings=begun.settings,
        task=GraphTask(),
        publish=publish,
        is_published=is_whole,
    )
    scores = _scores(result.state)
    if len(graph.test):
        scores["test accuracy"] = accuracy_on_test(trained, graph).value
        describe_graph_model(begun.folder, trained, graph, _shown(scores))
    return GraphRun(trained, graph, result.stopped, scores)


def _scores(state: TrainingState) -> dict[str, float]:
    """Of the best validation."""
    return {f"validation {name}": value for name, value in (state.best_scores or {}).items()}


def _shown(scores: dict[str, float]) -> dict[str, str]:
    return {name: score_value(name, value) for name, value in scores.items()}


def batches_of(
    recipe: GraphRecipe, graph: Graph, items: np.ndarray, *, device: torch.device | str = "cpu"
) -> GraphBatches:
    """Some items, to be looked at rather than learnt from."""
    return GraphBatches(graph, items, recipe.sampling, layers=recipe.network.layers, training=False, device=device)


def accuracy_on_test(trained: TrainedGraph, graph: Graph) -> Accuracy:
    """How many test items get their right class."""
    return accuracy(classes_of(trained.model, trained.recipe, graph, graph.test), np.asarray(graph.labels[graph.test]))


def classes_of(model: GraphAttentionNetwork, recipe: GraphRecipe, graph: Graph, items: np.ndarray) -> np.ndarray:
    """The class found for each of some items."""
    device = next(model.parameters()).device
    batches = batches_of(recipe, graph, items, device=device)
    logits = predictions(model, batches, watch=lambda steps: progress(steps, "classifying", "batches", len(steps)))
    found: np.ndarray = logits.argmax(-1).cpu().numpy()
    return found


def evaluate_graph(folder: str | Path, *, device: str = "auto", save: Path | None = None) -> dict[str, Any]:
    """The accuracy of a model folder on its test items; `save` gets the class found for every item, one a line."""
    from jumok.files import atomic_write

    trained, graph = load_graph_model(folder, find_device(device))
    if not len(graph.test):
        raise DataError(
            f"the graph of {folder} has no test {graph.classified}; set graph.shares, or a test mask in the data"
        )
    found = accuracy_on_test(trained, graph)
    if save is not None:
        classes = classes_of(trained.model, trained.recipe, graph, np.arange(len(graph.labels)))
        with atomic_write(save) as file:
            file.write("".join(f"{graph.class_name(int(one))}\n" for one in classes).encode())
    return {"accuracy": found.value, "low": found.low, "high": found.high, "items": found.items}
