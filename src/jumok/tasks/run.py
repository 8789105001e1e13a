"""A training run of any task: prepare the data, train, validate, publish the model folder, and resume."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import torch
from torch import nn

from jumok.analysis.curves.training import curve_picture
from jumok.devices import find_device
from jumok.errors import ArgumentError, ConfigError, MissingExtraError
from jumok.model_folder import RECIPE, is_whole
from jumok.models.memory_check import check_memory
from jumok.recipe import find_recipe, parse_overrides, parse_recipe, read_tables
from jumok.settings import Settings, field_types, is_path
from jumok.tasks import TASKS, task_of
from jumok.tasks.task import AnyTask, Recipe, RunContext, TaskData, shown_scores
from jumok.training.checkpoint import checkpoints
from jumok.training.loop import Reason
from jumok.training.loop import train as run_loop
from jumok.training.parallel import with_whole_weights
from jumok.training.processes import current_processes, device_name, is_restarted, joined
from jumok.training.progress import Report, report_to_stderr
from jumok.training.resume import will_resume
from jumok.training.state import TrainingState


@dataclass(frozen=True)
class Run:
    """A finished training run."""

    folder: Path
    """The model folder, which `jumok.load` and all commands read."""
    model: Any
    """The trained model, ready to use: a Translator, a Captioner or a NodeClassifier."""
    metrics: dict[str, float]
    """The scores of the best validation, and those on test data where the task has any."""
    stopped: Reason
    """Why training ended: "steps", "minutes", "patience", "interrupted" or "diverged"."""
    state: TrainingState
    task: AnyTask

    def commands(self, folder: str = "", *, task_file: str = "FILE") -> tuple[str, ...]:
        """Commands that use the model; `task_file` is the Python file of a task that is not jumok's."""
        return self.task.usage(folder or str(self.folder), self.model.trained, file=task_file)


def train(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    *,
    overrides: Mapping[str, Any] | Iterable[str] = (),
    out: str | Path | None = None,
    resume: bool = False,
    device: str = "auto",
    report: Report | None = None,
    draw: bool = True,
    task: AnyTask | None = None,
) -> Run:
    """Train a model by a recipe into the folder `out`, which defaults to runs/NAME-OF-RECIPE.

    `recipe` is a TOML file, the name of a recipe that comes with jumok, such as "small-cpu", its tables, or a recipe
    dataclass; `overrides` changes settings of it, {"training.steps": 2000}. `resume` continues from the newest
    checkpoint exactly where the run stopped; `recipe` may then be the folder of the run. Progress is reported to
    standard error, or to `report`; `draw=False` draws no curve.png. The sections of the recipe determine the task
    unless `task` names one.

    In a script that torchrun starts, all processes train one model together, each on a GPU of its own where there are
    GPUs; see docs/scale.md. One that torchrun starts again after a failure resumes by itself.
    """
    with joined(device) as processes:
        where = find_device(device_name(device))
        if where.index is not None:
            torch.cuda.set_device(where)
        report = (report or report_to_stderr()) if processes.leads else Report()
        resume = resume or is_restarted()
        resolved = _resolved(recipe, overrides, out, task, report, resume=resume)
        with _interruption_reported(resolved.folder, report):
            return _train(*resolved, where, report, resume=resume, draw=draw)


def prepare_data(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    *,
    overrides: Mapping[str, Any] | Iterable[str] = (),
    out: str | Path | None = None,
    device: str = "auto",
    report: Report | None = None,
    task: AnyTask | None = None,
) -> Path:
    """Prepare the data of a recipe and train nothing; `train` with the same recipe and `out` then uses them.

    Returns the folder of the data. No step needs a GPU, so a machine without one can do this while no GPU waits.
    """
    with joined(device) as processes:
        report = (report or report_to_stderr()) if processes.leads else Report()
        task, recipe, folder = _resolved(recipe, overrides, out, task, report, resume=False)
        processes.first(lambda: will_resume(folder, recipe.training, settings_fixed_on_resume(recipe), resume=False))
        run = RunContext(folder, find_device(device_name(device)), report, False)
        with _interruption_reported(folder, report):
            _prepared(task, recipe, run)
        return run.data


