"""`jumok evaluate`: evaluate a model on test data, or score outputs from a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from jumok.cli import library
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
    named_paths,
    own_task,
    parse_columns,
    parse_features,
    parse_only,
    sampling_settings,
)
from jumok.cli.output import print_json, print_table, say
from jumok.errors import ArgumentError
from jumok.progress import ProgressBars

if TYPE_CHECKING:
    from jumok.tasks.results import EvaluationResult


def evaluate(
    models: Annotated[
        list[Path] | None,
        Argument(help="Folder of a trained model. Several folders form an ensemble. Leave it out with --output."),
    ] = None,
    source: Annotated[str | None, Option(help=f"Test sentences, one per line; {PAIRS}")] = None,
    reference: TestReference = None,
    columns: ColumnNames = None,
    features: FeatureColumns = None,
    only: OnlyRows = None,
    tag: Tag = None,
    from_language: FromLanguage = None,
    to_language: ToLanguage = None,
    output: Annotated[str | None, Option(help="File of outputs to score instead of translating.")] = None,
    metrics: Annotated[
        str | None,
        Option(
            help="With commas: bleu, chrf, ter, exact_match, ser, wer, cider, meteor. Texts default to bleu,chrf,ter."
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
        Option(
            help="File of required terms to count in the outputs; each line has a source term, a tab and a target term."
        ),
    ] = None,
    report: Annotated[
        Path | None, Option(help="Also write an HTML page with curves, attention maps, and good and bad examples.")
    ] = None,
    kind: MapKindOption = "cross",
    compare: Annotated[
        list[str] | None,
        Option(help="Model folder or file of outputs to compare with, or NAME=PATH; repeatable. Also prints p-values."),
    ] = None,
    save: Annotated[Path | None, Option(help="Also write the outputs to this file.")] = None,
    task: TaskFile = None,
    device: Device = "auto",
    json: Annotated[bool, Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Evaluate a model on test data; for translations: BLEU, chrF and TER with 95% intervals.

    For a graph model: accuracy on the test nodes; --save writes the predicted class of every node. For a captioner:
    scores on the test images of its recipe, or on --source FOLDER --reference captions.tsv; for generated scenes, also
    how often words attend to what they name.
    """
    (name, path), *others = named_paths([str(models[0] if models else output), *(compare or ())])
    folders, outputs = ([path, *models[1:]], output) if models else (None, None if output is None else path)
    decoding: dict[str, Any] = {"beam": beam, "max_source": max_source, "engine": engine, "precision": precision}
    decoding |= {"length_penalty": length_penalty, "min_length": min_length, "max_length": max_length}
    decoding |= {"no_repeat": no_repeat}
    decoding |= sampling_settings(sample, mbr, beam=beam, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    with ProgressBars() as bars:
        result = library.evaluation.evaluate(
            folders,
            output=outputs,
            name=name if len(models or ()) < 2 else "",
            compare=dict(others),
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
            report=report,
            kind=kind,
            save=save,
            device=device,
            task=own_task(task, models=len(models or ())),
            watch=bars,
            **decoding,
        )
    _print(result, json)
    if report is not None:  # the scores are not lost if it cannot be written
        with ProgressBars() as bars:
            result.write_report(report, watch=bars)
        say(f"wrote {report}")


def _names(metrics: str | None) -> tuple[str, ...]:
    names = tuple(name.strip() for name in (metrics or "").split(",") if name.strip())
    if metrics is not None and not names:
        raise ArgumentError(f"--metrics {metrics!r} names no metric; for example: --metrics bleu,chrf")
    return names


def _print(result: "EvaluationResult", json: bool) -> None:
    if json:
        return print_json(dict(result.values))
    for table in result.tables:
        print_table(table.columns, table.rows)
        if table.note:
            print(table.note)
