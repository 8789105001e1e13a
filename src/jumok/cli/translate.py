"""`jumok translate`: standard input to standard output, one text a line."""

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from re import fullmatch
from typing import Annotated, Any

from typer import Argument, Option

from jumok.cli.output import (
    HELP,
    MAX_SOURCE,
    WIDEST_BEAM,
    group_progress,
    named_folder,
    named_or_bundled,
    print_json,
    progress,
    say,
)


def translate(
    model: Annotated[Path | None, Argument(help=HELP)] = None,
    file: Annotated[str | None, Argument(help="File to translate, as with --source.")] = None,
    source: Annotated[str, Option(help='File to translate, also .gz or .xz; "-" is standard input.')] = "-",
    beam: Annotated[
        int | None, Option(min=1, max=WIDEST_BEAM, help="Hypotheses kept at each step; 1 is greedy.")
    ] = None,
    n_best: Annotated[
        int, Option(min=1, max=WIDEST_BEAM, help="Translations for each line, tab-separated with their scores.")
    ] = 1,
    length_penalty: Annotated[
        float | None, Option(min=-5, max=5, help="0 favours short outputs, 1 is neutral.")
    ] = None,
    min_length: Annotated[int | None, Option(min=0, help="Fewest tokens of an output.")] = None,
    max_length: Annotated[int | None, Option(min=1, help="Most tokens of an output.")] = None,
    no_repeat: Annotated[int | None, Option(min=0, help="No run of this many tokens twice; 0 allows all.")] = None,
    max_source: Annotated[int | None, Option(min=1, help=MAX_SOURCE)] = None,
    split: Annotated[bool, Option(help="Translate texts that are too long in parts, rather than refuse them.")] = True,
    attention: Annotated[
        Path | None,
        Option(
            parser=named_folder, metavar="<path>", help="Also draw an attention map for each line into this folder."
        ),
    ] = None,
    format: Annotated[str, Option(help="Format of these maps: svg, png, pdf, html, json or txt.")] = "svg",
    batch: Annotated[int, Option(min=1, help="Lines translated at once, at most.")] = 1024,
    device: Annotated[str, Option(help="auto, cpu or cuda.")] = "auto",
    json: Annotated[bool, Option("--json", help="One JSON object a line, with scores.")] = False,
) -> None:
    """Translate one text a line; empty lines stay empty, and line n of the output belongs to line n of the input."""
    from jumok.cli.streams import is_live, live_groups
    from jumok.data import read_lines
    from jumok.files import STDIN, check_place
    from jumok.tasks.translator import Translator

    if attention is not None:
        check_place(attention)
    older = set() if attention is None else _maps(attention)
    _check_format(format)
    source = _source(model, file, source)
    translator = Translator.load(named_or_bundled(model), device=device)
    barred = not _is_typed(source) and not sys.stdout.isatty()  # a bar would stand in the line of who types or reads
    tell = group_progress("translating", "line") if barred else None
    settings: dict[str, Any] = {"beam": beam, "n_best": n_best, "no_repeat": no_repeat, "split": split, "tell": tell}
    settings |= {"length_penalty": length_penalty, "min_length": min_length, "max_length": max_length}
    settings["max_source"] = max_source
    if source == STDIN and is_live():
        found = translator.stream_groups(live_groups(batch), **settings)
    else:
        found = translator.stream(read_lines(source), chunk=batch, **settings)
    if _is_typed(source):
        say("type a text and press Enter; Ctrl-D ends")
    doubts = Doubts()
    for number, translation in enumerate(progress(found, "translating", "lines") if barred else found, start=1):
        if attention is not None and translation.pieces:
            older -= set(_draw(translation, attention, f"{number:04}", format))
        _print(translation, n_best, json)
        if len(translation.pieces) > 1:
            say(f"line {number} was too long for the model and translated in {len(translation.pieces)} parts")
        doubts.tell(number, translation.warnings())
    doubts.end()
    if older:
        maps = "1 map" if len(older) == 1 else f"{len(older)} maps"
        say(f"{attention} also holds {maps} of an earlier run, such as {min(older).name}")


