"""The interface of a task, such as translation, to training, model folders and commands."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, replace
from pathlib import Path
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    NoReturn,
    Protocol,
    TypeAlias,
    TypeVar,
    runtime_checkable,
)

import torch
from torch import nn

from jumok.devices import find_device
from jumok.errors import ArgumentError, ConfigError, ModelError
from jumok.model_folder import (
    NEW_WEIGHTS,
    README,
    RECIPE,
    WEIGHTS,
    ModelFolder,
    publish,
    read_folder,
    withdraw,
    write_file,
)
from jumok.models.memory_check import Build
from jumok.models.weights import check_model_fits, from_bytes, load_weights, to_bytes, weights_of
from jumok.progress import Watch, unwatched
from jumok.recipe import parse_recipe, sections, write_recipe
from jumok.settings import Settings
from jumok.tasks.map_source import MapSource
from jumok.tasks.results import EvaluationOptions, EvaluationResult, MapOptions, MappedOutput
from jumok.training.config import TrainingConfig
from jumok.training.objective import AnyObjective, BatchSource
from jumok.training.progress import Report
from jumok.training.score_names import score_name, score_value

T = TypeVar("T", bound="Trained")


@runtime_checkable
class Recipe(Protocol):
    """A dataclass with one config dataclass per section, [training] among them."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def training(self) -> TrainingConfig: ...


@runtime_checkable
class Trained(Protocol):
    """A trained model and what is needed to use it: a named tuple that begins with these three."""

    @property
    def model(self) -> nn.Module: ...

    @property
    def recipe(self) -> Recipe: ...

    @property
    def assets(self) -> Any:
        """What the model needs besides its weights, such as tokenizers."""

    def _replace(self: T, *, model: Any) -> T: ...


@runtime_checkable
class Predictor(Protocol):
    """The object that uses a trained model, such as a Translator."""

    @property
    def trained(self) -> Trained: ...


R = TypeVar("R", bound=Recipe)
A = TypeVar("A")
P = TypeVar("P", bound=Predictor)


class RunContext(NamedTuple):
    """The folder and device of a run, before anything is written."""

    folder: Path
    device: torch.device
    report: Report
    resumed: bool
    """Whether the run resumes from a checkpoint."""

    @property
    def data(self) -> Path:
        """The folder of prepared data."""
        return self.folder / "data"

    def say(self, message: str) -> None:
        """Report a message."""
        self.report.say(message)


@dataclass(frozen=True, kw_only=True)
class TaskData(Generic[R, A]):
    """What `Task.prepare` returns: everything that training needs besides the model."""

    recipe: R
    """The recipe that is saved with the model."""
    assets: A
    """What the model needs besides its weights, such as tokenizers."""
    train: BatchSource
    held_out: object
    """What `Task.validate`, which alone reads it, scores a model on; None if there is nothing to validate on."""
    fingerprint: str
    """Identifies the contents of the batches; a resumed run needs the same ones."""


