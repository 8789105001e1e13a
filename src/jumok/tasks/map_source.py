"""What `jumok look` is to show: a text, an image or a node of a graph, checked by the task that reads it."""

import sys
from os.path import isfile  # which is False for a text that is too long to be a file name
from pathlib import Path
from typing import NamedTuple

from jumok.errors import ArgumentError
from jumok.files import decode_argument, known_kind, open_bytes, read_lines
from jumok.images import SUFFIXES
from jumok.model_folder import RECIPE


class MapSource(NamedTuple):
    """What stands behind the model on the command line."""

    model: str | None
    """The folder as it was named; None for the bundled model."""
    text: str | None
    """The argument behind it."""
    node: str | None
    """The node of --node."""


def text_to_map(source: MapSource) -> str:
    """The text that was given, or the first line of standard input."""
    if source.text in (None, "-"):
        return decode_argument(_first_line())
    _check_text(source.model, str(source.text))
    return decode_argument(str(source.text))


def _check_text(model: str | None, text: str) -> None:
    """Refuse an empty text, and the name of a file in place of one."""
    shown, reader = model or "[MODEL]", model or "the model"
    if not text.strip():
        raise ArgumentError(f'the text is empty; write one: jumok look {shown} "text"')
    if isfile(Path(text, RECIPE)):
        raise ArgumentError(
            f'{text} is a model folder; the text comes after the models: jumok look {shown} {text} "text"'
        )
    if not isfile(text):
        if " " not in text and text.lower().endswith(SUFFIXES):
            raise ArgumentError(f"there is no image {text}; to look at an image: jumok look CAPTIONER image.jpg")
        return
    with open_bytes(text) as file:
        kind = known_kind(file.read(8))
    if kind:
        raise ArgumentError(
            f"{reader} translates text, but {text} is {kind}; use a captioner for images, or give a text: "
            f'jumok look {shown} "text"'
        )
    raise ArgumentError(
        f'{reader} translates text, but {text} is a file; give the text itself: jumok look {shown} "text", or a line '
        f"of the file: jumok look {shown} - < {text}"
    )


def _first_line() -> str:
    if sys.stdin is not None and sys.stdin.isatty():
        raise ArgumentError('there is no text to look at; write: jumok look [MODEL] "text"')
    line = next(read_lines("-"), None)
    if line is None:
        raise ArgumentError(
            'standard input is empty; write: jumok look [MODEL] "text", or: jumok look [MODEL] - < FILE'
        )
    return line
