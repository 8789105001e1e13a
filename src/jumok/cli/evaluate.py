"""`jumok evaluate`: translate a test set and score it, or score outputs made elsewhere."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from typer import Argument, Option

from jumok.cli.output import WIDEST_BEAM, print_json, print_table, say, stages

if TYPE_CHECKING:
    from jumok.analysis.length_bands import Band
    from jumok.analysis.report_numbers import System, Task
    from jumok.analysis.scores import Score


def evaluate(
    model: Annotated[Path | None, Argument(help="Folder written by `jumok train`; leave it out with --output.")] = None,
    source: Annotated[str | None, Option(help="Test sentences, one a line.")] = None,
    reference: Annotated[str | None, Option(help="Their right translations.")] = None,
    output: Annotated[str | None, Option(help="Score these outputs instead of translating.")] = None,
    metrics: Annotated[str, Option(help="bleu, chrf, ter, exact_match, wer; separated by commas.")] = "bleu,chrf,ter",
    tokenize: Annotated[str, Option(help="sacrebleu's tokenizer for BLEU: 13a, intl, char, zh, none …")] = "13a",
    lowercase: Annotated[bool, Option("--lowercase", help="Ignore case.")] = False,
    beam: Annotated[int | None, Option(min=1, max=WIDEST_BEAM, help="Hypotheses kept at each step.")] = None,
    by_length: Annotated[bool, Option("--by-length", help="Also the first metric by source length.")] = False,
    report: Annotated[
        Path | None, Option(help="Also write an html page: curves, attention, good and bad cases.")
    ] = None,
    compare: Annotated[
        list[str] | None, Option(help="Another MODEL or file of outputs for the report, or NAME=PATH; repeatable.")
    ] = None,
    save: Annotated[Path | None, Option(help="Also write the outputs to this file.")] = None,
    device: Annotated[str, Option(help="auto, cpu or cuda.")] = "auto",
    json: Annotated[bool, Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Score translations against references: BLEU, chrF, TER with signatures and 95% intervals.

    Of a graph model: its accuracy on the test nodes; --save writes the class found for every node. Of a captioner: its
    recipe's test images, or --source FOLDER --reference captions.tsv; for scenes also whether words look at what they
    name.
    """
    from jumok.analysis.report_numbers import Task
    from jumok.cli.systems import check_lines, composed_lines
    from jumok.data import read_lines
    from jumok.model_folder import is_captioner, is_graph_model

    for_texts = {"--output": output, "--compare": compare, "--report": report, "--by-length": by_length or None}
    if model is not None and is_graph_model(model):
        _check_unused(model, "a graph model", {**for_texts, "--source": source, "--reference": reference})
        _evaluate_graph(model, save, device, json)
        return
    names = _checked(metrics, tokenize)
    if model is not None and is_captioner(model):
        _check_unused(model, "a captioner", for_texts)
        options = {"images": source, "captions": reference, "tokenize": tokenize, "lowercase": lowercase}
        _evaluate_captioner(model, names, save, json, beam=beam, device=device, **options)
        return
    if reference is None:
        _refuse_without_reference(model)
    _check_texts(model, source, reference, output, by_length=by_length, report=report, compare=compare, save=save)
    references = composed_lines(reference)
    sources = list(read_lines(source)) if source is not None else []
    if source is not None:
        check_lines("--source", source, len(sources), reference, len(references))
    _check_compared(str(model or output), compare or [], len(references))
    system = _first(model, output, sources, beam, device)
    if output is not None:
        check_lines("--output", output, len(system.outputs), reference, len(references))
    if save is not None:
        _save(save, system.outputs)
    names = _quick_enough(names, system.outputs, references)
    facts = {"source": str(source), "reference": reference} | ({} if beam is None else {"beam": str(beam)})
    task = Task(sources, references, names, tokenize, lowercase, facts)
    system, scores, bands = _scored(task, system, by_length)
    systems = [] if report is None else _systems(task, system, compare or [], beam, device)
    (_print_json if json else _print_tables)(len(references), scores, bands)
    if report is not None:  # after the scores are printed: they are not lost where the page cannot be written
        _report(report, task, systems)


