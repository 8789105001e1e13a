"""`jumok evaluate`: translate a test set and score the outputs, or score outputs from a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from jumok.analysis.report.numbers import System, Task, check_names
from jumok.analysis.scores.metrics import Score, check_scores
from jumok.cli.arguments import (
    PAIRS,
    Beam,
    ColumnNames,
    Device,
    MaxSource,
    TestReference,
    check_output_path,
    check_unused,
    named_path,
    parse_columns,
)
from jumok.cli.output import print_json, print_table, say
from jumok.errors import ArgumentError, ModelError
from jumok.model_folder import RECIPE
from jumok.progress import ProgressBars
from jumok.tasks import CAPTIONING, NODE_CLASSIFICATION, evaluation, read_recipe, task_in
from jumok.tasks.evaluation import Evaluation
from jumok.tasks.node_classification import NodeClassifier


def evaluate(
    model: Annotated[Path | None, Argument(help="Folder of a trained model; leave it out with --output.")] = None,
    source: Annotated[str | None, Option(help=f"Test sentences, one per line; {PAIRS}")] = None,
    reference: TestReference = None,
    columns: ColumnNames = None,
    output: Annotated[str | None, Option(help="File of outputs to score, instead of translating.")] = None,
    metrics: Annotated[str, Option(help="bleu, chrf, ter, exact_match, wer; separated by commas.")] = "bleu,chrf,ter",
    tokenize: Annotated[str, Option(help="sacrebleu's tokenizer for BLEU: 13a, intl, char, zh, none …")] = "13a",
    lowercase: Annotated[bool, Option("--lowercase", help="Ignore case.")] = False,
    beam: Beam = None,
    max_source: MaxSource = None,
    by_length: Annotated[bool, Option("--by-length", help="Also print the first metric by source length.")] = False,
    report: Annotated[
        Path | None, Option(help="Also write an HTML page: curves, attention, good and bad cases.")
    ] = None,
    compare: Annotated[
        list[str] | None,
        Option(help="Model folder or file of outputs to compare with, or NAME=PATH; repeatable. Prints p-values."),
    ] = None,
    save: Annotated[Path | None, Option(help="Also write the outputs to this file.")] = None,
    device: Device = "auto",
    json: Annotated[bool, Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Score translations against references: BLEU, chrF and TER with signatures and 95% intervals.

    For a graph model: accuracy on the test nodes; --save writes the predicted class of every node. For a captioner:
    scores on the test images of its recipe, or on --source FOLDER --reference captions.tsv; for generated scenes, also
    how often words look at what they name.
    """
    text_options: dict[str, object] = {
        "--output": output,
        "--compare": compare,
        "--report": report,
        "--by-length": by_length,
    }
    text_options |= {"--columns": columns, "--max-source": max_source}
    if model is not None and task_in(model) is NODE_CLASSIFICATION:
        check_unused(model, "a graph model", {**text_options, "--source": source, "--reference": reference})
        return _evaluate_graph(model, save, device, json)
    names = [name.strip() for name in metrics.split(",") if name.strip()]
    if not names:
        raise ArgumentError(f"--metrics {metrics!r} names no metric; for example: --metrics bleu,chrf")
    check_scores(names, tokenize)
    if model is not None and task_in(model) is CAPTIONING:
        check_unused(model, "a captioner", text_options)
        options = {"images": source, "captions": reference, "tokenize": tokenize, "lowercase": lowercase}
        return _evaluate_captioner(model, names, save, json, beam=beam, device=device, **options)
    others = [named_path(other) for other in compare or ()]
    _check_inputs(model, source, reference, output, [path for _, path in others], by_length or report is not None)
    _check_outputs([model, source, reference, output, *(path for _, path in others)], save, report)
    sources, references = evaluation.read_test_set(source, reference, parse_columns(columns))
    first = named_path(str(model or output))
    check_names([name for name, _ in (first, *others)])
    for name, path in others:
        evaluation.check_system(name, path, len(references))
    settings: dict[str, Any] = {"device": device, "beam": beam, "max_source": max_source}
    facts = {"source": str(source), "reference": str(reference)} if reference else {"pairs": str(source)}
    facts |= {} if beam is None else {"beam": str(beam)}
    task = Task(sources, references, names, tokenize, lowercase, facts)
    with ProgressBars() as bars:
        if output is not None:
            system = System(first.name, evaluation.read_composed(output))
            reference_file = str(reference or source)
            evaluation.check_line_count("--output", output, len(system.outputs), reference_file, len(references))
        else:
            system = evaluation.translate_system(*first, sources, watch=bars, **settings)
        if save is not None:
            evaluation.write_outputs(save, system.outputs)
        systems = [system, *(evaluation.read_system(*other, sources, watch=bars, **settings) for other in others)]
        result = evaluation.score_systems(task, systems, by_length=by_length, watch=bars)
    print_json(result.as_plain()) if json else _print(result)
    if report is not None:  # after the scores, which are not lost if the page cannot be written
        with ProgressBars() as bars:
            evaluation.write_report(report, result, watch=bars)
        say(f"wrote {report}")


