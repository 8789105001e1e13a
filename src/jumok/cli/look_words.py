"""`jumok look MODEL "text"` and `jumok look CAPTIONER image.jpg`: where every word that a model says looked."""

import os
import sys
from dataclasses import replace
from os.path import exists, isdir, isfile  # a text too long to be a name is none of them
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumok.cli.bundled import named_or_bundled
from jumok.errors import ArgumentError

if TYPE_CHECKING:
    from jumok.analysis.attention_map import AttentionMap
    from jumok.captioner import Caption
    from jumok.translator import Translation

LONGEST_TITLE = 90


def looked_in_text(
    model: str | None, text: str | None, target: str | None, *, beam: int | None, words: bool, device: str
) -> tuple[dict[str, Any], "AttentionMap"]:
    """What there is to say of the translation, the model's own or one that is given, and its map."""
    from jumok.translator import Translator

    folder, text = _model_and_text(model, text)
    text, target = _typed(text), None if target is None else _typed(target)
    translator = Translator.load(folder, device=device)
    if target is None:
        (own,) = translator.translate([text], split=False, beam=beam)
        found, shown = _own(own, words)
    else:
        found, shown = {"text": target}, translator.attention(text, target, words=words)
    title = f"{text} → {found['text']}"
    return {"source": text, **found}, replace(shown, title=title if len(title) <= LONGEST_TITLE else "")


def looked_in_image(
    model: str, image: str | None, target: str | None, *, beam: int | None, words: bool, device: str
) -> tuple[dict[str, Any], "AttentionMap"]:
    """What there is to say of the caption, the model's own or one that is given, and its map."""
    from jumok.captioner import Captioner

    image, target = _image(model, image), None if target is None else _typed(target)
    captioner = Captioner.load(model, device=device)
    if target is None:
        (own,) = captioner.caption([image], beam=beam)
        found, shown = _own(own, words)
    else:
        found, shown = {"text": target}, captioner.attention(image, target, words=words)
    return {"image": image, **found}, shown


def _typed(text: str) -> str:
    """A text of the command line in UTF-8; in another locale Python hides its bytes in half characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return os.fsencode(text).decode(errors="replace")
    return text


def _own(said: "Translation | Caption", words: bool) -> tuple[dict[str, Any], "AttentionMap"]:
    return {"text": said.text, "score": round(said.score, 4)}, said.attention(words=words)


def _model_and_text(model: str | None, text: str | None) -> tuple[Path, str]:
    """`look MODEL TEXT`, `look TEXT` with the bundled model, or either with the text on standard input."""
    if model is not None and text is None and not isdir(model):
        if isfile(model) or (model and Path(model).parent != Path() and isdir(Path(model).parent)):
            raise ArgumentError(f'there is no model folder {model}; to look at a text: jumok look MODEL "text"')
        model, text = None, model
    if model is not None and text is not None and isdir(text) and not isdir(model):
        raise ArgumentError(f"{model!r} is no model folder, but {text!r} is; the model comes first")
    if text not in (None, "-") and isfile(str(text)):
        named = model or "[MODEL]"
        if kind := _kind(str(text)):
            raise ArgumentError(
                f"{model or 'the model'} reads text, and {text} is {kind}; images are for captioners, and this one is "
                f'given a text: jumok look {named} "text"'
            )
        raise ArgumentError(
            f"{model or 'the model'} reads text, and {text} is a file; give it the text itself: jumok look {named} "
            f'"text", or a line of the file: jumok look {named} - < {text}'
        )
    folder = named_or_bundled(Path(model) if model is not None else None)
    return folder, _first_line() if text in (None, "-") else str(text)


def _kind(path: str) -> str:
    """What a file is that is no text, by its beginning."""
    from jumok.data.files import known_kind, open_bytes

    with open_bytes(path) as file:
        return known_kind(file.read(8))


def _first_line() -> str:
    from jumok.data import read_lines

    if sys.stdin is not None and sys.stdin.isatty():
        raise ArgumentError('there is no text to look at; write: jumok look [MODEL] "text"')
    return next(read_lines("-"), "")


def _image(model: str, image: str | None) -> str:
    if image is None:
        raise ArgumentError(f"{model} is a captioner; say which image to look at: jumok look {model} image.jpg")
    if not exists(image):
        raise ArgumentError(
            f"there is no image {image}; {model} is a captioner and looks at images: jumok look {model} image.jpg, and "
            "a caption of your own goes behind --target"
        )
    return image
