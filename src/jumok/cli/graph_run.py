"""A whole training run on a graph: from a recipe to a trained model folder, and its accuracy on the test nodes."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from jumok.analysis.graph_scores import Accuracy, accuracy
from jumok.cli.any_run import begin_run
from jumok.cli.output import progress
from jumok.data.graph_store import prepare_graph, why_outdated
from jumok.data.graphs import Graph
from jumok.errors import ConfigError, DataError
from jumok.graph_model import (
    GraphRecipe,
    TrainedGraph,
    describe_graph_model,
    load_graph_model,
    network_for,
    new_network,
    publish_graph_model,
)
from jumok.models.gat import GraphAttentionNetwork
from jumok.models.room import check_memory
from jumok.sealed_folder import is_whole
from jumok.training.graph_task import GraphBatches, GraphTask, held_out_scores, predictions
from jumok.training.loop import train
from jumok.training.progress import Report
from jumok.training.state import TrainingState
from jumok.training.units import score_value
from jumok.translator import find_device


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
    from jumok.data.files import atomic_write

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
