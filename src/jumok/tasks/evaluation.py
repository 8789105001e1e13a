"""Evaluation of a model of any task on test data, or of outputs from a file."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from jumok.errors import ArgumentError
from jumok.model_folder import check_output_path
from jumok.progress import Watch, unwatched
from jumok.settings import nearest
from jumok.tasks import TRANSLATION, Folders, load_predictor
from jumok.tasks.results import EvaluationOptions, EvaluationResult
from jumok.tasks.task import AnyTask
from jumok.tasks.translation_scores import evaluate_outputs


def evaluate(
    model: Folders | None = None,
    *,
    output: str | Path | None = None,
    name: str = "",
    compare: Mapping[str, str | Path] | None = None,
    device: str = "auto",
    task: AnyTask | None = None,
    watch: Watch = unwatched,
    **options: Any,
) -> EvaluationResult:
    """Score a trained model on test data: `jumok.evaluate("runs/x", source="test.en", reference="test.ko")`.

    `model` is a model folder, or a list of those of an ensemble; `output` is a file with the outputs of any program, to
    be scored instead. Options are the fields of `EvaluationOptions`: the test data, the metrics and the settings of
    decoding. `compare` has further model folders or files of outputs by name, and their scores get p-values.

    The numbers are in `values` of the result, and `write_report` writes a page about it.
    """
    folders = [] if model is None else [model] if isinstance(model, str | Path) else list(model)
    if (not folders) == (output is None):
        raise ArgumentError("give either `model=` to test or `output=` with outputs to score")
    if task is not None and len(folders) != 1:
        raise ArgumentError("`task=` applies to a single model; leave it out with several models or with `output=`")
    systems = {other: Path(path) for other, path in (compare or {}).items()}
    settings = _settings(systems, options)
    inputs = [*folders, output, settings.source, settings.reference, settings.terms, *systems.values()]
    _check_outputs(settings, inputs)
    if output is not None:
        name = name or Path(output).name
        return evaluate_outputs(TRANSLATION, Path(output), settings, name=name, device=device, watch=watch)
    name = name or "+".join(Path(folder).resolve().name for folder in folders)
    task, predictor = load_predictor(folders, device=device, task=task)
    settings.check_used(task.evaluation_options, folders[0], task.does)
    _check_inputs_kept(settings, task.input_files(predictor.trained.recipe))
    return task.evaluate(predictor, settings, name=name, watch=watch)


def _settings(systems: Mapping[str, Path], options: Mapping[str, Any]) -> EvaluationOptions:
    """The options as their dataclass, with paths and lists of the types that it declares."""
    known = [field.name for field in fields(EvaluationOptions)]
    for name, value in options.items():
        if name not in known:
            raise ArgumentError(f"{name[:60]} is not an option of evaluate{nearest(name, known)}")
        if name in ("source", "reference", "terms") and not isinstance(value, str | Path | None):
            raise ArgumentError(f"{name} must be the name of a file, not a {type(value).__name__}")
    as_types: dict[str, Any] = {"source": str, "reference": str, "terms": str, "save": Path, "report": Path}
    as_types |= {"metrics": tuple, "features": tuple}
    typed = {name: as_types[name](value) if name in as_types else value for name, value in _set_options(options)}
    return EvaluationOptions(compare=tuple(systems.items()), **typed)


def _set_options(options: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    return ((name, value) for name, value in options.items() if value is not None)


def _check_outputs(options: EvaluationOptions, inputs: Sequence[str | Path | None]) -> None:
    """Refuse, before any work, files that cannot be written."""
    save, report = options.save, options.report
    if options.kind != "cross" and report is None:
        raise ArgumentError(f"`kind={options.kind}` applies only to the maps of a report; add `report=report.html`")
    if report is not None and report.suffix not in (".html", ".htm"):
        raise ArgumentError(f"`report={report}` must end in .html")
    if save is not None and save == report:
        raise ArgumentError(f"`save=` and `report=` are both {save}; name two files")
    _check_inputs_kept(options, inputs)


def _check_inputs_kept(options: EvaluationOptions, inputs: Sequence[str | Path | None]) -> None:
    """Refuse outputs that would overwrite an input, and those that cannot be written."""
    for option, path in (("`save=`", options.save), ("`report=`", options.report)):
        check_output_path(option, path, inputs)
