"""`jumok compare`: models side by side, as curves of quality, gradient and speed against length."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer import Argument, Option

from jumok.cli import library
from jumok.cli.arguments import (
    PAIRS,
    Beam,
    Device,
    MaxSource,
    NamedPath,
    TaskFile,
    TestReference,
    check_picture_kind,
    named_paths,
    parse_numbers,
    task_or,
)
from jumok.cli.output import print_json, print_table, say
from jumok.cli.usage import Command, CommandGroup
from jumok.devices import find_device
from jumok.files import checked_format
from jumok.progress import ProgressBars

if TYPE_CHECKING:
    from jumok.analysis.draw.chart import LineChart

compare = typer.Typer(
    name="compare",
    cls=CommandGroup,
    help="Compare models: quality, gradient or speed against length, as a table and a picture.",
    no_args_is_help=True,
    add_completion=False,
)

Models = Annotated[list[str], Argument(help="Model folders, or NAME=FOLDER.")]
Source = Annotated[str, Option(help=f"Test sentences, one per line; {PAIRS}")]
Joined = Annotated[str, Option(help="How many consecutive sentences to join into one text; 1,2,3 adds longer texts.")]
Out = Annotated[Path | None, Option(help="Also draw the curves: .svg, .png or .pdf.")]
Json = Annotated[bool, Option("--json", help="Print the numbers as JSON.")]


@compare.command(cls=Command)
def length(
    models: Annotated[list[str], Argument(help="Model folders or files of outputs, or NAME=PATH.")],
    source: Source,
    reference: TestReference = None,
    metric: Annotated[str, Option(help="bleu, chrf, ter, exact_match or wer.")] = "bleu",
    bands: Annotated[str, Option(help="Upper limits of the bands of lengths, in words.")] = "5,10,15,20,25,30,40,50",
    joined: Joined = "1",
    tokenize: Annotated[str, Option(help="sacrebleu's tokenizer for BLEU.")] = "13a",
    beam: Beam = None,
    max_source: MaxSource = None,
    out: Out = None,
    task: TaskFile = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Compare translation quality by the length of the source."""
    library.metrics.check_scores([metric], tokenize)
    edges, sizes, paths = parse_numbers(bands, "--bands"), parse_numbers(joined, "--joined"), named_paths(models)
    _check_out(out, paths, source, reference)
    sources, references = library.comparison.read_joined(source, reference, sizes)
    its_task, scores = task_or(library.tasks.TRANSLATION, task), library.translation_scores
    opened = [(name, scores.open_system(its_task, name, path, len(sources), device=device)) for name, path in paths]
    with ProgressBars() as bars:
        decoding: dict[str, Any] = {"beam": beam, "max_source": max_source}
        systems = [scores.make_system(name, system, sources, watch=bars, **decoding) for name, system in opened]
        curves = library.comparison.quality_by_length(
            systems, sources, references, metric=metric, edges=edges, tokenize=tokenize, watch=bars
        )
    _draw(out, lambda: library.score_by_length.length_curves(curves))
    if json:
        by_length = {name: [asdict(band) for band in curve] for name, curve in curves.items()}
        return print_json({"sentences": len(sources), "by_length": by_length})
    first = next(iter(curves.values()))
    rows = [
        [band.words, str(band.sentences), *(f"{curve[number].score.value:.2f}" for curve in curves.values())]
        for number, band in enumerate(first)
    ]
    print_table(["source words", "sentences", *(f"{first[0].score.name}, {name}" for name in curves)], rows)


@compare.command(cls=Command)
def gradient(
    models: Models,
    source: Source,
    reference: TestReference = None,
    joined: Joined = "1",
    ends: Annotated[
        Literal["both", "last"],
        Option(help="Ends of the source to measure from: both (bidirectional encoders) or last (unidirectional)."),
    ] = "both",
    shortest: Annotated[int, Option(min=1, help="Use only sources of at least this many tokens.")] = 20,
    sentences: Annotated[int, Option(min=1, help="Use at most this many sentences, starting from the first.")] = 500,
    fresh: Annotated[bool, Option("--fresh", help="Use random initial weights instead of the trained ones.")] = False,
    out: Out = None,
    task: TaskFile = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Compare the gradient of the loss at source tokens by their distance from the end of the source."""
    sizes, paths = parse_numbers(joined, "--joined"), named_paths(models)
    _check_out(out, paths, source, reference)
    sources, references = library.comparison.read_joined(source, reference, sizes)
    with ProgressBars() as bars:
        curves = library.comparison.gradient_by_distance(
            dict(paths),
            sources,
            references,
            ends=ends,
            shortest=shortest,
            sentences=sentences,
            untrained=fresh,
            device=device,
            task=task_or(library.tasks.TRANSLATION, task),
            watch=bars,
        )
    title = f"Gradient that arrives at a source token, {'fresh weights' if fresh else 'trained models'}"
    _draw(out, lambda: library.gradient_reach.reach_curves(curves, title=title, ends=ends))
    if json:
        return print_json({name: [asdict(reach) for reach in curve] for name, curve in curves.items()})
    longest = max(curves.values(), key=len)
    shares = [[f"{reach.share:.3g}" for reach in curve] for curve in curves.values()]
    rows = [
        [
            f"{reach.nearest}-{reach.farthest}",
            str(reach.tokens),
            *(column[number] if number < len(column) else "" for column in shares),
        ]
        for number, reach in enumerate(longest)
    ]
    print_table(["tokens from the end", "tokens", *curves], rows)


@compare.command(cls=Command)
def speed(
    models: Models,
    lengths: Annotated[
        str, Option(help="Lengths of source and target in tokens, separated by commas.")
    ] = "8,16,32,64,128,256",
    tokens: Annotated[int, Option(min=1, help="Target tokens of a training batch at every length.")] = 2048,
    repeats: Annotated[int, Option(min=1, help="Number of runs; the fastest one counts.")] = 5,
    out: Out = None,
    task: TaskFile = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Compare the time of a training step and of a decoded token by length, on random tokens."""
    token_counts, paths, where = parse_numbers(lengths, "--lengths"), named_paths(models), find_device(device)
    _check_out(out, paths)
    its_task = task_or(library.tasks.TRANSLATION, task)
    with ProgressBars() as bars:
        curves = library.comparison.speed_by_length(
            dict(paths), token_counts, tokens=tokens, repeats=repeats, device=device, task=its_task, watch=bars
        )
    _draw(
        out,
        lambda: library.step_times.speed_curves(curves, tokens=tokens, where="CPU" if where.type == "cpu" else "GPU"),
    )
    if json:
        return print_json({name: [asdict(time) for time in times] for name, times in curves.items()})
    rows = [
        [name, str(time.length), f"{1000 * time.training:.1f}", f"{1000 * time.decoding:.2f}"]
        for name, times in curves.items()
        for time in times
    ]
    print_table(["model", "tokens", "ms for a training batch", "ms for a decoded token"], rows)


def _check_out(out: Path | None, models: Sequence[NamedPath], *inputs: str | None) -> None:
    if out is not None:
        check_picture_kind(checked_format(out, library.draw.CHART_FORMATS))
    library.model_folder.check_output_path("--out", out, [*(path for _, path in models), *inputs])


def _draw(out: Path | None, charts: Callable[[], Sequence["LineChart"]]) -> None:
    if out is not None:
        library.comparison.save_charts(charts(), out)
        say(f"wrote {out}")