class Doubts:
    """Says what makes a translation doubtful: of every kind the first in full, of the others how many there were."""

    def __init__(self) -> None:
        self.lines: Counter[str] = Counter()

    def tell(self, number: int, warnings: Mapping[Any, str]) -> None:
        """What there is to say of a line."""
        for kind, message in warnings.items():
            if not self.lines[kind]:
                say(f"line {number}: {message}")
            self.lines[kind] += 1

    def end(self) -> None:
        """No more lines come."""
        what = {"length": "are longer than the model was trained on", "words": "are of words unknown to the model"}
        for kind, lines in self.lines.items():
            if lines > 1:
                say(f"in all, {lines:,} lines {what[kind]}")


def _draw(translation: Any, folder: Path, name: str, format: str) -> list[Path]:
    """Save the map, or those of the parts, of a line."""
    from jumok.analysis import draw

    maps = translation.attention_maps()
    names = [name] if len(maps) == 1 else [f"{name}-{part}" for part in range(1, len(maps) + 1)]
    paths = [folder / f"{one}.{format}" for one in names]
    for path, shown in zip(paths, maps, strict=True):
        draw.save(shown, path)
    return paths


def _maps(folder: Path) -> set[Path]:
    """The maps that a folder holds, of whatever kind."""
    from jumok.analysis.draw import FORMATS

    kinds = "|".join(kind for kind in FORMATS if kind != "txt")  # 0001.txt may be the user's own
    return {path for path in folder.glob("*.*") if fullmatch(rf"\d{{4,}}(-\d+)?\.({kinds})", path.name)}


def _is_typed(source: str) -> bool:
    return source == "-" and sys.stdin is not None and sys.stdin.isatty()


def _print(translation: Any, n_best: int, json: bool) -> None:
    best = translation.n_best or (translation,)
    if json:
        found = [{"text": one.text, "score": round(one.score, 4)} for one in best]
        doubts = list(translation.warnings().values())
        more = ({"n_best": found} if n_best > 1 else {}) | ({"warnings": doubts} if doubts else {})
        print_json({"source": translation.source, **found[0], **more})
    elif n_best > 1 and translation.pieces:  # an empty line stays one
        print("\t".join(f"{one.text}\t{one.score:.4f}" for one in best), flush=True)
    else:
        print(translation.text, flush=True)


def _source(model: Path | None, file: str | None, source: str) -> str:
    """The file to translate; whoever wrote a text behind the command is told where texts come from."""
    from os.path import exists, isdir, isfile

    from jumok.errors import ArgumentError

    if file is not None and source != "-":
        raise ArgumentError(f"two files to translate are named: {file} and --source {source}")
    if file not in (None, "-") and not exists(str(file)):
        raise ArgumentError(f"there is no file {file}; if that is a text: echo {file!r} | jumok translate {model}")
    if str(model) == "-" and not isdir("-"):
        raise ArgumentError(
            "- is no model folder; standard input is read unless a file is named, and the model stands before that: "
            "jumok translate [MODEL] [FILE]"
        )
    if model is not None and isfile(model):
        raise ArgumentError(f"{model} is a file, not a model folder; to translate it: jumok translate --source {model}")
    if model is not None and " " in str(model) and not isdir(model):
        raise ArgumentError(
            f"there is no model folder {str(model)!r}; if that is a text: echo {str(model)!r} | jumok translate"
        )
    return file or source


def _check_format(format: str) -> None:
    from jumok.analysis.draw import FORMATS
    from jumok.errors import ArgumentError

    if format not in FORMATS:
        raise ArgumentError(f"--format {format!r} is not a format of maps; choose from {', '.join(FORMATS)}")
