"""`jumok look MODEL "text"` and `jumok look CAPTIONER image.jpg`: where every word that a model says looked."""

import os
import sys
from dataclasses import replace
from os.path import exists, isdir, isfile  # a text too long to be a name is none of them
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jumok.cli.bundled import named_or_bundled
from jumok.errors import ArgumentError

if TYPE_CHECKING:
    from jumok.analysis.attention_map import AttentionMap

LONGEST_TITLE = 90


class Looked(NamedTuple):
    """What there is to say of an output, and its map; one for every part of a text that was too long for the model."""

    facts: dict[str, Any]
    maps: "list[AttentionMap]"
    warnings: tuple[str, ...] = ()

    def select(self, layer: list[int] | None, head: list[int] | None) -> "Looked":
        """The same with these layers and heads of the maps, all of them where none are asked for."""
        return self._replace(maps=[shown.select(layer=layer or None, head=head or None) for shown in self.maps])

    def as_plain(self) -> dict[str, Any]:
        """For JSON: `attention` is the map, `parts` are the maps where there are several."""
        maps = [shown.as_plain() for shown in self.maps]
        return self.facts | ({"attention": maps[0]} if len(maps) == 1 else {"parts": maps})


def looked_in_text(
    model: str | None,
    text: str | None,
    target: str | None,
    *,
    beam: int | None,
    max_source: int | None,
    words: bool,
    device: str,
) -> Looked:
    """The model's own translation, or one that is given, and its maps."""
    from jumok.translator import Translator

    folder, text = _model_and_text(model, text)
    text, target = _typed(text), None if target is None else _typed(target)
    translator = Translator.load(folder, device=device)
    if target is not None:
        shown = translator.attention(text, target, words=words, max_source=max_source)
        return Looked({"source": text, "text": target}, [_titled(shown, text, target)])
    (own,) = translator.translate([text], beam=beam, max_source=max_source)
    facts = {"source": text, "text": own.text, "score": round(own.score, 4)}
    decode = translator.trained.tokenizers.target.decode
    titles = [(source.strip(), decode(ids)) for source, ids in own.pieces]
    maps = own.attention_maps(words=words)
    titled = [_titled(shown, *title) for shown, title in zip(maps, titles, strict=True)]
    return Looked(facts, titled, tuple(own.warnings().values()))


def _titled(shown: "AttentionMap", source: str, target: str) -> "AttentionMap":
    title = f"{source} → {target}"
    return replace(shown, title=title if len(title) <= LONGEST_TITLE else "")


def looked_in_image(
    model: str, image: str | None, target: str | None, *, beam: int | None, words: bool, device: str
) -> Looked:
    """The model's own caption, or one that is given, and its map."""
    from jumok.captioner import Captioner

    image, target = _image(model, image), None if target is None else _typed(target)
    captioner = Captioner.load(model, device=device)
    if target is not None:
        return Looked({"image": image, "text": target}, [captioner.attention(image, target, words=words)])
    (own,) = captioner.caption([image], beam=beam)
    return Looked({"image": image, "text": own.text, "score": round(own.score, 4)}, [own.attention(words=words)])


def _typed(text: str) -> str:
    """A text of the command line in UTF-8; in another locale Python hides its bytes in half characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return os.fsencode(text).decode(errors="replace")
    return text


def _model_and_text(model: str | None, text: str | None) -> tuple[Path, str]:
    """`look MODEL TEXT`, `look TEXT` with the bundled model, or either with the text on standard input."""
    if model is not None and text is None and not isdir(model):
        if isfile(model) or (model and Path(model).parent != Path() and isdir(Path(model).parent)):
            raise ArgumentError(f'there is no model folder {model}; to look at a text: jumok look MODEL "text"')
        model, text = None, model
    if model is not None and text is not None and isdir(text) and not isdir(model):
        raise ArgumentError(f"{model!r} is no model folder, but {text!r} is; the model comes first")
    if text not in (None, "-") and isfile(str(text)) and (model is None or isdir(model)):
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