def _check_inputs(
    model: Path | None, source: str | None, reference: str | None, output: str | None, others: list[Path], lengths: bool
) -> None:
    """Refuse options that leave nothing to score; `lengths` says whether source sentences are needed for lengths."""
    if source is None and reference is None:
        if model is not None and not model.is_dir():
            raise ModelError(f"there is no model folder {model}; `jumok train` writes one")
        raise ArgumentError("--reference is missing: the reference translations, one per line")
    if (model is None) == (output is None):
        raise ArgumentError("give either a MODEL to translate with or --output with outputs to score")
    if source is None and (model is not None or lengths or any(other.is_dir() for other in others)):
        raise ArgumentError("--source is missing: the test sentences, one per line")


def _check_outputs(inputs: list[str | Path | None], save: Path | None, report: Path | None) -> None:
    if report is not None and report.suffix not in (".html", ".htm"):
        raise ArgumentError(f"--report {report} must end in .html")
    if save is not None and save == report:
        raise ArgumentError(f"--save and --report are both {save}; name two files")
    for option, path in (("--save", save), ("--report", report)):
        check_output_path(option, path, inputs)


def _evaluate_graph(model: Path, save: Path | None, device: str, json: bool) -> None:
    classifier = NodeClassifier.load(model, device=device)
    graph = classifier.trained.recipe.graph
    check_output_path("--save", save, [model, *filter(None, (graph.path, graph.nodes, graph.edges))])
    value, low, high, items = classifier.accuracy()
    if save is not None:
        names = [classifier.graph.class_name(int(number)) for number in classifier.classify()]
        evaluation.write_outputs(save, names)
    if json:
        return print_json({"accuracy": value, "low": low, "high": high, "items": items})
    row = ["accuracy", f"{value:.1f}", f"{low:.1f} - {high:.1f}", f"{items:,}"]
    print_table(["score", "value", "95% interval", "items"], [row])


def _evaluate_captioner(model: Path, names: list[str], save: Path | None, json: bool, **options: Any) -> None:
    images = read_recipe(model / RECIPE, variables=False).images
    inputs = [options["images"], options["captions"], images.path or None, images.captions or None]
    check_output_path("--save", save, [model, *inputs])
    with ProgressBars() as bars:
        result = evaluation.evaluate_captioner(model, names, watch=bars, **options)
    if save is not None:
        evaluation.write_outputs(save, result.outputs)
    if json:
        return print_json(result.as_plain())
    _print_scores(result.scores)
    if (pointing := result.pointing) is not None:
        print_table(
            ["words that look at what they name, %", "of size", "of colour", "of shape", "words", "mass, %"],
            [[*(f"{share:.1f}" for share in pointing[:4]), str(pointing.words), f"{pointing.mass:.1f}"]],
        )


def _print(result: Evaluation) -> None:
    if len(result.systems) == 1:
        _print_scores(result.scores[0])
    else:
        _print_comparison(result)
    if result.bands is not None:
        rows = [[band.words, str(band.sentences), f"{band.score.value:.2f}"] for band in result.bands]
        print_table(["source words", "sentences", result.scores[0][0].name], rows)


def _print_scores(scores: Sequence[Score]) -> None:
    rows = [[score.name, f"{score.value:.2f}", _interval(score), score.signature] for score in scores]
    print_table(["score", "value", "95% interval", "signature"], rows)


def _interval(score: Score) -> str:
    return f"{score.low:.2f} - {score.high:.2f}"


def _print_comparison(result: Evaluation) -> None:
    """Print a row for every score of every system; p is empty for the first and for scores without a paired test."""
    p = {(pair.other, pair.score): f"{pair.p:.3f}" for pair in result.paired}
    rows = [
        [score.name, system.name, f"{score.value:.2f}", _interval(score), p.get((system.name, score.name), "")]
        for of_metric in zip(*result.scores, strict=True)
        for system, score in zip(result.systems, of_metric, strict=True)
    ]
    print_table(["score", "system", "value", "95% interval", "p"], rows)
    if result.paired:
        print(f"p: probability of so large a difference from {result.systems[0].name} if both were equally good")
    print_table(["score", "signature"], [[score.name, score.signature] for score in result.scores[0]])
