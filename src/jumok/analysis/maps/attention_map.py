"""The attention matrix as one object: what each target token looked at, layer by layer and head by head."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.analysis.maps.source_layout import LINE, Place, place_from
from jumok.data.arrays import reason
from jumok.errors import ArgumentError, DataError
from jumok.files import parse_json

if TYPE_CHECKING:
    from rich.text import Text

Choice = int | slice | Sequence[int] | Literal["mean"] | None
"""Of layers or heads: one, some, their "mean", or None for all as they are."""

DIGITS = 6


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """Targets, which look, sources, which are looked at, and the weights between them, cut to true lengths.

    Both are words of a text unless `place` says otherwise: sources can be regions of an image or nodes of a graph.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Float[Tensor, "layer head target source"]
    layer_names: tuple[str, ...] = ()
    """Labels of the layers in pictures; default to their numbers, counted from 0."""
    head_names: tuple[str, ...] = ()
    place: Place = LINE
    """Where the sources lie."""
    title: str = ""
    """What it is a map of, in one line."""
    tokens: "AttentionMap | None" = None
    """The same map between the model's own tokens, where the words of this one hold several."""

    def __post_init__(self) -> None:
        _check_weights(self.weights, len(self.target), len(self.source))
        self.place.check(len(self.source), len(self.target))
        layers, heads = self.weights.shape[:2]
        for name, count in (("layer_names", layers), ("head_names", heads)):
            given = getattr(self, name) or tuple(map(str, range(count)))
            if len(given) != count:
                raise ArgumentError(f"{name} has {len(given)} names, but weights have {count}")
            object.__setattr__(self, name, tuple(given))
        if self.tokens is not None and self.tokens.weights.shape[:2] != self.weights.shape[:2]:
            seen = list(self.tokens.weights.shape[:2])
            raise ArgumentError(f"tokens has {seen} layers and heads, but weights have {[layers, heads]}")

    def select(self, *, layer: Choice = None, head: Choice = None) -> "AttentionMap":
        """The map of some layers and heads, counted from 0 (-1 is the last), or of their "mean"."""
        weights, layer_names = _chosen(self.weights, 0, layer, self.layer_names, "layer")
        weights, head_names = _chosen(weights, 1, head, self.head_names, "head")
        tokens = None if self.tokens is None else self.tokens.select(layer=layer, head=head)
        return replace(self, weights=weights, layer_names=layer_names, head_names=head_names, tokens=tokens)

    def mean(self) -> Float[Tensor, "target source"]:
        """Averaged over all layers and heads."""
        return self.weights.mean((0, 1))

    def entropy(self) -> Float[Tensor, "layer head target"]:
        """−Σ α log α of each row, in nats: 0 where one token is looked at, log n where n are, all alike."""
        entropy: Tensor = torch.special.entr(self.weights.clamp(min=0)).sum(-1)
        return entropy

    def merged(self, source_words: Sequence[int], target_words: Sequence[int]) -> "AttentionMap":
        """Tokens joined to words: token i belongs to word `words[i]`, words numbered from 0 in their order.

        A word is looked at as much as its tokens together, and looks where its tokens look on average, so that rows
        still sum to what they did. Where a word has several, the map keeps this one as its `tokens`.
        """
        columns = _membership(source_words)
        rows = _membership(target_words)
        rows = rows / rows.sum(1, keepdim=True)
        weights = rows @ self.weights.to(rows.dtype) @ columns.T
        source, target = _joined(self.source, source_words), _joined(self.target, target_words)
        tokens = None if weights.shape == self.weights.shape else self
        return replace(self, source=source, target=target, weights=weights, tokens=tokens)

    def crossings(self) -> int:
        """How many pairs of target words look at the source in the other order: 0 for a word-by-word translation."""
        best = self.mean().argmax(-1)
        earlier, later = best[:, None], best[None, :]
        return int((earlier > later).triu(1).sum())

    def as_plain(self) -> dict[str, Any]:
        """What `to_json` writes, as lists and texts."""
        return {
            **self._plain_matrix(),
            "names": {"layers": list(self.layer_names), "heads": list(self.head_names)},
            **({} if self.place is LINE else {"place": self.place.as_plain()}),
            **({"title": self.title} if self.title else {}),
            **({} if self.tokens is None else {"tokens": self.tokens._plain_matrix()}),
        }

    def _plain_matrix(self) -> dict[str, Any]:
        weights = self.weights.detach().double().cpu().numpy().round(DIGITS).tolist()
        return {"source": list(self.source), "target": list(self.target), "weights": weights}

    def to_json(self) -> str:
        """{"source": […], "target": […], "weights": [layer][head][target][source], "names": {"layers", "heads"}}.

        And "place", where the sources do not lie on a line, "title", where there is one, and where words hold several
        tokens, "tokens": {"source", "target", "weights"} between these. Weights are rounded to six decimals. `names`
        may be left out of what `from_json` reads.
        """
        return json.dumps(self.as_plain(), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "AttentionMap":
        """Read what `to_json` wrote, or anything of the same form."""
        try:
            found = parse_json(text)
            source, target, weights = _read_matrix(found)
            tokens = _read_matrix(found["tokens"]) if found.get("tokens") else None
            names = found.get("names") or {}
            layers, heads = (tuple(map(str, names.get(which) or ())) for which in ("layers", "heads"))
            place = place_from(found["place"]) if "place" in found else LINE
            title = str(found.get("title", ""))
            for part in (*source, *target, *(tokens[0] + tokens[1] if tokens else ()), *layers, *heads, title):
                part.encode()  # half a surrogate pair is no text, and could never be written
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RuntimeError) as error:
            raise DataError(
                f"this is not the JSON of an attention map ({type(error).__name__}: {reason(error)}); it must hold "
                "source, target and weights [layer][head][target][source]"
            ) from None
        if not weights.numel() and not (source and target):  # empty lists say nothing of what is in them
            weights = weights.new_zeros(len(layers) or 1, len(heads) or 1, len(target), len(source))
        if weights.dim() != 4:
            raise DataError(f"weights are {list(weights.shape)}; wanted [layer][head][target][source]")
        between = None if tokens is None else cls(*tokens, layers, heads, place)
        return cls(source, target, weights, layers, heads, place, title, between)

    def save(self, path: str | Path, *, title: str | None = None, grid: bool = False) -> Path:
        """Write a picture, a page or the numbers, by the ending of `path`: .png .svg .pdf .html .json.

        Pictures show the average of all layers and heads (of a graph, of the last layer's heads), or with `grid` each
        by itself; pages and numbers hold everything.
        """
        from jumok.analysis.draw.save import save_map

        return save_map(self if title is None else replace(self, title=title), Path(path), grid=grid)

    def terminal(self, *, width: int = 100, plain: bool = False) -> "Text":
        """The same picture for a terminal of so many columns; `plain` is without colours."""
        from jumok.analysis.draw.save import terminal_text

        return terminal_text(self, width=width, plain=plain)


