"""Tasks: translation, captioning and node classification; finding the task of a recipe or of a model folder."""

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, TypeAlias, overload

import torch

from jumok.devices import find_device
from jumok.errors import ArgumentError, ModelError
from jumok.model_folder import BUNDLED
from jumok.recipe import parse_overrides, parse_recipe, read_tables, sections
from jumok.tasks.captioning import CAPTIONING
from jumok.tasks.ensembles import read_ensemble
from jumok.tasks.node_classification import NODE_CLASSIFICATION
from jumok.tasks.results import MapOptions
from jumok.tasks.task import AnyTask, P, Predictor, Task, Trained, read_trained
from jumok.tasks.translation import TRANSLATION
from jumok.tasks.translator import Translator

__all__ = ["CAPTIONING", "NODE_CLASSIFICATION", "TASKS", "TRANSLATION", "MapOptions"]
__all__ += ["load", "load_predictor", "load_trained", "make_recipe", "read_recipe", "read_task", "task_of"]

TASKS: tuple[AnyTask, ...] = (NODE_CLASSIFICATION, CAPTIONING, TRANSLATION)


def task_of(tables: Mapping[str, Any]) -> AnyTask:
    """The task that a recipe belongs to, by its sections; translation by default."""
    return next((task for task in TASKS if not task.own_sections.isdisjoint(tables)), TRANSLATION)


def make_recipe(tables: Mapping[str, Any], *, origin: object = "the recipe", variables: bool = True) -> Any:
    """A recipe from the tables of a TOML file, of the task that its sections name."""
    return parse_recipe(task_of(tables).recipe, tables, origin=origin, variables=variables)


def read_recipe(path: str | Path, overrides: Mapping[str, Any] | Iterable[str] = (), *, variables: bool = True) -> Any:
    """The recipe in a file, with settings overridden: {"training.steps": 2000} or ["training.steps=2000"]."""
    tables = read_tables(path)
    cls = task_of(tables).recipe
    return parse_recipe(cls, tables, parse_overrides(overrides), origin=path, variables=variables)


Folders: TypeAlias = str | Path | Sequence[str | Path]
"""A model folder, or those of an ensemble."""


@overload
def load(*, device: str = "auto") -> Translator: ...
@overload
def load(folder: Folders, *, device: str = "auto", task: Task[Any, Any, Any, P]) -> P: ...
@overload
def load(folder: Folders = BUNDLED, *, device: str = "auto", task: AnyTask | None = None) -> Any: ...
def load(folder: Folders = BUNDLED, *, device: str = "auto", task: AnyTask | None = None) -> Any:
    """Load a model folder, onto a GPU if there is one: a Translator, a Captioner or a NodeClassifier.

    Without a folder, load the tiny English-Korean model that comes with jumok. With `task`, refuse models of others.
    A list of folders is an ensemble: a Translator that predicts the mean of what several models predict.
    """
    return load_predictor(folder, device=device, task=task)[1]


def load_predictor(folder: Folders, *, device: str = "auto", task: AnyTask | None = None) -> tuple[AnyTask, Predictor]:
    """The task of a model folder or of those of an ensemble, and what `load` returns for it."""
    if isinstance(folder, Collection) and not isinstance(folder, str):
        if len(folder) != 1:
            return TRANSLATION, TRANSLATION.predictor(read_ensemble(folder, find_device(device)))
        (folder,) = folder
    task, trained = load_trained(folder, find_device(device), task=task)
    return task, task.predictor(trained, folder)


def load_trained(
    folder: str | Path, device: torch.device | str = "cpu", *, task: AnyTask | None = None
) -> tuple[AnyTask, Trained]:
    """The task of a model folder, and its trained model in evaluation mode."""

    def choose(tables: Mapping[str, Any]) -> AnyTask:
        if task is not None:
            return task
        known = task_of(tables)
        if known.own_sections.isdisjoint(tables) and (other := tables.keys() - sections(known.recipe)):
            raise ModelError(
                f"the recipe of {folder} has the section [{min(other)}], which belongs to no built-in task; for "
                "your own task, add --task FILE (in Python task=)"
            )
        return known

    return read_trained(folder, choose, device)


def read_task(path: str | Path) -> AnyTask:
    """A task of your own, from a Python file that defines one class derived from `Task`; the file is run."""
    path = Path(path)
    name = f"jumok_task_{path.stem}"
    spec = spec_from_file_location(name, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise ArgumentError(f"there is no task in {path}; name a .py file that defines a class derived from Task")
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    defined = [cls for cls in vars(module).values() if isinstance(cls, type) and cls.__module__ == name]
    tasks = [cls for cls in defined if issubclass(cls, Task)]
    if len(tasks) != 1:
        names = ", ".join(cls.__name__ for cls in tasks) or "none"
        raise ArgumentError(f"{path} must define one class derived from jumok.tasks.task.Task; it defines {names}")
    task: AnyTask = tasks[0]()
    return task