def _check_texts(
    model: Path | None,
    source: str | None,
    reference: str,
    output: str | None,
    *,
    by_length: bool,
    report: Path | None,
    compare: list[str] | None,
    save: Path | None,
) -> None:
    """That there is something to score and room for what is to be written, before the work."""
    from jumok.cli.places import check_written
    from jumok.cli.systems import named
    from jumok.errors import ArgumentError

    if (model is None) == (output is None):
        raise ArgumentError("give a MODEL to translate with, or --output with outputs to score, and not both")
    if source is None and (model is not None or by_length or report is not None):
        raise ArgumentError("--source is needed: the test sentences, one a line")
    if report is not None and report.suffix not in (".html", ".htm"):
        raise ArgumentError(f"--report {report} should end in .html")
    if compare and report is None:
        raise ArgumentError("--compare is for a report; say where to write it: --report FILE.html")
    if save is not None and save == report:
        raise ArgumentError(f"--save and --report are both {save}; name two files")
    read = [model, source, reference, output, *(named(other).path for other in compare or ())]
    for option, place in (("--save", save), ("--report", report)):
        check_written(option, place, read)


def _check_compared(first: str, others: list[str], sentences: int) -> None:
    """What else the report is to show, before the first of its systems is at work."""
    from jumok.analysis.report_numbers import check_names
    from jumok.cli.systems import check_named, named

    check_names([named(one).name for one in (first, *others)])
    check_named([named(other) for other in others], sentences)


def _refuse_without_reference(model: Path | None) -> NoReturn:
    from jumok.errors import ArgumentError, ModelError

    if model is not None and not model.is_dir():
        raise ModelError(f"there is no model folder {model}; `jumok train` writes one")
    raise ArgumentError("--reference is needed: the right translations, one a line")


def _check_unused(model: Path, what: str, options: dict[str, Any]) -> None:
    from jumok.errors import ArgumentError

    if given := [option for option, value in options.items() if value is not None]:
        raise ArgumentError(f"{given[0]} is for texts, and {model} is {what}")


def _evaluate_graph(model: Path, save: Path | None, device: str, json: bool) -> None:
    from jumok.cli.graph_run import evaluate_graph
    from jumok.cli.places import check_written
    from jumok.graph_model import read_graph_recipe
    from jumok.sealed_folder import RECIPE

    if save is not None:
        graph = read_graph_recipe(model / RECIPE, variables=False).graph
        check_written("--save", save, [model, *(path for path in (graph.path, graph.nodes, graph.edges) if path)])
    found = evaluate_graph(model, device=device, save=save)
    if json:
        print_json(found)
        return
    interval = f"{found['low']:.1f} - {found['high']:.1f}"
    row = ["accuracy", f"{found['accuracy']:.1f}", interval, f"{found['items']:,}"]
    print_table(["score", "value", "95% interval", "items"], [row])


def _evaluate_captioner(model: Path, names: list[str], save: Path | None, json: bool, **options: Any) -> None:
    from jumok.caption_model import read_caption_recipe
    from jumok.cli.caption_scores import evaluate_captioner
    from jumok.cli.places import check_written
    from jumok.sealed_folder import RECIPE

    if save is not None:
        images = read_caption_recipe(model / RECIPE, variables=False).images
        own = [path for path in (images.path, images.captions) if path]
        check_written("--save", save, [model, options["images"], options["captions"], *own])
    found = evaluate_captioner(model, names, **options)
    if save is not None:
        _save(save, found.outputs)
    if json:
        pointing = {} if found.pointing is None else {"pointing": found.pointing._asdict()}
        print_json({"images": len(found.outputs), "scores": [vars(score) for score in found.scores], **pointing})
        return
    _print_tables(len(found.outputs), found.scores, None)
    if found.pointing is not None:
        shares = [f"{share:.1f}" for share in found.pointing[:4]]
        print_table(
            ["words that look at what they name, %", "of size", "of colour", "of shape", "words", "mass, %"],
            [[*shares, str(found.pointing.words), f"{found.pointing.mass:.1f}"]],
        )


