"""`jumok compare`: models side by side, as curves on data of your own: quality, gradient and speed against length."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from jumok.cli.output import MAX_SOURCE, WIDEST_BEAM, print_json, print_table, progress, say, stages
from jumok.cli.systems import all_named, check_model, check_named

if TYPE_CHECKING:
    from jumok.analysis.draw.chart import LineChart
    from jumok.cli.systems import Named

compare = typer.Typer(name="compare", help="Compare models: quality, gradient or speed against length, as a picture.")

Models = Annotated[list[str], Argument(help="Model folders, each perhaps with a name: NAME=FOLDER.")]
Source = Annotated[str, Option(help="Test sentences, one a line; or pairs: .tsv, .jsonl, lines of `a ||| b`.")]
Reference = Annotated[str | None, Option(help="Their right translations; leave it out if --source holds pairs.")]
Joined = Annotated[str, Option(help="How many consecutive sentences make one text: 1,2,3 adds longer ones.")]
Out = Annotated[Path | None, Option(help="Also draw the curves: .svg, .png or .pdf.")]
Device = Annotated[str, Option(help="auto, cpu or cuda.")]
Json = Annotated[bool, Option("--json", help="Print the numbers as JSON.")]


@compare.command()
def length(
    models: Annotated[list[str], Argument(help="Model folders or files of outputs, each perhaps NAME=PATH.")],
    source: Source,
    reference: Reference = None,
    metric: Annotated[str, Option(help="bleu, chrf, ter, exact_match or wer.")] = "bleu",
    bands: Annotated[str, Option(help="The most words of each band of lengths.")] = "5,10,15,20,25,30,40,50",
    joined: Joined = "1",
    tokenize: Annotated[str, Option(help="sacrebleu's tokenizer for BLEU.")] = "13a",
    beam: Annotated[
        int | None, Option(min=1, max=WIDEST_BEAM, help="Hypotheses kept at each step; the model's own unless given.")
    ] = None,
    max_source: Annotated[int | None, Option(min=1, help=MAX_SOURCE)] = None,
    out: Out = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Quality against the length of the source."""
    from jumok.analysis.scores.length_bands import length_curves, score_bands
    from jumok.analysis.scores.metrics import check_scores
    from jumok.cli.systems import system_of

    check_scores([metric], tokenize)
    edges = _numbers(bands, "--bands")
    given = all_named(models)
    _check_out(out, [*(one.path for one in given), source, *([reference] if reference else [])])
    sources, references = _texts(source, reference, joined)
    check_named(given, len(sources))
    systems = [system_of(one, sources, device, beam=beam, max_source=max_source) for one in given]
    with stages() as watch:
        found = {
            one.name: score_bands(metric, sources, one.outputs, references, edges=edges, tokenize=tokenize, watch=watch)
            for one in systems
        }
    _draw(out, lambda: length_curves(found))
    first = next(iter(found.values()))
    if json:
        curves = {name: [asdict(band) for band in curve] for name, curve in found.items()}
        return print_json({"sentences": len(sources), "by_length": curves})
    rows = [
        [band.words, str(band.sentences), *(f"{curve[at].score.value:.2f}" for curve in found.values())]
        for at, band in enumerate(first)
    ]
    print_table(["source words", "sentences", *(f"{first[0].score.name}, {name}" for name in found)], rows)


