"""`jumok backtranslate`: training pairs of monolingual text and what a model of the other direction makes of it."""

from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from jumok.cli import library
from jumok.cli.arguments import (
    DecodingEngine,
    DecodingPrecision,
    Device,
    FromLanguage,
    MaxSource,
    Tag,
    TaskFile,
    ToLanguage,
    decoding_option,
    task_or,
)
from jumok.cli.output import print_json, say
from jumok.errors import ArgumentError, DataError
from jumok.files import display_name, read_lines
from jumok.progress import ProgressBars


def backtranslate(
    models: Annotated[
        list[Path],
        Argument(help="Model from your target language to your source language. Several folders form an ensemble."),
    ],
    text: Annotated[
        str, Option(help='Text in your target language, one per line, also .gz or .xz; "-" is standard input.')
    ],
    out: Annotated[
        Path, Option(metavar="<file.tsv>", help="File to write: lines of a synthetic source, a tab and the text.")
    ],
    from_language: FromLanguage = None,
    to_language: ToLanguage = None,
    samples: Annotated[
        int | None, decoding_option("samples", "Number of sources sampled for each text; defaults to 1.", min=1)
    ] = None,
    temperature: Annotated[float | None, decoding_option("temperature", "Values below 1 favour likely tokens.")] = None,
    top_k: Annotated[int | None, decoding_option("top_k", "Sample only from the k most likely tokens.")] = None,
    top_p: Annotated[
        float | None,
        decoding_option("top_p", "Sample only from the most likely tokens that together have this probability."),
    ] = None,
    seed: Annotated[int | None, decoding_option("seed", "Random seed.")] = None,
    beam: Annotated[
        int | None, decoding_option("beam", "Use beam search with this many hypotheses instead of sampling.")
    ] = None,
    max_ratio: Annotated[
        float,
        Option(
            min=0,
            help="Drop pairs whose longer side has more than this many times the tokens of the other; 0 keeps all.",
        ),
    ] = 3.0,
    max_source: MaxSource = None,
    tag: Tag = None,
    batch: Annotated[int, Option(min=1, help="Maximum number of texts translated and saved at once.")] = 1024,
    task: TaskFile = None,
    device: Device = "auto",
    engine: DecodingEngine = None,
    precision: DecodingPrecision = None,
    json: Annotated[bool, Option("--json", help="Print the counts as JSON.")] = False,
) -> None:
    """Make synthetic training pairs from monolingual text, with a model of the opposite direction."""
    library.back_translation.check_output(out)
    library.model_folder.check_output_path("--out", out, [text, *models])
    drawing = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    settings = _settings(beam, samples, drawing)
    settings |= {"engine": engine, "precision": precision, "max_source": max_source, "tag": tag}
    texts = _texts(text)
    its_task = task_or(library.tasks.TRANSLATION, task, models=len(models))
    translator = library.tasks.load(models, device=device, task=its_task).between(from_language, to_language)
    with ProgressBars() as bars:

        def show(numbers: range, share: float) -> None:
            bars.show_share(f"lines {numbers[0]:,} to {numbers[-1]:,}", share)

        settings |= {"max_ratio": max_ratio, "chunk": batch, "tell": show}
        steps = library.back_translation.back_translate(translator, texts, out, **settings)
        done = next(steps)
        if done.lines:
            say(f"resuming after line {done.lines:,}")
        for done in steps:  # noqa: B007
            pass
    say(f'{done.report}; to train on {out}, add [[data.mix]] with pairs = "{out}" to a recipe (docs/fine_tuning.md)')
    if json:
        print_json({"pairs": str(out), "lines": done.lines, "kept": done.report.kept, **asdict(done.report)})


def _texts(path: str) -> Iterator[str]:
    """The lines of a file; an error if all are empty."""
    lines, first = read_lines(path), []
    for line in lines:
        first.append(line)
        if line.strip():
            return chain(first, lines)
    raise DataError(f"{display_name(path)} has no text; name a file with one text per line: --text FILE")


def _settings(beam: int | None, samples: int | None, drawing: dict[str, Any]) -> dict[str, Any]:
    """Those of beam search if it is asked for, otherwise those of drawing."""
    if beam is None:
        return {"samples": samples or 1, **drawing}
    drawing = {"samples": samples, **drawing}
    if options := [name for name, value in drawing.items() if value is not None]:
        raise ArgumentError(
            f"--{options[0].replace('_', '-')} applies only to sampling, but --beam asks for beam search; leave one out"
        )
    return {"samples": 0, "beam": beam}
