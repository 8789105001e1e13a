"""`jumok evaluate`: score a model on test data, or outputs from a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from jumok.cli.arguments import (
    PAIRS,
    Beam,
    ColumnNames,
    DecodingEngine,
    DecodingPrecision,
    Device,
    FeatureColumns,
    FromLanguage,
    LengthPenalty,
    MapKindOption,
    MaxLength,
    MaxSource,
    MinimumRisk,
    MinLength,
    NoRepeat,
    OnlyRows,
    Sample,
    Seed,
    Tag,
    TaskFile,
    Temperature,
    TestReference,
    ToLanguage,
    TopK,
    TopP,
    check_output_path,
    named_paths,
    own_task,
    parse_columns,
    parse_features,
    parse_only,
    sampling_settings,
)
from jumok.cli.output import print_json, print_table, say
from jumok.devices import find_device
from jumok.errors import ArgumentError
from jumok.progress import ProgressBars
from jumok.tasks import TRANSLATION, load_trained
from jumok.tasks.ensembles import read_ensemble
from jumok.tasks.evaluation import evaluate_outputs
from jumok.tasks.results import EvaluationOptions, EvaluationResult


def evaluate(
    models: Annotated[
        list[Path] | None,
        Argument(
            metavar="[MODEL]...", help="Folder of a trained model, of several for an ensemble; none with --output."
        ),
    ] = None,
    source: Annotated[str | None, Option(help=f"Test sentences, one per line; {PAIRS}")] = None,
    reference: TestReference = None,
    columns: ColumnNames = None,
    features: FeatureColumns = None,
    only: OnlyRows = None,
    tag: Tag = None,
    from_language: FromLanguage = None,
    to_language: ToLanguage = None,
    output: Annotated[str | None, Option(help="File of outputs to score, instead of translating.")] = None,
    metrics: Annotated[
        str | None,
        Option(
            help="bleu, chrf, ter, exact_match, ser, wer, cider, meteor; with commas. Texts default to bleu,chrf,ter."
        ),
    ] = None,
    tokenize: Annotated[
        str | None,
        Option(help="sacrebleu's tokenizer for BLEU: 13a (the default), zh, ja-mecab, ko-mecab, char, none …"),
    ] = None,
    lowercase: Annotated[bool, Option("--lowercase", help="Ignore case.")] = False,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    min_length: MinLength = None,
    max_length: MaxLength = None,
    no_repeat: NoRepeat = None,
    sample: Sample = False,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    seed: Seed = None,
    mbr: MinimumRisk = None,
    max_source: MaxSource = None,
    engine: DecodingEngine = None,
    precision: DecodingPrecision = None,
    by_length: Annotated[bool, Option("--by-length", help="Also print the first metric by source length.")] = False,
    terms: Annotated[
        str | None,
        Option(help="Also count the required terms in the outputs; lines of a source term, a tab and a target term."),
    ] = None,
    report: Annotated[
        Path | None, Option(help="Also write an HTML page: curves, attention, good and bad cases.")
    ] = None,
    kind: MapKindOption = "cross",
    compare: Annotated[
        list[str] | None,
        Option(help="Model folder or file of outputs to compare with, or NAME=PATH; repeatable. Prints p-values."),
    ] = None,
    save: Annotated[Path | None, Option(help="Also write the outputs to this file.")] = None,
    task: TaskFile = None,
    device: Device = "auto",
    json: Annotated[bool, Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Score translations against references: BLEU, chrF and TER with signatures and 95% intervals.

    For a graph model: accuracy on the test nodes; --save writes the predicted class of every node. For a captioner:
    scores on the test images of its recipe, or on --source FOLDER --reference captions.tsv; for generated scenes, also
    how often words attend to what they name.
    """
    if (not models) == (output is None):
        raise ArgumentError("give either a MODEL to test or --output with outputs to score")
    if task is not None and len(models or ()) != 1:
        raise ArgumentError(f"--task {task} is for one model; leave it out with several, and with --output")
    (name, path), *others = named_paths([str(models[0] if models else output), *(compare or ())])
    decoding: dict[str, Any] = {"beam": beam, "max_source": max_source, "engine": engine, "precision": precision}
    decoding |= {"length_penalty": length_penalty, "min_length": min_length, "max_length": max_length}
    decoding |= {"no_repeat": no_repeat}
    decoding |= sampling_settings(sample, mbr, beam=beam, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    options = EvaluationOptions(
        source=source,
        reference=reference,
        columns=parse_columns(columns),
        features=parse_features(features),
        only=parse_only(only),
        tag=tag,
        languages=(from_language, to_language),
        metrics=_names(metrics),
        tokenize=tokenize,
        lowercase=lowercase,
        by_length=by_length,
        terms=terms,
        compare=tuple(others),
        report=report,
        kind=kind,
        save=save,
        **decoding,
    )
    if kind != "cross" and report is None:
        raise ArgumentError(f"--kind {kind} is for the maps of a report; add --report report.html")
    _check_outputs(options, [path, *(models or ())[1:], source, reference, terms, *(other for _, other in others)])
    with ProgressBars() as bars:
        if not models:
            result = evaluate_outputs(TRANSLATION, path, options, name=name, device=device, watch=bars)
        else:
            if len(models) == 1:
                its_task, trained = load_trained(path, find_device(device), task=own_task(task))
            else:
                name = "+".join(each.resolve().name for each in models)
                its_task, trained = TRANSLATION, read_ensemble(models, find_device(device))
            options.check_used(its_task.evaluation_options, path, its_task.does)
            _check_inputs_kept(options, its_task.input_files(trained.recipe))
            result = its_task.evaluate(its_task.predictor(trained, path), options, name=name, watch=bars)
    _print(result, json)
    if report is not None and result.write_report is not None:  # the scores are not lost if it cannot be written
        with ProgressBars() as bars:
            result.write_report(report, bars)
        say(f"wrote {report}")


def _names(metrics: str | None) -> tuple[str, ...]:
    names = tuple(name.strip() for name in (metrics or "").split(",") if name.strip())
    if metrics is not None and not names:
        raise ArgumentError(f"--metrics {metrics!r} names no metric; for example: --metrics bleu,chrf")
    return names


def _check_outputs(options: EvaluationOptions, inputs: list[str | Path | None]) -> None:
    """Refuse, before any work, files that cannot be written."""
    save, report = options.save, options.report
    if report is not None and report.suffix not in (".html", ".htm"):
        raise ArgumentError(f"--report {report} must end in .html")
    if save is not None and save == report:
        raise ArgumentError(f"--save and --report are both {save}; name two files")
    _check_inputs_kept(options, inputs)


def _check_inputs_kept(options: EvaluationOptions, inputs: Sequence[str | Path | None]) -> None:
    """Refuse outputs that would overwrite an input, and those that cannot be written."""
    for option, path in (("--save", options.save), ("--report", options.report)):
        check_output_path(option, path, inputs)


def _print(result: EvaluationResult, json: bool) -> None:
    if json:
        return print_json(dict(result.values))
    for table in result.tables:
        print_table(table.columns, table.rows)
        if table.note:
            print(table.note)