def _checked(metrics: str, tokenize: str) -> list[str]:
    from jumok.analysis.scores import check_scores
    from jumok.errors import ArgumentError

    names = [name.strip() for name in metrics.split(",") if name.strip()]
    if not names:
        raise ArgumentError(f"--metrics {metrics!r} names no score; for example: --metrics bleu,chrf")
    check_scores(names, tokenize)
    return names


def _quick_enough(names: list[str], outputs: Sequence[str], references: Sequence[str]) -> list[str]:
    """The scores without those that would take minutes, which is said; an only score is left to be refused."""
    from jumok.analysis.scores import too_long

    why = {name: too_long(name, outputs, references) for name in names} if len(outputs) == len(references) else {}
    slow = [name for name in names if why.get(name)]
    if len(slow) == len(names):
        return names
    for name in slow:
        say(f"{name} is left out: {why[name]}")
    return [name for name in names if name not in slow]


def _print_json(sentences: int, scores: Sequence["Score"], bands: Sequence["Band"] | None) -> None:
    found: dict[str, object] = {"sentences": sentences, "scores": [vars(score) for score in scores]}
    if bands is not None:
        found["by_length"] = [
            {"words": band.words, "sentences": band.sentences, "value": band.score.value} for band in bands
        ]
    print_json(found)


def _print_tables(_sentences: int, scores: Sequence["Score"], bands: Sequence["Band"] | None) -> None:
    rows = [[one.name, f"{one.value:.2f}", f"{one.low:.2f} - {one.high:.2f}", one.signature] for one in scores]
    print_table(["score", "value", "95% interval", "signature"], rows)
    if bands is not None:
        rows = [[band.words, str(band.sentences), f"{band.score.value:.2f}"] for band in bands]
        print_table(["source words", "sentences", scores[0].name], rows)


def _scored(task: "Task", system: "System", by_length: bool) -> "tuple[System, list[Score], list[Band] | None]":
    """The system with what was counted in its outputs, its scores, and the first of them by length if asked for."""
    from jumok.analysis.length_bands import bands_of
    from jumok.analysis.scores import count_outputs, score_counts

    options: dict[str, Any] = {"tokenize": task.tokenize, "lowercase": task.lowercase}
    with stages() as watch:
        counts = count_outputs(system.outputs, task.references, task.metrics, **options, watch=watch)
        scores = [score_counts(counts[name], watch=watch) for name in task.metrics]
        bands = bands_of(counts[task.metrics[0]], task.sources, resamples=1) if by_length else None
    return replace(system, counts=counts), scores, bands


def _first(model: Path | None, output: str | None, sources: list[str], beam: int | None, device: str) -> "System":
    from jumok.analysis.report_numbers import System
    from jumok.cli.systems import composed_lines, named, of_translations, translations

    if model is None:
        assert output is not None
        return System(named(output).name, composed_lines(output))
    return of_translations(named(str(model)).name, translations(model, sources, beam, device))


def _systems(task: "Task", first: "System", others: list[str], beam: int | None, device: str) -> list["System"]:
    """The first and those it is compared with, found to be of one test set."""
    from jumok.analysis.report_numbers import check_systems
    from jumok.cli.systems import named, system_of

    systems = [first, *(system_of(named(other), task.sources, beam, device) for other in others)]
    check_systems(task, systems)
    return systems


def _report(path: Path, task: "Task", systems: list["System"]) -> None:
    from jumok.analysis.report_numbers import make_report
    from jumok.analysis.report_page import report_page
    from jumok.data.files import atomic_write

    with stages() as watch:
        found = make_report(task, systems, watch=watch)
    with atomic_write(path) as file:
        file.write(report_page(found).encode(errors="replace"))
    say(f"wrote {path}")


def _save(path: Path, outputs: Sequence[str]) -> None:
    from jumok.data.files import atomic_write

    with atomic_write(path) as file:
        file.write("".join(f"{output}\n" for output in outputs).encode())