class Task(AnyObjective, Generic[R, A, T, P]):
    """One application of jumok: its recipe, its data, its model, its loss, and the object that uses a trained model.

    Its types are those of its recipe, its assets, its trained models and its predictor; those of its models and its
    batches only the task itself knows. It is the `Objective` of the loop in `jumok.training`, so it also writes `items`
    and `loss`.
    """

    name: ClassVar[str]
    does: ClassVar[str]
    """What its models do: "translates text"."""
    recipe: type[R]
    own_sections: ClassVar[frozenset[str]]
    """Sections that tell its recipes from those of other tasks."""
    model_sections: ClassVar[tuple[str, ...]]
    """Sections that decide the shapes of the weights."""
    trained: Callable[[Any, R, A], T]
    """The class of its trained models, called with a model, its recipe and its assets."""
    draws_curve: ClassVar[bool] = True
    """Whether a run draws curve.png after every validation."""
    generates_text: ClassVar[bool] = False
    """Whether its predictor is a `Translator` or a `Captioner`, or of a class that inherits from one of them."""
    map_example: ClassVar[str] = "..."
    """What to write behind the model in `jumok look`, such as image.jpg."""
    map_reads: ClassVar[Literal["text", "node"] | None] = None
    """What `jumok serve` gives to `map`, as its clients sent it; with None, it serves only models that generate text.

    A `map` that opens the files it is given must not be served.
    """
    evaluation_options: ClassVar[frozenset[str]] = frozenset()
    map_options: ClassVar[frozenset[str]] = frozenset()
    """The options of `jumok evaluate` and `jumok look` that the task uses; the commands refuse the others."""

    # Training

    def complete(self, tables: Mapping[str, Any]) -> Mapping[str, Any]:
        """The tables of a recipe with those that it takes from elsewhere, such as a model to start from."""
        return tables

    def check(self, recipe: R, run: RunContext) -> None:
        """Raise an error for a recipe that cannot work, before any data are prepared."""

    @abstractmethod
    def prepare(self, recipe: R, run: RunContext) -> TaskData[R, A]:
        """Prepare the data in `run.data`, or open what an earlier run has prepared there."""

    @abstractmethod
    def build(self, recipe: R, assets: A) -> nn.Module:
        """The model with fresh weights."""

    def begin(self, model: Any, data: TaskData[R, A], run: RunContext) -> None:
        """Called once before the first step of a new run: to put pretrained weights in place, or to give a warning."""

    @abstractmethod
    def validate(self, trained: T, held_out: Any) -> dict[str, float]:
        """The scores of a model, `training.metric` among them."""

    def test(self, predictor: P, run: RunContext) -> dict[str, float]:
        """Scores of the final model on test data; most tasks have none."""
        return {}

    # Trained models

    @abstractmethod
    def predictor(self, trained: T, folder: str | Path | None = None) -> P:
        """The object that uses a trained model, such as a Translator; `folder` is where the model was read from."""

    def files(self, assets: A) -> dict[str, bytes]:
        """Files of the model folder besides the weights and the recipe, by name."""
        return {}

    @abstractmethod
    def read_assets(self, folder: ModelFolder, recipe: R) -> A:
        """The assets of a model folder."""

    @abstractmethod
    def describe(self, trained: T) -> dict[str, Any]:
        """Facts about a model, for `jumok inspect` and the page in its folder; "in words" explains some of them."""

    def commands(self, folder: str, trained: T | None = None) -> tuple[str, ...]:
        """Commands that use a model."""
        return (f"jumok inspect {folder}",)

    def usage(self, folder: str, trained: T | None = None, *, file: str = "FILE") -> tuple[str, ...]:
        """The same commands; those of a task that is not jumok's name its Python file with --task."""
        commands = self.commands(folder, trained)
        if type(self).__module__.startswith("jumok."):
            return commands
        parts = (command.partition(" < ") for command in commands)
        return tuple(f"{program} --task {file}{arrow}{input}" for program, arrow, input in parts)

    def difference(self, first: T, second: T) -> str:
        """Why the weights of two models cannot be averaged, such as "has another vocabulary than"; "" if they can."""
        return ""

    def evaluate(
        self, predictor: P, options: EvaluationOptions, *, name: str = "model", watch: Watch = unwatched
    ) -> EvaluationResult:
        """Score a model on test data, for `jumok evaluate`; `name` is what tables call the model."""
        raise ArgumentError(f"jumok cannot evaluate a model that {self.does}")

    def input_files(self, recipe: R) -> list[str]:
        """The files that a recipe names, which `jumok evaluate` must not overwrite."""
        return []

    def map_source(self, given: MapSource) -> str:
        """What to show, from what `jumok look` is given; an ArgumentError if the task cannot show that."""
        if given.node is not None:
            self.refuse_source(given, "--node applies only to graph models")
        if given.text is None:
            self.refuse_source(given, "there is no input to look at")
        return given.text

    def refuse_source(self, given: MapSource, reason: str) -> NoReturn:
        """Raise an ArgumentError with the reason, what the model does, and what to write."""
        raise ArgumentError(f"{reason}. {given.model} {self.does}; write: jumok look {given.model} {self.map_example}")

    def map(self, predictor: P, source: str, options: MapOptions) -> MappedOutput:
        """The attention of a model for a source given on the command line, for `jumok look` and `jumok serve`."""
        raise ArgumentError(f"jumok cannot draw an attention map of a model that {self.does}")

    def map_examples(self, predictor: P, count: int) -> list[str]:
        """At most so many sources to try on the page of `jumok serve`."""
        return []

    # The same for all tasks

    def new_model(self, recipe: R, assets: A) -> nn.Module:
        """The recipe's model with fresh weights, the same ones for the same seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.training.seed)
            model = self.build(recipe, assets)
        freeze(model, recipe.training.freeze)
        return model

    def builder(self, recipe: R, assets: A) -> tuple[Build, list[Settings]]:
        """A function that builds the model from its sections, and those sections."""

        def build(*configs: Settings) -> nn.Module:
            return self.build(replace(recipe, **dict(zip(self.model_sections, configs, strict=True))), assets)

        return build, [getattr(recipe, name) for name in self.model_sections]

    def load(self, folder: str | Path, *, device: str = "auto") -> P:
        """The predictor of a model folder, on a GPU if there is one; a ModelError for a model of another task."""
        _, trained = read_trained(folder, lambda tables: self, find_device(device))
        return self.predictor(trained, folder)

    def recipe_tables(self, folder: str | Path) -> dict[str, Any]:
        """The tables of a model's recipe; an error unless the folder has a model of this task.

        The weights are not read, only their header.
        """

        def read(opened: ModelFolder) -> dict[str, Any]:
            tables = opened.recipe()
            self.check_sections(opened.path, tables)
            opened.header()
            return tables

        return read_folder(folder, read)

    def check_sections(self, folder: Path, tables: Mapping[str, Any]) -> None:
        """Raise a ModelError if the recipe of a model folder has sections of another task."""
        if tables.keys() - sections(self.recipe).keys():
            raise ModelError(
                f"{folder} does not hold a model that {self.does}; `jumok inspect {folder}` shows what it does and how "
                "to use it"
            )

    def read(self, folder: ModelFolder, tables: Mapping[str, Any]) -> T:
        """The trained model of a folder.

        Recipe, assets and the header of the weights come first: a model that does not fit them is never built.
        """
        path = folder.path / WEIGHTS
        self.check_sections(folder.path, tables)
        recipe = parse_recipe(self.recipe, tables, origin=folder.path / RECIPE, variables=False)
        assets, header = self.read_assets(folder, recipe), folder.header()
        build, configs = self.builder(recipe, assets)
        check_model_fits(build, *configs, header=header, path=path)
        weights = from_bytes(folder.weights(header), path)
        model = self.new_model(recipe, assets)
        load_weights(model, weights, path)
        return self.trained(model, recipe, assets)

    def publish(self, folder: str | Path, trained: T, weights: Path, scores: Mapping[str, Any] | None = None) -> None:
        """Publish a model folder whose weights are the file `weights` in it, with everything needed to use them."""
        files = {RECIPE: write_recipe(trained.recipe).encode(), **self.files(trained.assets)}
        publish(Path(folder), files, self.page(trained, scores or {}), weights)

    def save(
        self, folder: str | Path, trained: T, *, half: bool = False, scores: Mapping[str, Any] | None = None
    ) -> None:
        """Write a model folder, with weights in half precision if asked; replaces a model that was there."""
        folder, weights = Path(folder), weights_of(trained.model)
        if half:
            weights = {name: value.half() if value.is_floating_point() else value for name, value in weights.items()}
        write_file(folder / NEW_WEIGHTS, to_bytes(weights))
        withdraw(folder)
        self.publish(folder, trained, folder / NEW_WEIGHTS, scores)

    def page(self, trained: T, scores: Mapping[str, Any]) -> str:
        """The README of a model folder."""
        facts = in_words(self.describe(trained)) | dict(scores)
        use = ", ".join(f"`{command}`" for command in self.usage("THIS_FOLDER", trained))
        lines = [f"- {name}: {value}" for name, value in facts.items()]
        return "\n".join([f"# {self.title(trained)}", "", *lines, "", f"Use it: {use}", ""])

    def title(self, trained: T) -> str:
        """The title of the README of a model folder."""
        return "A model trained with jumok"

    def keep_files(self, folders: Sequence[Path], out: Path, trained: T) -> None:
        """Take over to the mean of several models what else is useful in their folders; by default nothing."""

    def write_page(self, folder: Path, trained: T, scores: Mapping[str, Any]) -> None:
        """Write the README of a model folder again, with further scores."""
        write_file(folder / README, self.page(trained, scores).encode())


AnyTask: TypeAlias = Task[Any, Any, Any, Any]


def read_trained(
    folder: str | Path, choose: Callable[[Mapping[str, Any]], Task[R, A, T, P]], device: torch.device | str = "cpu"
) -> tuple[Task[R, A, T, P], T]:
    """The task that `choose` finds for the tables of a folder's recipe, and its trained model in evaluation mode."""

    def read(opened: ModelFolder) -> tuple[Task[R, A, T, P], T]:
        tables = opened.recipe()
        task = choose(tables)
        return task, task.read(opened, tables)

    task, trained = read_folder(folder, read)
    return task, trained._replace(model=trained.model.to(device).eval())


