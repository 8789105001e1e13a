"""A trained graph network as a recipe and a folder: weights, recipe, README; loading one runs no code of its own."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import torch

from jumok.data.fingerprint import MADE
from jumok.errors import ConfigError, ModelError
from jumok.files import check_plain
from jumok.graphs.graph import Graph, GraphConfig
from jumok.graphs.network import GatConfig, GraphAttentionNetwork
from jumok.graphs.sampling import SamplingConfig
from jumok.graphs.store import open_graph, prepare_graph
from jumok.model_folder import folders_to_average, how_many, is_graph_model, load_mean, model_path
from jumok.models.weights import check_model_fits, from_bytes, load_weights, to_bytes, weights_of
from jumok.recipe import of_contents, read_file, with_variables, write_recipe
from jumok.sealed_folder import NEW_WEIGHTS, README, RECIPE, WEIGHTS, SealedFolder, publish, read_folder, write_file
from jumok.settings import check_names, read_section, with_defaults
from jumok.training.config import TrainingConfig

SECTIONS = {"graph": GraphConfig, "network": GatConfig, "sampling": SamplingConfig, "training": TrainingConfig}
DEFAULTS = {"training": {"metric": "loss", "schedule": "constant", "warmup": 0, "label_smoothing": 0.0}}
"""The usual way to train on a graph: its own metric, and a constant rate."""
METRICS = ("loss", "accuracy")
MOST_FACTS, MOST_ARRAY = 2**28, 2**62
"""Bytes of graph.json, which names the nodes; arrays are mapped, not read."""


@dataclass(frozen=True, kw_only=True)
class GraphRecipe:
    """Everything that decides what a run gives: the graph, the network, what goes into a step, how it is trained."""

    graph: GraphConfig
    network: GatConfig
    sampling: SamplingConfig
    training: TrainingConfig


class TrainedGraph(NamedTuple):
    """A network and what it was made by."""

    model: GraphAttentionNetwork
    recipe: GraphRecipe


def read_graph_recipe(path: str | Path, changes: Sequence[str] = (), *, variables: bool = True) -> GraphRecipe:
    """The graph recipe in a file, with changes such as "network.heads=4" made to it."""
    return read_file(path, changes, lambda tables: make_graph_recipe(tables, variables=variables))


def make_graph_recipe(tables: Mapping[str, Any], *, variables: bool = True) -> GraphRecipe:
    """A graph recipe from the tables of a TOML file."""
    check_names(tables, list(SECTIONS), " in the recipe of a graph")
    sections = {name: with_defaults(tables.get(name, {}), DEFAULTS.get(name, {})) for name in SECTIONS}
    if variables:
        sections["graph"] = with_variables(sections["graph"], "graph", ("path", "nodes", "edges"))
    recipe = GraphRecipe(**{name: read_section(cls, sections[name], name) for name, cls in SECTIONS.items()})
    if recipe.training.metric not in METRICS:
        raise ConfigError(
            f'training.metric = "{recipe.training.metric}" is of texts; for graphs there are "loss", "accuracy"'
        )
    return recipe


def new_network(recipe: GraphRecipe, graph: Graph) -> GraphAttentionNetwork:
    """The recipe's network with fresh weights, the same ones for the same seed."""
    _check_pooling(recipe, graph)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.training.seed)
        return network_for(recipe.network, graph)


def network_for(config: GatConfig, graph: Graph) -> GraphAttentionNetwork:
    """A network with fresh weights that fits a graph."""
    return GraphAttentionNetwork(config, features=graph.width, classes=graph.classes, edge_width=graph.edge_width)


def publish_graph_model(
    folder: str | Path, trained: TrainedGraph, graph: Graph, weights: Path, *, scores: Mapping[str, Any] | None = None
) -> None:
    """Make the file `weights`, which is in the folder, its network's, with all that is needed to use it."""
    files = {RECIPE: write_recipe(trained.recipe).encode()}
    publish(Path(folder), files, _readme(trained, graph, scores or {}), weights)


def describe_graph_model(folder: str | Path, trained: TrainedGraph, graph: Graph, scores: Mapping[str, Any]) -> None:
    """Write the README of a network again, with scores that are known only now."""
    write_file(Path(folder) / README, _readme(trained, graph, scores).encode())


def load_graph_model(
    folder: str | Path, device: torch.device | str = "cpu", *, say: Callable[[str], None] = lambda message: None
) -> tuple[TrainedGraph, Graph]:
    """The network of a folder, and its graph: the copy in the folder, or where there is none made from its source."""
    trained, graph = read_folder(model_path(folder), lambda sealed: _read(sealed, say))
    return trained._replace(model=trained.model.to(device).eval()), graph


def _read(folder: SealedFolder, say: Callable[[str], None]) -> tuple[TrainedGraph, Graph]:
    content, path = folder.recipe(), folder.path / WEIGHTS
    if not is_graph_model(folder.path):
        raise ModelError(f"{folder.path} is a model, but not of a graph; jumok inspect {folder.path} says what it is")
    recipe = of_contents(content, folder.path / RECIPE, lambda tables: make_graph_recipe(tables, variables=False))
    header, data = folder.header(), folder.path / "data"
    for made in (data / name for name in MADE):
        if made.exists() or made.is_symlink():
            check_plain(made, most=MOST_FACTS if made.suffix == ".json" else MOST_ARRAY, within=data)
    graph = open_graph(data) or prepare_graph(data, recipe.graph, say=say)
    _check_pooling(recipe, graph)
    check_model_fits(lambda network: network_for(network, graph), recipe.network, header=header, path=path)
    weights = from_bytes(folder.weights(header), path)
    model = new_network(recipe, graph)
    load_weights(model, weights, path)
    return TrainedGraph(model, recipe), graph


def average_graph_models(models: Sequence[str | Path], out: str | Path) -> None:
    """Write a network whose weights are the mean of those of some; all else is that of the first folder."""
    folders = folders_to_average(models, out)
    trained, graph = load_graph_model(folders[0])
    for folder in folders[1:]:
        if load_graph_model(folder)[0].recipe.graph != trained.recipe.graph:
            raise ModelError(f"{folder} was trained on another graph than {folders[0]}, so their weights have no mean")
    load_mean(trained.model, models)
    weights = Path(out) / NEW_WEIGHTS
    write_file(weights, to_bytes(weights_of(trained.model)))
    publish_graph_model(out, trained, graph, weights, scores={"averaged over": how_many(models)})


def _check_pooling(recipe: GraphRecipe, graph: Graph) -> None:
    if graph.graph is not None and not recipe.network.pooling:
        raise ConfigError('the labels are of whole graphs; set network.pooling = "mean", "max" or "sum"')
    if graph.graph is None and recipe.network.pooling:
        raise ConfigError(
            f'network.pooling = "{recipe.network.pooling}", but the labels are of nodes; set it to "", or give the '
            "number of every node's graph in an array `graph`"
        )


def _readme(trained: TrainedGraph, graph: Graph, scores: Mapping[str, Any]) -> str:
    parameters = sum(parameter.numel() for parameter in trained.model.parameters())
    return "\n".join(
        [
            "# A graph model trained with jumok",
            "",
            f"- learnt from: {trained.recipe.graph.origin}",
            f"- the graph: {graph}",
            f"- network: {trained.recipe.network.kind}, {trained.recipe.network.layers} layers, "
            f"{parameters:,} parameters",
            *(f"- {name}: {value}" for name, value in scores.items()),
            "",
            f"Use it: `jumok evaluate THIS_FOLDER`, `jumok look THIS_FOLDER --node {quote(graph.name(0))}`",
            "",
        ]
    )
