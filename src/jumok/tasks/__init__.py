"""Tasks: translation, captioning, node classification, and which one a recipe or a model folder is of."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from jumok.devices import find_device
from jumok.errors import ModelError
from jumok.model_folder import BUNDLED, ModelFolder, read_folder, recipe_tables
from jumok.recipe import parse_overrides, parse_recipe, read_tables, sections
from jumok.tasks.captioning import CaptioningTask
from jumok.tasks.node_classification import NodeClassificationTask
from jumok.tasks.task import Task
from jumok.tasks.translation import TranslationTask

TRANSLATION = TranslationTask()
CAPTIONING = CaptioningTask()
NODE_CLASSIFICATION = NodeClassificationTask()
TASKS: tuple[Task[Any, Any], ...] = (NODE_CLASSIFICATION, CAPTIONING, TRANSLATION)


def task_of(tables: Mapping[str, Any]) -> Task[Any, Any]:
    """The task of a recipe by its sections; translation if they do not tell."""
    return next((task for task in TASKS if not task.own_sections.isdisjoint(tables)), TRANSLATION)


def task_in(folder: str | Path) -> Task[Any, Any]:
    """The task of a model folder, by its recipe; translation where there is none, and `load` says what is wrong."""
    return task_of(recipe_tables(folder))


def make_recipe(tables: Mapping[str, Any], *, origin: object = "the recipe", variables: bool = True) -> Any:
    """A recipe from the tables of a TOML file, of the task that its sections name."""
    return parse_recipe(task_of(tables).recipe, tables, origin=origin, variables=variables)


def read_recipe(path: str | Path, overrides: Mapping[str, Any] | Iterable[str] = (), *, variables: bool = True) -> Any:
    """The recipe in a file, with settings overridden: {"training.steps": 2000} or ["training.steps=2000"]."""
    tables = read_tables(path)
    cls = task_of(tables).recipe
    return parse_recipe(cls, tables, parse_overrides(overrides), origin=path, variables=variables)


def load(folder: str | Path = BUNDLED, *, device: str = "auto", task: Task[Any, Any] | None = None) -> Any:
    """Load a model folder, onto a GPU if there is one: a Translator, a Captioner or a NodeClassifier.

    Without a folder it is the tiny English-Korean model that comes with jumok. A folder of another task than `task`,
    if one is given, is refused.
    """
    task, trained = load_trained(folder, find_device(device), task=task)
    return task.predictor(trained)


def load_trained(
    folder: str | Path, device: torch.device | str = "cpu", *, task: Task[Any, Any] | None = None
) -> tuple[Task[Any, Any], Any]:
    """The task of a model folder, and its trained model in evaluation mode."""

    def read(opened: ModelFolder) -> tuple[Task[Any, Any], Any]:
        tables = opened.recipe()
        found = _task_for(opened, tables, task)
        return found, found.read(opened, tables)

    found, trained = read_folder(folder, read)
    return found, trained._replace(model=trained.model.to(device).eval())


def check_model(folder: str | Path, task: Task[Any, Any]) -> None:
    """Raise an error unless a folder is a whole model of this task; the model is not built."""

    def read(opened: ModelFolder) -> None:
        _task_for(opened, opened.recipe(), task)
        opened.verify()

    read_folder(folder, read)


def _task_for(folder: ModelFolder, tables: Mapping[str, Any], wanted: Task[Any, Any] | None) -> Task[Any, Any]:
    """The task wanted, or where none is given that of the recipe; a ModelError where the recipe is of another one."""
    found = task_of(tables)
    if wanted is None:
        return found
    if found.name == wanted.name or tables.keys() <= sections(wanted.recipe).keys():
        return wanted
    commands = " or ".join(found.commands(str(folder.path)))
    raise ModelError(
        f"{folder.path} holds a model that {found.does}, not one that {wanted.does}; use it with {commands}"
    )
