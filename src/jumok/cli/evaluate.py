"""`jumok evaluate`: translate a test set and score it, or score outputs made elsewhere."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from jumok.cli.output import COLUMNS, MAX_SOURCE, WIDEST_BEAM, print_json, print_table, say, stages

if TYPE_CHECKING:
    from jumok.analysis.report.numbers import System, Task
    from jumok.analysis.scores.length_bands import Band
    from jumok.analysis.scores.metrics import Paired, Score


def evaluate(
    model: Annotated[Path | None, Argument(help="Folder written by `jumok train`; leave it out with --output.")] = None,
    source: Annotated[
        str | None, Option(help="Test sentences, one a line; or pairs: .tsv, .jsonl, lines of `a ||| b`.")
    ] = None,
    reference: Annotated[
        str | None, Option(help="Their right translations; leave it out if --source holds pairs.")
    ] = None,
    columns: Annotated[str | None, Option(help=COLUMNS)] = None,
    output: Annotated[str | None, Option(help="Score these outputs instead of translating.")] = None,
    metrics: Annotated[str, Option(help="bleu, chrf, ter, exact_match, wer; separated by commas.")] = "bleu,chrf,ter",
    tokenize: Annotated[str, Option(help="sacrebleu's tokenizer for BLEU: 13a, intl, char, zh, none …")] = "13a",
    lowercase: Annotated[bool, Option("--lowercase", help="Ignore case.")] = False,
    beam: Annotated[int | None, Option(min=1, max=WIDEST_BEAM, help="Hypotheses kept at each step.")] = None,
    max_source: Annotated[int | None, Option(min=1, help=MAX_SOURCE)] = None,
    by_length: Annotated[bool, Option("--by-length", help="Also the first metric by source length.")] = False,
    report: Annotated[
        Path | None, Option(help="Also write an html page: curves, attention, good and bad cases.")
    ] = None,
    compare: Annotated[
        list[str] | None,
        Option(help="Another MODEL or file of outputs, or NAME=PATH, with p of the difference."),
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
    from jumok.analysis.report.numbers import Task
    from jumok.cli.systems import check_lines, named, read_test_set, system_of
    from jumok.model_folder import is_captioner, is_graph_model

    for_texts: dict[str, Any] = {
        "--output": output,
        "--compare": compare,
        "--report": report,
        "--by-length": by_length or None,
    }
    for_texts |= {"--columns": columns, "--max-source": max_source}
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
        _check_without_reference(model, source)
    _check_texts(model, source, reference, output, by_length=by_length, report=report, compare=compare, save=save)
    sources, references = read_test_set(source, reference, columns)
    _check_compared(str(model or output), compare or [], len(references))
    settings: dict[str, Any] = {"device": device, "beam": beam, "max_source": max_source}
    system = _first(model, output, sources, settings)
    if output is not None:
        check_lines("--output", output, len(system.outputs), str(reference or source), len(references))
    if save is not None:
        _save(save, system.outputs)
    compared = [system, *(system_of(named(other), sources, **settings) for other in compare or ())]
    names = _quick_enough(names, compared, references)
    facts = {"source": str(source), "reference": str(reference)} if reference else {"pairs": str(source)}
    facts |= {} if beam is None else {"beam": str(beam)}
    task = Task(sources, references, names, tokenize, lowercase, facts)
    systems = _scored(task, compared)
    _show(task, systems, by_length, json)
    if report is not None:  # after the scores are printed: they are not lost where the page cannot be written
        _report(report, task, systems)


def _check_texts(
    model: Path | None,
    source: str | None,
    reference: str | None,
    output: str | None,
    *,
    by_length: bool,
    report: Path | None,
    compare: list[str] | None,
    save: Path | None,
) -> None:
    """That there is something to score and room for what is to be written, before the work."""
    from jumok.cli.output import check_written
    from jumok.cli.systems import named
    from jumok.errors import ArgumentError

    if (model is None) == (output is None):
        raise ArgumentError("give a MODEL to translate with, or --output with outputs to score, and not both")
    translates = model is not None or any(named(other).path.is_dir() for other in compare or ())
    if source is None and (translates or by_length or report is not None):
        raise ArgumentError("--source is needed: the test sentences, one a line")
    if report is not None and report.suffix not in (".html", ".htm"):
        raise ArgumentError(f"--report {report} should end in .html")
    if save is not None and save == report:
        raise ArgumentError(f"--save and --report are both {save}; name two files")
    read = [model, source, reference, output, *(named(other).path for other in compare or ())]
    for option, place in (("--save", save), ("--report", report)):
        check_written(option, place, read)


def _check_compared(first: str, others: list[str], sentences: int) -> None:
    """What else is to be compared, before the first system is at work."""
    from jumok.analysis.report.numbers import check_names
    from jumok.cli.systems import check_named, named

    check_names([named(one).name for one in (first, *others)])
    check_named([named(other) for other in others], sentences)


def _check_without_reference(model: Path | None, source: str | None) -> None:
    from jumok.errors import ArgumentError, ModelError

    if model is not None and not model.is_dir():
        raise ModelError(f"there is no model folder {model}; `jumok train` writes one")
    if source is None:
        raise ArgumentError("--reference is needed: the right translations, one a line")


def _check_unused(model: Path, what: str, options: dict[str, Any]) -> None:
    from jumok.errors import ArgumentError

    if given := [option for option, value in options.items() if value is not None]:
        raise ArgumentError(f"{given[0]} is for texts, and {model} is {what}")


def _evaluate_graph(model: Path, save: Path | None, device: str, json: bool) -> None:
    from jumok.cli.output import check_written
    from jumok.sealed_folder import RECIPE
    from jumok.tasks.graph_model import read_graph_recipe
    from jumok.tasks.node_classification import evaluate_graph

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
    from jumok.cli.caption_scores import evaluate_captioner
    from jumok.cli.output import check_written
    from jumok.sealed_folder import RECIPE
    from jumok.tasks.caption_model import read_caption_recipe

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
    _print_scores(found.scores)
    if found.pointing is not None:
        shares = [f"{share:.1f}" for share in found.pointing[:4]]
        print_table(
            ["words that look at what they name, %", "of size", "of colour", "of shape", "words", "mass, %"],
            [[*shares, str(found.pointing.words), f"{found.pointing.mass:.1f}"]],
        )


def _checked(metrics: str, tokenize: str) -> list[str]:
    from jumok.analysis.scores.metrics import check_scores
    from jumok.errors import ArgumentError

    names = [name.strip() for name in metrics.split(",") if name.strip()]
    if not names:
        raise ArgumentError(f"--metrics {metrics!r} names no score; for example: --metrics bleu,chrf")
    check_scores(names, tokenize)
    return names


def _quick_enough(names: list[str], systems: Sequence["System"], references: Sequence[str]) -> list[str]:
    """Leave out TER, with a message, if a line is too long for it and there are other scores."""
    from jumok.analysis.scores.metrics import too_long_for_ter

    if "ter" not in names or len(set(names)) == 1:
        return names
    problem = next(filter(None, (too_long_for_ter(system.outputs, references) for system in systems)), "")
    if not problem:
        return names
    say(f"ter is left out: {problem}")
    return [name for name in names if name != "ter"]


def _show(task: "Task", systems: Sequence["System"], by_length: bool, json: bool) -> None:
    """Print the scores of the first system, and beside them those of the others with p of the differences."""
    from jumok.analysis.scores.length_bands import bands_of
    from jumok.analysis.scores.metrics import paired_bootstrap, score_counts

    with stages() as watch:
        scores = [[score_counts(one.counts[name], watch=watch) for name in task.metrics] for one in systems]
        counts = systems[0].counts[task.metrics[0]]
        bands = bands_of(counts, task.sources, resamples=1) if by_length else None
        paired = paired_bootstrap([(one.name, one.counts) for one in systems], watch=watch)
    if json:
        _print_json(len(task.references), systems, scores, paired, bands)
        return
    if len(systems) == 1:
        _print_scores(scores[0])
    else:
        _print_compared(systems, scores, paired)
    if bands is not None:
        rows = [[band.words, str(band.sentences), f"{band.score.value:.2f}"] for band in bands]
        print_table(["source words", "sentences", scores[0][0].name], rows)


def _print_json(
    sentences: int,
    systems: Sequence["System"],
    scores: Sequence[Sequence["Score"]],
    paired: Sequence["Paired"],
    bands: Sequence["Band"] | None,
) -> None:
    found: dict[str, object] = {"sentences": sentences, "scores": [vars(score) for score in scores[0]]}
    if len(systems) > 1:
        p = {(one.other, one.score): one.p for one in paired}
        found["compared"] = [
            {"name": system.name, "scores": [{**vars(one), "p": p.get((system.name, one.name))} for one in own]}
            for system, own in zip(systems[1:], scores[1:], strict=True)
        ]
    if bands is not None:
        found["by_length"] = [
            {"words": band.words, "sentences": band.sentences, "value": band.score.value} for band in bands
        ]
    print_json(found)


def _print_scores(scores: Sequence["Score"]) -> None:
    rows = [[one.name, f"{one.value:.2f}", _interval(one), one.signature] for one in scores]
    print_table(["score", "value", "95% interval", "signature"], rows)


def _interval(score: "Score") -> str:
    return f"{score.low:.2f} - {score.high:.2f}"


def _print_compared(
    systems: Sequence["System"], scores: Sequence[Sequence["Score"]], paired: Sequence["Paired"]
) -> None:
    """A row for every score of every system; p is empty for the first, and for scores without a paired test."""
    p = {(one.other, one.score): f"{one.p:.3f}" for one in paired}
    rows = [
        [
            one.name,
            system.name,
            f"{one.value:.2f}",
            f"{one.low:.2f} - {one.high:.2f}",
            p.get((system.name, one.name), ""),
        ]
        for of_one_kind in zip(*scores, strict=True)
        for system, one in zip(systems, of_one_kind, strict=True)
    ]
    print_table(["score", "system", "value", "95% interval", "p"], rows)
    if paired:
        print(f"p: how likely so large a difference from {systems[0].name} is if both are equally good")
    print_table(["score", "signature"], [[one.name, one.signature] for one in scores[0]])


def _scored(task: "Task", systems: Sequence["System"]) -> list["System"]:
    """The systems with what was counted in their outputs."""
    from jumok.analysis.scores.metrics import count_outputs

    options: dict[str, Any] = {"tokenize": task.tokenize, "lowercase": task.lowercase}
    with stages() as watch:
        return [
            replace(one, counts=count_outputs(one.outputs, task.references, task.metrics, **options, watch=watch))
            for one in systems
        ]


def _first(model: Path | None, output: str | None, sources: list[str], settings: dict[str, Any]) -> "System":
    from jumok.analysis.report.numbers import System
    from jumok.cli.systems import composed_lines, named, of_translations, translations

    if model is None:
        assert output is not None
        return System(named(output).name, composed_lines(output))
    return of_translations(named(str(model)).name, translations(model, sources, **settings))


def _report(path: Path, task: "Task", systems: list["System"]) -> None:
    from jumok.analysis.report.numbers import make_report
    from jumok.analysis.report.page import report_page
    from jumok.files import atomic_write

    with stages() as watch:
        found = make_report(task, systems, watch=watch)
    with atomic_write(path) as file:
        file.write(report_page(found).encode(errors="replace"))
    say(f"wrote {path}")


def _save(path: Path, outputs: Sequence[str]) -> None:
    from jumok.files import atomic_write

    with atomic_write(path) as file:
        file.write("".join(f"{output}\n" for output in outputs).encode())
