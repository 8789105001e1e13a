"""Attention maps as plain data: the weights of every layer and head between named targets and named sources."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.analysis.maps.source_layout import TEXT, SourceLayout, layout_from
from jumok.errors import ArgumentError, DataError, error_text
from jumok.files import parse_json

Choice = int | slice | Sequence[int] | Literal["mean"] | None
"""A choice of layers or heads: a number, several numbers, a slice, "mean" for their average, or None for all."""

MapKind = Literal["cross", "encoder", "decoder"]
"""Attention of a target to its source, or self-attention: source words to each other, target words to those before."""
MAP_KINDS: tuple[MapKind, ...] = get_args(MapKind)
DIGITS = 6
BEGIN, END = "<s>", "</s>"
"""Beginning and end of a sentence."""


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """How much every target attends to every source, in each layer and head; there is no padding.

    Targets and sources are words unless `layout` says otherwise: sources can be regions of an image or nodes of a
    graph. `jumok.analysis.draw` draws maps.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Float[Tensor, "layer head target source"]
    layer_names: tuple[str, ...] = ()
    """Labels of the layers; default to their numbers, counted from 0."""
    head_names: tuple[str, ...] = ()
    layout: SourceLayout = TEXT
    """Arrangement of the sources."""
    title: str = ""
    """Title of the map, one line."""
    tokens: "AttentionMap | None" = None
    """The same map between the model's tokens, if words consist of several."""
    kind: MapKind = "cross"
    """In self-attention of an encoder or a decoder, `target` attends to `source`, and both are words of one text."""

    def __post_init__(self) -> None:
        _check_weights(self.weights, len(self.target), len(self.source))
        self.layout.check(len(self.source), len(self.target))
        layers, heads = self.weights.shape[:2]
        for name, count in (("layer_names", layers), ("head_names", heads)):
            names = getattr(self, name) or tuple(map(str, range(count)))
            if len(names) != count:
                raise ArgumentError(f"{name} has {len(names)} names, but weights have {count}")
            object.__setattr__(self, name, tuple(names))
        checked_kind(self.kind)
        if self.tokens is not None and self.tokens.weights.shape[:2] != self.weights.shape[:2]:
            shape = list(self.tokens.weights.shape[:2])
            raise ArgumentError(f"tokens has {shape} layers and heads, but weights have {[layers, heads]}")

    def __repr__(self) -> str:
        layers, heads, targets, sources = self.weights.shape
        size = f"{sources} sources × {targets} targets, {layers} layers × {heads} heads"
        return f"AttentionMap({size}, kind={self.kind!r}{f', title={self.title!r}' if self.title else ''})"

    def _repr_html_(self) -> str:
        """The map as the output of a notebook cell."""
        from jumok.analysis.draw.notebook import map_html  # only here: maps are plain data without what draws them

        return map_html(self)

    def select(self, *, layer: Choice = None, head: Choice = None) -> "AttentionMap":
        """Select layers and heads, counted from 0 (-1 is the last), or average them with "mean"."""
        weights, layer_names = _chosen(self.weights, 0, layer, self.layer_names, "layer")
        weights, head_names = _chosen(weights, 1, head, self.head_names, "head")
        tokens = None if self.tokens is None else self.tokens.select(layer=layer, head=head)
        return replace(self, weights=weights, layer_names=layer_names, head_names=head_names, tokens=tokens)

    def mean(self) -> Float[Tensor, "target source"]:
        """Average over all layers and heads."""
        return self.weights.mean((0, 1))

    def entropy(self) -> Float[Tensor, "layer head target"]:
        """Entropy −Σ α log α of each row in nats: 0 for all weight on one source, log n if it is uniform over n."""
        entropy: Tensor = torch.special.entr(self.weights.clamp(min=0)).sum(-1)
        return entropy

    def merged(self, source_words: Sequence[int], target_words: Sequence[int]) -> "AttentionMap":
        """Merge tokens into words: token i belongs to word `words[i]`; words are numbered from 0 in order.

        The weight on a source word is the sum over its tokens, and the row of a target word is the mean over its
        tokens, so row sums do not change. If a word has several tokens, the result keeps this map as its `tokens`.
        """
        columns = _membership(source_words)
        rows = _membership(target_words)
        rows = rows / rows.sum(1, keepdim=True)
        weights = rows @ self.weights.to(rows.dtype) @ columns.T
        source, target = _joined(self.source, source_words), _joined(self.target, target_words)
        tokens = None if weights.shape == self.weights.shape else self
        return replace(self, source=source, target=target, weights=weights, tokens=tokens)

    def crossings(self) -> int:
        """Count the pairs of target words whose main source words are in the opposite order; "</s>" is no word."""
        rows, columns = (
            [index for index, word in enumerate(side) if word != END] for side in (self.target, self.source)
        )
        if not rows or not columns:
            return 0
        best = self.mean()[rows][:, columns].argmax(-1)
        earlier, later = best[:, None], best[None, :]
        return int((earlier > later).triu(1).sum())

    def as_plain(self) -> dict[str, Any]:
        """Return the content of `to_json` as lists and strings."""
        return {
            **self._plain_matrix(),
            "names": {"layers": list(self.layer_names), "heads": list(self.head_names)},
            **({} if self.layout is TEXT else {"layout": self.layout.as_plain()}),
            **({"title": self.title} if self.title else {}),
            **({"kind": self.kind} if self.kind != "cross" else {}),
            **({} if self.tokens is None else {"tokens": self.tokens._plain_matrix()}),
        }

    def _plain_matrix(self) -> dict[str, Any]:
        weights = self.weights.detach().double().cpu().numpy().round(DIGITS).tolist()
        return {"source": list(self.source), "target": list(self.target), "weights": weights}

    def to_json(self) -> str:
        """{"source": […], "target": […], "weights": [layer][head][target][source], "names": {"layers", "heads"}}.

        Optional keys: "layout", the layout of sources that are not words; "title"; "kind", if it is not "cross"; and
        "tokens": {"source", "target", "weights"}, the map between tokens. Weights are rounded to six decimals.
        `from_json` does not need "names".
        """
        return json.dumps(self.as_plain(), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "AttentionMap":
        """Read a map in the format of `to_json`."""
        try:
            plain = parse_json(text)
            source, target, weights = _read_matrix(plain)
            tokens = _read_matrix(plain["tokens"]) if plain.get("tokens") else None
            names = plain.get("names") or {}
            layers, heads = (tuple(map(str, names.get(axis) or ())) for axis in ("layers", "heads"))
            layout = layout_from(plain["layout"]) if "layout" in plain else TEXT
            title, kind = str(plain.get("title", "")), checked_kind(plain.get("kind", "cross"))
            for part in (*source, *target, *(tokens[0] + tokens[1] if tokens else ()), *layers, *heads, title):
                part.encode()  # raises for half a surrogate pair, which could never be written
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RuntimeError) as error:
            raise DataError(
                f"this is not the JSON of an attention map ({type(error).__name__}: {error_text(error)}); it must hold "
                "source, target and weights [layer][head][target][source]"
            ) from None
        if not weights.numel() and not (source and target):  # empty lists do not show the number of their axes
            weights = weights.new_zeros(len(layers) or 1, len(heads) or 1, len(target), len(source))
        if weights.dim() != 4:
            raise DataError(f"weights are {list(weights.shape)}; expected [layer][head][target][source]")
        token_map = None if tokens is None else cls(*tokens, layers, heads, layout, kind=kind)
        return cls(source, target, weights, layers, heads, layout, title, token_map, kind)