def _train(
    task: AnyTask, recipe: Recipe, folder: Path, where: torch.device, report: Report, *, resume: bool, draw: bool
) -> Run:
    """Train in this process, together with those that are joined with it."""
    processes, settings = current_processes(), settings_fixed_on_resume(recipe)
    begun = processes.first(lambda: will_resume(folder, recipe.training, settings, resume=resume))
    if resume and not begun:
        report.say(f"there is no run to resume in {folder}; starting a new one")
    run = RunContext(folder, where, report, begun)
    data = _prepared(task, recipe, run)
    build, configs = task.builder(recipe, data.assets)
    check_memory(build, *configs, device=where)
    model = task.new_model(recipe, data.assets)
    if not run.resumed:
        task.begin(model, data, run)
    trained = task.trained(model.to(where), data.recipe, data.assets)

    def validate(model: nn.Module) -> dict[str, float]:
        return task.validate(trained._replace(model=model), data.held_out)

    def publish(weights: Path, state: TrainingState) -> None:
        task.publish(folder, trained, weights, shown_scores(state.best_scores or {}))

    result = run_loop(
        model,
        data.train,
        recipe.training,
        folder=folder,
        validate=validate if data.held_out is not None else None,
        report=report,
        resume=resume,
        data_fingerprint=data.fingerprint,
        settings=settings,
        draw=draw_curve if draw and task.draws_curve else None,
        task=task,
        publish=publish,
        is_published=is_whole,
    )
    if result.stopped == "interrupted" and report.resumes:
        report.say(_how_to_continue(folder, task))
    trained = trained._replace(model=with_whole_weights(model, lambda: task.new_model(recipe, data.assets)))
    predictor, metrics = task.predictor(trained), dict(result.state.best_scores or {})
    if tested := processes.first(lambda: task.test(predictor, run)):
        metrics |= tested
        if processes.leads:
            task.write_page(folder, trained, shown_scores(metrics))
    return Run(folder, predictor, metrics, result.stopped, result.state, task)