def _read_matrix(plain: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...], Tensor]:
    source, target = (_words(plain[side]) for side in ("source", "target"))
    return source, target, torch.tensor(plain["weights"], dtype=torch.float32)


def word_numbers(text: str, spans: Sequence[tuple[int, int]]) -> list[int]:
    """For each piece [start, end) of a text, the number of the word it lies in.

    Words are what spaces divide; in scripts written without spaces (Han, kana, Thai, ...) every piece is a word.
    """
    numbers: list[int] = []
    word, at = 0, 0
    begun = False  # whether the word has a letter yet: a piece may be nothing but the space before a word
    for start, end in spans:
        divided = any(letter.isspace() for letter in text[at:start])
        touching = begun and start >= at and any(map(spaceless, text[at - 1 : at] + text[start : start + 1]))
        if numbers and (divided or touching):
            word, begun = word + 1, False
        numbers.append(word)
        begun = begun or end > start
        at = max(at, end)
    return numbers


# Han and kana with their punctuation and wide forms; Thai, Lao, Myanmar, Khmer.
SPACELESS = (
    (0x0E00, 0x0EFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x2E80, 0x312F),
    (0x31A0, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0xFF00, 0xFF9F),
    (0x20000, 0x3FFFF),
)


def spaceless(letter: str) -> bool:
    """Whether the letter belongs to a script that writes no spaces between words."""
    return any(first <= ord(letter) <= last for first, last in SPACELESS)


def _words(given: Any) -> tuple[str, ...]:
    """The words of one side of a map in JSON."""
    if not isinstance(given, list) or any(isinstance(word, list | dict) for word in given):
        raise TypeError("source and target must be lists of texts")
    return tuple(map(str, given))


def _check_weights(weights: Any, targets: int, sources: int) -> None:
    if not isinstance(weights, Tensor) or weights.dim() != 4 or tuple(weights.shape[2:]) != (targets, sources):
        seen = str(list(weights.shape)) if isinstance(weights, Tensor) else type(weights).__name__
        raise ArgumentError(
            f"weights are {seen}, but there are {targets} target and {sources} source tokens; "
            f"wanted [layer, head, {targets}, {sources}]"
        )
    if not bool(torch.isfinite(weights).all()) or bool((weights < 0).any()):
        raise ArgumentError("weights must be finite and not negative")


def _chosen(
    weights: Tensor, axis: int, choice: Choice, names: tuple[str, ...], what: str
) -> tuple[Tensor, tuple[str, ...]]:
    count = weights.shape[axis]
    if choice is None:
        return weights, names
    if isinstance(choice, str):
        if choice != "mean":
            raise ArgumentError(f'{what} = {choice!r} must be a number, a list of numbers, or "mean"')
        return weights.mean(axis, keepdim=True), ("mean",)
    chosen = range(count)[choice] if isinstance(choice, slice) else [choice] if isinstance(choice, int) else choice
    for one in chosen:
        if isinstance(one, bool) or not isinstance(one, int):
            raise ArgumentError(f'{what} = {choice!r} must be a number, a list of numbers, or "mean"')
    places = [place_of(one, count, what) for one in chosen]
    index = torch.tensor(places, dtype=torch.long, device=weights.device)
    return weights.index_select(axis, index), tuple(names[place] for place in places)


def place_of(number: int, count: int, what: str) -> int:
    """Which of `count` layers or heads is meant by a number, counted from 0, -1 being the last."""
    if not -count <= number < count:
        raise ArgumentError(f"{what} = {number} was asked for, but there are {count}, counted from 0")
    return number % count


def _membership(words: Sequence[int]) -> Float[Tensor, "word token"]:
    numbers = torch.tensor(list(words), dtype=torch.long)
    return (torch.arange(int(numbers.max()) + 1 if len(words) else 0)[:, None] == numbers).float()


def _joined(tokens: Sequence[str], words: Sequence[int]) -> tuple[str, ...]:
    count = max(words, default=-1) + 1
    return tuple("".join(token for token, at in zip(tokens, words, strict=True) if at == word) for word in range(count))