def freeze(model: nn.Module, parts: Sequence[str]) -> None:
    """Keep the weights of some parts of a model as they are, those that they share with other parts too."""
    for part in parts:
        frozen = [weight for name, weight in _all_names(model) if _is_in(name, part)]
        if not frozen:
            inner = [f"{name}.{own}" for name, child in model.named_children() for own in parts_with_weights(child)]
            names = ", ".join([*parts_with_weights(model), *inner])
            raise ConfigError(f'training.freeze = ["{part}"] names no weights of the model, whose parts are {names}')
        for weight in frozen:
            weight.requires_grad_(False)


def frozen_elsewhere(model: nn.Module, parts: Sequence[str]) -> list[str]:
    """The names outside of these parts of weights that are frozen with them, because they are shared."""
    outside = {name: weight for name, weight in _all_names(model) if not any(_is_in(name, part) for part in parts)}
    frozen = {id(weight) for name, weight in _all_names(model) if name not in outside}
    return [name for name, weight in outside.items() if id(weight) in frozen]


def _all_names(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """The weights by name; one that is shared has several."""
    return model.named_parameters(remove_duplicate=False)


def _is_in(name: str, part: str) -> bool:
    return name == part or name.startswith(f"{part}.")


def parts_with_weights(model: nn.Module) -> list[str]:
    """The names of the parts of a model that have weights, as dropout has not."""
    return [name for name, part in model.named_children() if any(True for _ in part.parameters())]


def in_words(facts: Mapping[str, Any]) -> dict[str, str]:
    """The facts of a model as people read them."""
    words = facts.get("in words", {})
    return {name: words.get(name) or _shown(value) for name, value in facts.items() if name != "in words"}


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def shown_scores(scores: Mapping[str, float]) -> dict[str, str]:
    """Scores for the page of a model: those of the best validation, and those of a test."""
    return {
        score_name(name): score_value(name, value) + ("" if name.startswith("test ") else " (validation)")
        for name, value in scores.items()
    }


def parameters(model: nn.Module) -> int:
    """How many numbers the parameters of a model have; shared ones count once."""
    return sum(parameter.numel() for parameter in model.parameters())