def _read_matrix(plain: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...], Tensor]:
    source, target = (_words(plain[side]) for side in ("source", "target"))
    return source, target, torch.tensor(plain["weights"], dtype=torch.float32)


def word_numbers(text: str, spans: Sequence[tuple[int, int]]) -> list[int]:
    """Return the number of the word that each piece [start, end) of a text belongs to.

    Spaces separate words; in scripts written without spaces (Han, kana, Thai, ...) every piece is a word.
    """
    numbers: list[int] = []
    word, position = 0, 0
    begun = False  # whether the word has a letter yet: a piece can be just the space before a word
    for start, end in spans:
        divided = any(letter.isspace() for letter in text[position:start])
        around = text[position - 1 : position] + text[start : start + 1]
        touching = begun and start >= position and any(map(spaceless, around))
        if numbers and (divided or touching):
            word, begun = word + 1, False
        numbers.append(word)
        begun = begun or end > start
        position = max(position, end)
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
    """Whether the letter belongs to a script without spaces between words."""
    return any(first <= ord(letter) <= last for first, last in SPACELESS)


def checked_kind(kind: Any) -> MapKind:
    """Return the kind of a map, or raise an ArgumentError if there is no such kind."""
    if kind not in MAP_KINDS:
        raise ArgumentError(f"kind = {kind!r} must be one of {', '.join(MAP_KINDS)}")
    return kind  # type: ignore[no-any-return]


def _words(words: Any) -> tuple[str, ...]:
    """Read the words of one side of a map."""
    if not isinstance(words, list) or any(isinstance(word, list | dict) for word in words):
        raise TypeError("source and target must be lists of texts")
    return tuple(map(str, words))


def _check_weights(weights: Any, targets: int, sources: int) -> None:
    if not isinstance(weights, Tensor) or weights.dim() != 4 or tuple(weights.shape[2:]) != (targets, sources):
        description = str(list(weights.shape)) if isinstance(weights, Tensor) else type(weights).__name__
        raise ArgumentError(
            f"weights are {description}, but there are {targets} target and {sources} source tokens; "
            f"expected [layer, head, {targets}, {sources}]"
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
    if any(isinstance(number, bool) or not isinstance(number, int) for number in chosen):
        raise ArgumentError(f'{what} = {choice!r} must be a number, a list of numbers, or "mean"')
    numbers = [resolve_index(number, count, what) for number in chosen]
    index = torch.tensor(numbers, dtype=torch.long, device=weights.device)
    return weights.index_select(axis, index), tuple(names[number] for number in numbers)


def resolve_index(number: int, count: int, what: str) -> int:
    """Return the index of a layer or head; -1 is the last."""
    if not -count <= number < count:
        raise ArgumentError(f"{what} = {number} does not exist; there are {count}, counted from 0")
    return number % count


def _membership(words: Sequence[int]) -> Float[Tensor, "word token"]:
    numbers = torch.tensor(list(words), dtype=torch.long)
    return (torch.arange(int(numbers.max()) + 1 if len(words) else 0)[:, None] == numbers).float()


def _joined(tokens: Sequence[str], words: Sequence[int]) -> tuple[str, ...]:
    count = max(words, default=-1) + 1
    pairs = list(zip(tokens, words, strict=True))
    return tuple("".join(token for token, number in pairs if number == word) for word in range(count))
