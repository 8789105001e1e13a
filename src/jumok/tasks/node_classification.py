"""Node classification: recipes with a section [graph], trained on the labelled nodes of a graph, or on graphs."""

import math
from collections.abc import Sequence
from pathlib import Path
from shlex import quote
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from jumok.analysis.maps.attention_map import AttentionMap, resolve_index
from jumok.analysis.maps.graph_map import NodePrediction, graph_map, map_of_prediction, predict_node
from jumok.data.fingerprint import PREPARED_FILES
from jumok.errors import ArgumentError, ConfigError, DataError, TrainingError
from jumok.files import check_plain
from jumok.graphs.batches import GraphBatch, GraphBatches, batch_logits, predict, predictions
from jumok.graphs.edge_supervision import edge_loss, sample_pairs
from jumok.graphs.graph import UNLABELLED, Graph, find_node
from jumok.graphs.network import GraphAttentionNetwork, GraphPrediction
from jumok.graphs.sampling import SamplingConfig
from jumok.graphs.store import open_graph, prepare_graph
from jumok.model_folder import ModelFolder
from jumok.progress import Watch, progress, unwatched
from jumok.screen import to_screen
from jumok.tasks.describe import network_in_words
from jumok.tasks.map_source import MapSource
from jumok.tasks.recipes import GraphRecipe, GraphTraining
from jumok.tasks.results import (
    Classification,
    EvaluationOptions,
    EvaluationResult,
    MapOptions,
    MappedOutput,
    Table,
    write_outputs,
)
from jumok.tasks.task import RunContext, Task, TaskData, parameters
from jumok.training.loss import Loss, smoothed_cross_entropy
from jumok.training.processes import current_processes


class TrainedGraph(NamedTuple):
    """A network and the graph it was trained on."""

    model: GraphAttentionNetwork
    recipe: GraphRecipe
    graph: Graph

    @property
    def assets(self) -> Graph:
        """The graph."""
        return self.graph


class NodeClassifier:
    """Classifies the nodes of the graph that a model was trained on, or its graphs if it was trained on several."""

    def __init__(self, trained: TrainedGraph) -> None:
        self.trained = trained
        self.trained.model.eval()

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
        logits = predictions(model, batches, watch=progress)
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

    def classification(self, node: int, prediction: NodePrediction) -> Classification | None:
        """The classes of a node by their probability; None if the model classifies whole graphs."""
        graph = self.graph
        if prediction.probabilities is None:
            return None
        probabilities, classes = prediction.probabilities.sort(descending=True, stable=True)
        names, label = map(graph.class_name, classes.tolist()), int(graph.labels[node])
        by_name = dict(zip(names, probabilities.tolist(), strict=True))
        return Classification(by_name, None if label == UNLABELLED else graph.class_name(label))


class Accuracy(NamedTuple):
    """In percent, with a 95% interval (Wilson 1927)."""

    value: float
    low: float
    high: float
    items: int


def accuracy(predicted: Int[np.ndarray, " item"], labels: Int[np.ndarray, " item"]) -> Accuracy:
    """The share of items whose predicted class is right.

    >>> accuracy(np.array([0, 1, 1, 2]), np.array([0, 1, 2, 2])).value
    75.0
    """
    if not len(labels):
        raise ArgumentError("accuracy needs at least one item")
    count, share, z = len(labels), float((predicted == labels).mean()), 1.96
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    reach = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return Accuracy(100 * share, 100 * max(middle - reach, 0.0), 100 * min(middle + reach, 1.0), count)


MOST_TRIED = 1000
"""Nodes among which examples are looked for."""
MOST_FACTS, MOST_ARRAY = 2**28, 2**62
"""Bytes of graph.json, which names the nodes; arrays are mapped, not read."""