@contextmanager
def _interruption_reported(folder: Path, report: Report) -> Iterator[None]:
    """Tell a user who breaks off the work what of it is kept, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        if report.resumes:
            report.say(_what_is_kept(folder))
        raise


def _what_is_kept(folder: Path) -> str:
    if saved := checkpoints(folder / "checkpoints"):
        return f"{saved[-1]} is kept; the same command with --resume (in Python resume=True) continues from there"
    if any((folder / "data").glob("[!.]*")):
        return f"no step of training is saved yet; the same command starts again and uses the data in {folder / 'data'}"
    return "nothing is saved yet; the same command starts again"


def _how_to_continue(folder: Path, task: AnyTask) -> str:
    own = "" if task in TASKS else " --task FILE"
    return f"continue: jumok train {quote(str(folder))}{own} --resume (in Python resume=True)"


def _prepared(task: AnyTask, recipe: Recipe, run: RunContext) -> TaskData[Any, Any]:
    """The data, which the leading process prepares and the others open."""
    ready: list[TaskData[Any, Any]] = []

    def prepare() -> None:
        task.check(recipe, run)
        ready.append(task.prepare(recipe, run))

    current_processes().first(prepare)
    return ready[0] if ready else task.prepare(recipe, run._replace(resumed=True))


class _Resolved(NamedTuple):
    task: AnyTask
    recipe: Recipe
    folder: Path


def _resolved(
    request: str | Path | Mapping[str, Any] | Recipe,
    overrides: Mapping[str, Any] | Iterable[str],
    out: str | Path | None,
    task: AnyTask | None,
    report: Report,
    *,
    resume: bool,
) -> _Resolved:
    """The task, the recipe as its dataclass, and the folder to write."""
    if is_dataclass(request):
        task = task or next((known for known in TASKS if isinstance(request, known.recipe)), None)
        if task is None:
            raise ArgumentError(f"{type(request).__name__} is not the recipe of a known task; pass its task as task=")
        if overrides:
            raise ArgumentError("overrides apply to recipe files and dictionaries; change the dataclass itself")
        return _Resolved(task, request, _folder(out, None))
    path = None
    if isinstance(request, Mapping):
        tables = request
    else:
        if resume and _is_missing_run(Path(request)):
            raise ConfigError(f"there is no run to resume in {request}; to begin one, name a recipe, a .toml file")
        path, message = find_recipe(Path(request))
        if message:
            report.say(message)
        if path.is_dir():
            path, out = _recipe_of_run(path, resume=resume), path if out is None else out
        tables = read_tables(path)
    task = task or task_of(tables)
    origin = "the recipe" if path is None else path
    recipe = parse_recipe(task.recipe, tables, parse_overrides(overrides), complete=task.complete, origin=origin)
    return _Resolved(task, recipe, _folder(out, path))


def _is_missing_run(path: Path) -> bool:
    """Whether a path that does not exist looks like the folder of a run, and not like a recipe."""
    own = path.with_name(f"{path.name}.toml")
    return (
        path.suffix != ".toml" and path.parent not in (Path(), Path("recipes")) and not (path.exists() or own.exists())
    )


def _recipe_of_run(folder: Path, *, resume: bool) -> Path:
    """The recipe in the folder of a run that is resumed."""
    if not (folder / RECIPE).is_file():
        if any(folder.glob("checkpoints/step-*")):
            raise ConfigError(
                f"{folder} has checkpoints but no {RECIPE}; continue with the recipe that the run began with: "
                f"jumok train RECIPE --out {folder} --resume (in Python resume=True)"
            )
        if not (folder / "data").is_dir():
            raise ConfigError(f"{folder} holds no training run; name a recipe, a .toml file, instead of the folder")
        raise ConfigError(
            f"{folder} is a folder without {RECIPE}, which a run writes at its first validation; to begin again, name "
            "the recipe, a .toml file, instead of the folder; jumok uses the data that it has already prepared"
        )
    if not resume:
        raise ConfigError(
            f"{folder} is the folder of a run; resume it (--resume, in Python resume=True), or name a recipe, a .toml "
            "file"
        )
    return folder / RECIPE


def _folder(out: str | Path | None, path: Path | None) -> Path:
    if out is None and path is None:
        raise ArgumentError("out is missing; pass out=FOLDER, because the recipe is not a file")
    return Path("runs") / path.stem if out is None and path is not None else Path(str(out))


def settings_fixed_on_resume(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """The settings outside [training] and [decoding] that a resumed run must share with the run before."""
    names = [field.name for field in fields(recipe) if field.name not in ("training", "decoding")]
    settings = {name: _without_paths(getattr(recipe, name)) for name in names}
    tokenizer = getattr(recipe, "tokenizer", None)
    if getattr(tokenizer, "model", None):  # which decides these
        del settings["tokenizer"]["kind"], settings["tokenizer"]["size"]
    return settings


def _without_paths(section: Settings) -> dict[str, Any]:
    """A section without the names of files, also in its tables, such as [[data.mix]]."""
    kept = [name for name, hint in field_types(type(section)).items() if not is_path(hint)]
    return {name: _tables_without_paths(getattr(section, name)) for name in kept}


def _tables_without_paths(value: Any) -> Any:
    is_tables = isinstance(value, tuple) and any(isinstance(part, Settings) for part in value)
    return tuple(map(_without_paths, value)) if is_tables else value


def draw_curve(metrics: Path) -> None:
    """Draw the curve of a run beside its metrics, where matplotlib is installed."""
    with suppress(MissingExtraError):  # the numbers are in metrics.jsonl; a picture of them is extra
        curve_picture(metrics, metrics.with_name("curve.png"))
