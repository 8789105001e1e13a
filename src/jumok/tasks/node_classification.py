"""Node classification: recipes with a section [graph], trained on the labelled nodes of a graph, or on graphs."""

from dataclasses import dataclass
from shlex import quote
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from jumok.data.fingerprint import PREPARED_FILES
from jumok.errors import ConfigError, TrainingError
from jumok.files import check_plain
from jumok.graphs.graph import Graph, GraphConfig
from jumok.graphs.network import GatConfig, GraphAttentionNetwork
from jumok.graphs.sampling import SamplingConfig
from jumok.graphs.store import open_graph, prepare_graph, why_outdated
from jumok.model_folder import ModelFolder
from jumok.screen import to_screen
from jumok.tasks.describe import network_in_words
from jumok.tasks.node_classifier import GraphBatch, GraphBatches, NodeClassifier, predict, predictions
from jumok.tasks.task import RunContext, Task, TaskData, parameters
from jumok.training.config import Schedule, TrainingConfig
from jumok.training.loss import Loss, smoothed_cross_entropy

MOST_FACTS, MOST_ARRAY = 2**28, 2**62
"""Bytes of graph.json, which names the nodes; arrays are mapped, not read."""


@dataclass(frozen=True, kw_only=True)
class GraphTraining(TrainingConfig):
    """Training on a graph: a constant learning rate, without warm-up or label smoothing."""

    schedule: Schedule = "constant"
    """Learning rate schedule after the warm-up: "constant", "inverse_sqrt", "cosine" (to 0 at `steps`) or "noam"."""
    warmup: int = 0
    """Steps over which the learning rate rises linearly from 0 to its peak."""
    label_smoothing: float = 0.0
    """Label smoothing: share of the probability spread over all classes."""
    metric: Literal["loss", "accuracy"] = "loss"
    """The score that finds the best checkpoint: "loss" or "accuracy"; of equal ones, the lower loss."""


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
    """Loss, and accuracy in percent, on held-out items."""
    logits = predictions(model, batches)
    labels = torch.from_numpy(np.asarray(batches.graph.labels[batches.items])).to(logits.device)
    right = (logits.argmax(-1) == labels).double().mean()
    loss, accuracy = torch.stack([F.cross_entropy(logits, labels).double(), 100 * right]).tolist()
    return {"loss": loss, "accuracy": accuracy}


def check_pooling(recipe: GraphRecipe, graph: Graph) -> None:
    """Raise a ConfigError if the network classifies nodes where the labels are of graphs, or the other way round."""
    if graph.graph is not None and not recipe.network.pooling:
        raise ConfigError('the labels are of whole graphs; set network.pooling = "mean", "max" or "sum"')
    if graph.graph is None and recipe.network.pooling:
        raise ConfigError(
            f'network.pooling = "{recipe.network.pooling}", but the labels are of nodes; set it to "", or give the '
            "number of every node's graph in an array `graph`"
        )