class NodeClassificationTask(Task[GraphRecipe, Graph, TrainedGraph, NodeClassifier]):
    """Learns the classes of nodes, or of graphs; its models are used through a `NodeClassifier`."""

    name = "node classification"
    does = "classifies the nodes of a graph"
    recipe = GraphRecipe
    own_sections = frozenset({"graph", "network"})
    model_sections: ClassVar = ("network",)
    trained = TrainedGraph
    unit = "node"
    map_example = "--node 0"
    map_reads = "node"
    evaluation_options = frozenset({"save"})
    map_options = frozenset({"layer", "head"})
    draws_curve = False  # a picture would take longer than the steps between two validations

    def __init__(self, graph: Graph | None = None) -> None:
        self.graph = graph
        """A graph that is in memory already, to be trained on instead of the recipe's."""

    def prepare(self, recipe: GraphRecipe, run: RunContext) -> TaskData[GraphRecipe, Graph]:
        """Sort the edges of the graph by their targets, and split its nodes."""
        graph = self.graph or prepare_graph(run.data, recipe.graph, resumed=run.resumed, say=run.say)
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

    def loss(
        self, model: GraphAttentionNetwork, batch: GraphBatch, device: torch.device, config: GraphTraining
    ) -> Loss:
        """Cross-entropy of the classes, summed over the items, and for each of them the other parts of the mean loss.

        These are the network's penalty, with `consistency` the distance between several passes, and with
        `edge_supervision` the loss of their scores of edges.
        """
        batch = batch.to(device)
        passes = [predict(model, batch) for _ in range(config.passes if config.consistency else 1)]
        logits, smoothing = [each.logits for each in passes], config.label_smoothing
        losses = [smoothed_cross_entropy(each[batch.items], batch.labels, smoothing=smoothing) for each in logits]
        total, cross_entropy = (torch.stack(parts).mean() for parts in zip(*losses, strict=True))
        if config.consistency:
            apart = consistency_loss(logits, config.temperature, config.confidence)
            total = total + len(batch.items) * config.consistency * apart
        if config.edge_supervision:
            total = total + len(batch.items) * config.edge_supervision * supervision_loss(passes, batch, config)
        if model.config.l2:
            total = total + len(batch.items) * model.penalty()
        return Loss(total, cross_entropy)

    def size(self, batch: GraphBatch) -> str:
        """In nodes and edges."""
        edges = batch.edge_index if isinstance(batch.edge_index, torch.Tensor) else batch.edge_index.edge_index
        return f"{batch.x.shape[0]} nodes, {edges.shape[1]} edges"

    def halves(self, batch: GraphBatch) -> list[GraphBatch]:
        """A graph cannot be split: raise a TrainingError that says what to set."""
        raise TrainingError(
            f"out of memory with {self.size(batch)}; draw neighbours, for example "
            "sampling.fanout = [10, 10], or fewer of them, or set a smaller sampling.batch; with "
            "training.edge_supervision, lower training.edge_share and training.negative_pairs instead"
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

    def predictor(self, trained: TrainedGraph, folder: str | Path | None = None) -> NodeClassifier:
        """A NodeClassifier."""
        return NodeClassifier(trained)

    def read_assets(self, folder: ModelFolder, recipe: GraphRecipe) -> Graph:
        """The copy of the graph in the folder; where there is none, it is made from its source."""
        data = folder.path / "data"
        for path in (data / name for name in PREPARED_FILES):
            if path.exists() or path.is_symlink():
                check_plain(path, most=MOST_FACTS if path.suffix == ".json" else MOST_ARRAY, within=data)
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

    def difference(self, first: TrainedGraph, second: TrainedGraph) -> str:
        """The networks must have seen the same graph."""
        return "" if first.recipe.graph == second.recipe.graph else "was trained on another graph than"

    def evaluate(
        self, predictor: NodeClassifier, options: EvaluationOptions, *, name: str = "model", watch: Watch = unwatched
    ) -> EvaluationResult:
        """The accuracy on the test nodes or graphs; `save` gets the predicted class of every node or graph."""
        accuracy = predictor.accuracy()
        if options.save is not None:
            class_name = predictor.graph.class_name
            write_outputs(options.save, [class_name(int(number)) for number in predictor.classify()])
        value, low, high, items = accuracy
        row = ["accuracy", f"{value:.1f}", f"{low:.1f} - {high:.1f}", f"{items:,}"]
        table = Table(["score", "value", "95% interval", "items"], [row])
        return EvaluationResult({"accuracy": value, "low": low, "high": high, "items": items}, [table])

    def input_files(self, recipe: GraphRecipe) -> list[str]:
        """Nodes and edges."""
        return [path for path in (recipe.graph.path, recipe.graph.nodes, recipe.graph.edges) if path]

    def map_source(self, given: MapSource) -> str:
        """The number or name of a node."""
        if given.node is None:
            self.refuse_source(given, "no node is named")
        return given.node

    def map(self, predictor: NodeClassifier, source: str, options: MapOptions) -> MappedOutput:
        """The attention of a node, given by its number or name, and of its neighbours."""
        model, graph = predictor.trained.model, predictor.graph
        number = find_node(graph, source)
        heads = _own_heads(model, options.layer, options.head)
        prediction = predict_node(model, graph, number)
        shown = map_of_prediction(model, graph, prediction)
        facts, classification = {"node": number, "text": shown.title}, predictor.classification(number, prediction)
        return MappedOutput(facts, [shown], classification=classification).select(options.layer, heads)

    def map_examples(self, predictor: NodeClassifier, count: int) -> list[str]:
        """Test nodes with neighbours, or any nodes where there are none."""
        graph = predictor.graph
        test = () if predictor.trained.model.pooling else graph.test[:MOST_TRIED].tolist()
        nodes = [
            node
            for node in (*test, *range(min(graph.nodes, MOST_TRIED)))
            if graph.starts[node] < graph.starts[node + 1]
        ]
        return [graph.name(node) for node in list(dict.fromkeys(nodes))[:count]]


def supervision_loss(passes: Sequence[GraphPrediction], batch: GraphBatch, config: GraphTraining) -> Float[Tensor, ""]:
    """The mean loss of the passes' attention scores, on the same sample of edges and of pairs without one."""
    edges = batch.edge_index if isinstance(batch.edge_index, Tensor) else batch.edge_index.edge_index
    pairs = sample_pairs(edges, batch.x.shape[0], share=config.edge_share, negatives=config.negative_pairs)
    return torch.stack([edge_loss(each.attention, pairs) for each in passes]).mean()


def consistency_loss(
    logits: Sequence[Float[Tensor, "item class_"]], temperature: float, confidence: float = 0.0
) -> Float[Tensor, ""]:
    """The mean squared distance of the probabilities of several passes from their sharpened mean (Feng et al. 2020).

    With the class probabilities p¹ … pˢ of S passes with different dropout, and their mean p̄:

        t_c = p̄_c^(1/T) / Σ_c' p̄_c'^(1/T)          loss = 1/S · Σ_s ‖t - pˢ‖², averaged over the items

    No gradient flows through the target t. Labels are not needed, so all nodes of a graph count. With `confidence`,
    only items with max p̄ above it add to the sum, as in GRAND+ (Feng et al. 2022).

    >>> same = torch.tensor([[9.0, -9.0]])
    >>> round(consistency_loss([same, same], 0.5).item(), 4), consistency_loss([same, -same], 0.5).item()
    (0.0, 0.5)
    """
    passes = torch.stack([each.float() for each in logits]).softmax(-1)
    mean = passes.detach().mean(0)
    distances = (passes - sharpened(mean, temperature)).square().sum(-1)  # pass, item
    return (distances * (mean.amax(-1) > confidence)).mean()


def sharpened(probabilities: Float[Tensor, "item class_"], temperature: float) -> Float[Tensor, "item class_"]:
    """Probabilities to the power of 1 / temperature, normalised: lower temperatures approach one class.

    >>> sharpened(torch.tensor([[0.8, 0.2]]), 0.5)
    tensor([[0.9412, 0.0588]])
    """
    return (probabilities.clamp(min=torch.finfo(probabilities.dtype).tiny).log() / temperature).softmax(-1)


def _own_heads(model: GraphAttentionNetwork, layers: tuple[int, ...], heads: tuple[int, ...]) -> list[int]:
    """The heads counted from 0; an error if a layer lacks one, because the map has an average in its place."""
    counts = [int(layer.heads) for layer in model.layers]  # type: ignore[arg-type]
    chosen = [resolve_index(layer, len(counts), "layer") for layer in layers] or [len(counts) - 1]
    fewest = min(counts[layer] for layer in chosen)
    return [resolve_index(head, fewest, f"layer {chosen[-1]}, head") for head in heads]


@torch.no_grad()
def held_out_scores(model: GraphAttentionNetwork, batches: GraphBatches) -> dict[str, float]:
    """Loss, and accuracy in percent, on held-out items, which processes share."""

    def logits_of(steps: Sequence[int]) -> list[Tensor]:
        return [batch_logits(model, batches, step).cpu() for step in steps]

    parts = current_processes().map(logits_of, range(batches.steps(0)))
    logits = torch.cat(parts).to(next(model.parameters()).device)
    labels = torch.from_numpy(np.asarray(batches.graph.labels[batches.items])).to(logits.device)
    right = (logits.argmax(-1) == labels).double().mean()
    loss, accuracy = torch.stack([F.cross_entropy(logits, labels).double(), 100 * right]).tolist()
    return {"loss": loss, "accuracy": accuracy}


def check_shared(sampling: SamplingConfig) -> None:
    """Raise a ConfigError if several processes are to train on a whole graph, of which there is one batch."""
    processes = current_processes().world
    if processes > 1 and not sampling.fanout:
        raise ConfigError(
            f"without sampling.fanout every step sees the whole graph, which {processes} processes cannot share; "
            "train with one process, or draw neighbours, for example sampling.fanout = [10, 10]"
        )


def check_pooling(recipe: GraphRecipe, graph: Graph) -> None:
    """Raise a ConfigError if the network classifies nodes but the labels are of graphs, or vice versa."""
    if graph.graph is not None and not recipe.network.pooling:
        raise ConfigError('the labels are of whole graphs; set network.pooling = "mean", "max" or "sum"')
    if graph.graph is None and recipe.network.pooling:
        raise ConfigError(
            f'network.pooling = "{recipe.network.pooling}", but the labels are of nodes; set it to "", or give the '
            "number of every node's graph in an array `graph`"
        )


NODE_CLASSIFICATION = NodeClassificationTask()
