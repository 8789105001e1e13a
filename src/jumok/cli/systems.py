"""What a command is given to judge: a model folder, or a file of outputs, perhaps with a name of its own."""

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jumok.cli.output import say
from jumok.screen import progress

if TYPE_CHECKING:
    from jumok.analysis.maps.attention_map import AttentionMap
    from jumok.analysis.report.numbers import System
    from jumok.data.pairs import Columns
    from jumok.tasks.translator import Translation


class Named(NamedTuple):
    """A path, and what to call it."""

    name: str
    path: Path


def named(given: str) -> Named:
    """NAME=PATH, or a PATH that is called as its last part is; a path that exists may have an = in it."""
    name, equals, path = given.partition("=")
    if equals and name and path and not Path(given).exists():
        return Named(name, Path(path))
    return Named(Path(given).resolve().name or given, Path(given))


def all_named(given: Sequence[str]) -> list[Named]:
    """Several models, no two of one name."""
    from jumok.errors import ArgumentError

    found = [named(one) for one in given]
    names = [one.name for one in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ArgumentError(f"two models are called {twice!r}; give each a name: NAME=FOLDER")
    return found


def composed_lines(path: str | Path) -> list[str]:
    """The lines of a file as they are scored: "한" is the same text as a syllable and in three letters."""
    from jumok.data import read_lines

    return composed(list(read_lines(path)), path)


def composed(lines: Sequence[str], path: str | Path) -> list[str]:
    """Lines in Unicode's composed form; how many were not is said of the file they came from."""
    found = [unicodedata.normalize("NFC", line) for line in lines]
    if changed := sum(one != other for one, other in zip(lines, found, strict=True)):
        say(f"{path}: {changed} lines are not in Unicode's composed form (NFC); they are scored in it")
    return found


def read_test_set(source: str | None, reference: str | None, columns: str | None = None) -> tuple[list[str], list[str]]:
    """The test sentences, none if they are not given, and their right translations; or both of one file of pairs."""
    from jumok.data import read_lines, read_pairs
    from jumok.errors import ArgumentError

    if reference is not None:
        if columns is not None:
            raise ArgumentError(f"--columns {columns} is for a file of pairs, but --reference names a file of its own")
        references = composed_lines(reference)
        sources = [] if source is None else list(read_lines(source))
        if source is not None:
            check_lines("--source", source, len(sources), reference, len(references))
        return sources, references
    assert source is not None
    wanted = parsed_columns(columns)
    try:
        pairs = list(read_pairs(source, columns=wanted))
    except ArgumentError:
        if wanted is not None:
            raise
        raise ArgumentError(
            f"--reference is needed: the right translations, one a line; --source {source} holds no pairs (.tsv, "
            ".jsonl or lines of `a ||| b`)"
        ) from None
    return [pair.source for pair in pairs], composed([pair.target for pair in pairs], source)


def parsed_columns(given: str | None) -> "Columns | None":
    """Two columns of a TSV, counted from 1 or by name, or two keys of JSON objects: "1,3" or "en,ko"."""
    from jumok.errors import ArgumentError

    if given is None:
        return None
    both = [one.strip() for one in given.split(",")]
    if len(both) != 2 or not all(both):
        raise ArgumentError(f"--columns {given!r} must name two, source and target, such as 1,3 or en,ko")
    first, second = both
    counted = all(one.isdecimal() and len(one) < 10 for one in both)
    return (int(first), int(second)) if counted else (first, second)


def translations(model: Path, sources: Sequence[str], device: str, **settings: Any) -> list["Translation"]:
    """Every source, translated with these settings of decoding; with progress."""
    from jumok.tasks.translator import Translator

    translator = Translator.load(model, device=device)
    stream = translator.stream(sources, chunk=256, **settings)
    found = list(progress(stream, f"translating with {model}", "lines", total=len(sources)))
    if cut := sum(len(translation.pieces) > 1 for translation in found):
        said = "1 line was too long for it and was" if cut == 1 else f"{cut:,} lines were too long for it and were"
        most = settings.get("max_source") or translator.longest
        say(f"{model}: {said} translated in parts (--max-source {most} tokens)")
    if longer := sum("length" in translation.warnings() for translation in found):
        said = "1 line has a sentence" if longer == 1 else f"{longer:,} lines have a sentence"
        say(f"{model}: {said} longer than the {translator.longest} tokens it was trained on")
    return found


def check_named(given: Sequence[Named], sentences: int) -> None:
    """Refuse, before any work, what is neither a model that translates nor a file of as many outputs."""
    from jumok.data import read_lines
    from jumok.errors import ArgumentError, ModelError

    for name, path in given:
        if not path.exists():
            raise ModelError(f"there is no model folder {path}, and no file of outputs; `jumok train` writes a model")
        if not path.is_file():
            check_model(path)
        elif (lines := sum(1 for _ in read_lines(path))) != sentences:
            raise ArgumentError(f"{name} has {lines} outputs, but there are {sentences} source sentences")


def check_lines(option: str, path: str, lines: int, reference: str, references: int) -> None:
    """Refuse a file that has not one line for each of the references."""
    from jumok.errors import ArgumentError

    if lines != references:
        counted = "1 line" if lines == 1 else f"{lines} lines"
        raise ArgumentError(
            f"{option} {path} has {counted} but --reference {reference} has {references}: line n of each must be the "
            "same sentence"
        )


def check_model(folder: Path) -> None:
    """Refuse a folder that is no whole model, or one that does not translate."""
    from jumok.tasks import TRANSLATION
    from jumok.tasks import check_model as check_folder

    check_folder(folder, TRANSLATION)


def system_of(given: Named, sources: Sequence[str], device: str, **settings: Any) -> "System":
    """The outputs of a model on the sources, with these settings of decoding, or those of a file."""
    from jumok.analysis.report.numbers import System

    if given.path.is_file():
        return System(given.name, composed_lines(given.path))
    return of_translations(given.name, translations(given.path, sources, device, **settings))


def of_translations(name: str, found: Sequence["Translation"]) -> "System":
    """What a model said, with the attention of each sentence where it has any."""
    from jumok.analysis.report.numbers import System

    def attention(at: int) -> "AttentionMap | None":
        return _map(found[at])

    whole = next((at for at, one in enumerate(found) if len(one.pieces) == 1), None)
    attends = whole is not None and attention(whole) is not None
    return System(name, [one.text for one in found], attention if attends else None)


def _map(translation: "Translation") -> "AttentionMap | None":
    from jumok.errors import ArgumentError

    try:
        return translation.attention()
    except ArgumentError:  # an empty line, one translated in parts, or a model without attention
        return None