@compare.command()
def gradient(
    models: Models,
    source: Source,
    reference: Reference = None,
    joined: Joined = "1",
    ends: Annotated[
        Literal["both", "last"], Option(help="Where encoders end: at both ends, or last if they only read forwards.")
    ] = "both",
    shortest: Annotated[int, Option(min=1, help="Only sources of at least this many tokens.")] = 20,
    sentences: Annotated[int, Option(min=1, help="At most this many sentences, from the first on.")] = 500,
    fresh: Annotated[
        bool, Option("--fresh", help="With the weights training began with, not the learnt ones.")
    ] = False,
    out: Out = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """How much of the loss's gradient arrives at a source token, against its distance from the end of the source."""
    from jumok.analysis.curves.gradient_reach import reach_by_distance, reach_curves

    given = all_named(models)
    _check_out(out, [*(one.path for one in given), source, *([reference] if reference else [])])
    sources, references = _texts(source, reference, joined)
    _check_models(given)
    found = {}
    for one in given:
        gradients = _gradients(one, sources, references, shortest, sentences, fresh, device)
        found[one.name] = reach_by_distance(gradients, ends=ends, shortest=shortest)
    title = f"Gradient that arrives at a source token, {'fresh weights' if fresh else 'trained models'}"
    _draw(out, lambda: reach_curves(found, title=title, ends=ends))
    if json:
        return print_json({name: [asdict(reach) for reach in curve] for name, curve in found.items()})
    longest = max(found.values(), key=len)
    shares = [[f"{reach.share:.3g}" for reach in curve] for curve in found.values()]
    rows = [
        [f"{reach.nearest}-{reach.farthest}", str(reach.tokens), *(one[at] if at < len(one) else "" for one in shares)]
        for at, reach in enumerate(longest)
    ]
    print_table(["tokens from the end", "tokens", *found], rows)


@compare.command()
def speed(
    models: Models,
    lengths: Annotated[str, Option(help="Tokens of source and target, separated by commas.")] = "8,16,32,64,128,256",
    tokens: Annotated[int, Option(min=1, help="Target tokens of a training batch, whatever the length.")] = 2048,
    repeats: Annotated[int, Option(min=1, help="Runs of each, of which the fastest counts.")] = 5,
    out: Out = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Time of a training step and of a decoded token against length, on random tokens."""
    from jumok.analysis.curves.step_times import speed_curves, step_times
    from jumok.model_folder import load_model
    from jumok.tasks.translator import find_device

    wanted, where = _numbers(lengths, "--lengths"), find_device(device)
    given = all_named(models)
    _check_out(out, [one.path for one in given])
    _check_models(given)
    found = {}
    for one in given:
        times = step_times(load_model(one.path, where).model, wanted, tokens=tokens, repeats=repeats)
        found[one.name] = list(progress(times, f"timing {one.name}", "lengths", total=len(wanted)))
    _draw(out, lambda: speed_curves(found, tokens=tokens, where=where.type.upper() if where.type == "cpu" else "GPU"))
    if json:
        return print_json({name: [asdict(one) for one in times] for name, times in found.items()})
    rows = [
        [name, str(one.length), f"{1000 * one.training:.1f}", f"{1000 * one.decoding:.2f}"]
        for name, times in found.items()
        for one in times
    ]
    print_table(["model", "tokens", "ms for a training batch", "ms for a decoded token"], rows)


def _gradients(
    given: "Named",
    sources: Sequence[str],
    references: Sequence[str],
    shortest: int,
    most: int,
    fresh: bool,
    device: str,
) -> list[Any]:
    """The gradients of the first `most` sentences that are long enough."""
    from jumok.analysis.curves.gradient_reach import batches_of, relative_gradients
    from jumok.model_folder import load_model, new_model
    from jumok.tasks.translator import find_device

    where = find_device(device)
    model, recipe, tokenizers = load_model(given.path, where)
    model = new_model(recipe, tokenizers).to(where) if fresh else model
    batches = batches_of(tokenizers, sources, references, shortest=shortest, most=most)
    found = relative_gradients(model, progress(batches, f"gradients of {given.name}", "batches"))
    return list(found)


def _texts(source: str, reference: str | None, joined: str) -> tuple[list[str], list[str]]:
    from jumok.analysis.scores.length_bands import joined as join
    from jumok.cli.systems import read_test_set
    from jumok.errors import ArgumentError

    sources, references = read_test_set(source, reference)
    together = _numbers(joined, "--joined")
    sources, references = join(sources, together), join(references, together)
    if not sources:
        raise ArgumentError(f"there is nothing to compare on: {source} has too few sentences")
    return sources, references


def _numbers(given: str, option: str) -> list[int]:
    from jumok.errors import ArgumentError

    try:
        return [int(one) for one in given.split(",")]
    except ValueError:
        raise ArgumentError(
            f"{option} {given!r} should be whole numbers separated by commas, such as 10,20,30"
        ) from None


def _check_models(given: "Sequence[Named]") -> None:
    for one in given:
        check_model(one.path)


def _check_out(out: Path | None, read: Sequence[str | Path]) -> None:
    from jumok.cli.output import check_written
    from jumok.errors import ArgumentError

    if out is not None and out.suffix.lower() not in (".svg", ".png", ".pdf"):
        raise ArgumentError(f"--out {out} should end in one of .svg, .png, .pdf")
    check_written("--out", out, read)


def _draw(out: Path | None, curves: Callable[[], Sequence["LineChart"]]) -> None:
    from jumok.analysis.draw.chart import charts_bytes
    from jumok.files import atomic_write

    if out is None:
        return
    content = charts_bytes(curves(), out.suffix.lstrip(".").lower())
    with atomic_write(out) as file:
        file.write(content)
    say(f"wrote {out}")
