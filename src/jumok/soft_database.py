"""A soft database D = {(kᵢ, vᵢ)}: every key answers a query q, weighted by its similarity α(q, kᵢ)."""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from numbers import Real
from typing import Any

import torch
from jaxtyping import Float
from rich.cells import cell_len, set_cell_size
from torch import Tensor

from jumok.attention import Weights, attend, gaussian, scaled_dot
from jumok.attention.attend import ScoreLike
from jumok.errors import ArgumentError

LONGEST = 3
"""The longest n-gram counted."""
SYLLABLE = "HANGUL SYLLABLE "
START, END = "\u0002", "\u0003"  # control characters that no key is typed with


def ngrams(text: str) -> Counter[str]:
    """Counts of the 1- to LONGEST-grams of a string between boundary marks.

    Case is folded, and letters are taken apart (NFD), so that é resembles e, and Hangul syllables compare by their
    jamo. Hangul also counts in Latin letters, so that 리, "ri", resembles Li.
    """
    spellings = {text, "".join(map(_in_latin_letters, unicodedata.normalize("NFC", text)))}
    counts: Counter[str] = Counter()
    for spelling in sorted(spellings):
        letters = START + unicodedata.normalize("NFD", spelling.casefold()) + END
        counts.update(letters[i : i + n] for n in range(1, LONGEST + 1) for i in range(len(letters) - n + 1))
    del counts[START], counts[END]  # every string has them
    return counts


class NgramIndex:
    """For each n-gram, the keys that contain it and their share of it, counts divided by the length of all counts."""

    def __init__(self, keys: list[str]) -> None:
        self.size = len(keys)
        self.shares: dict[str, dict[int, float]] = defaultdict(dict)
        for row, key in enumerate(keys):
            for gram, share in _unit(ngrams(key)).items():
                self.shares[gram][row] = share

    def vectors(self, query: str) -> tuple[Float[Tensor, " gram"], Float[Tensor, "key gram"]]:
        """The query and every key as vectors whose dot product is their cosine; only n-grams of the query count."""
        weights = _unit(ngrams(query))
        keys = torch.zeros(self.size, len(weights), dtype=torch.float64)
        for column, gram in enumerate(weights):
            shares = self.shares.get(gram, {})
            keys[list(shares), column] = torch.tensor(list(shares.values()), dtype=torch.float64)
        return torch.tensor(list(weights.values()), dtype=torch.float64), keys


def _unit(counts: Counter[str]) -> dict[str, float]:
    length = sqrt(sum(count**2 for count in counts.values()))
    return {gram: count / length for gram, count in counts.items()}


def _in_latin_letters(character: str) -> str:
    """A Hangul syllable as Unicode's name for it spells it; every other character stays."""
    name = unicodedata.name(character, "")
    return name.removeprefix(SYLLABLE) if name.startswith(SYLLABLE) else character


BAR = 20
"""The width of a full bar when an answer is printed."""
ROWS = 10
"""Number of keys printed."""


@dataclass(frozen=True, eq=False)
class Answer:
    """The answer to a query: one value, and the weight of every key."""

    query: Any
    value: Any
    """Σ α v where the values are numbers or vectors; else the value of the key with the largest weight."""
    weights: list[tuple[Any, Any, float]]
    """(key, value, weight), largest weight first."""

    def __str__(self) -> str:
        rows = [(str(key), str(value), weight) for key, value, weight in self.weights[:ROWS]]
        keys = max(cell_len(key) for key, _, _ in rows)
        values = max(cell_len(value) for _, value, _ in rows)
        lines = [
            f"{set_cell_size(key, keys)}  {set_cell_size(value, values)}  {weight:6.1%}  {bar(weight)}".rstrip()
            for key, value, weight in rows
        ]
        left = [f"… and {len(self.weights) - ROWS} more"] if len(self.weights) > ROWS else []
        return "\n".join([f"{self.query} → {self.value}{self._doubt}", *lines, *left])

    @property
    def _doubt(self) -> str:
        alike = len(self.weights) > 1 and self.weights[0][2] - self.weights[-1][2] < 1e-9
        return " (all keys resemble it equally)" if alike else ""


class SoftDatabase:
    """Pairs of keys and values, looked up by similarity instead of equality.

    >>> db = SoftDatabase({"Li": "Mu", "Hu": "Rachel", "Smola": "Alex"})
    >>> db("Li").value, db("Smolla").value
    ('Mu', 'Alex')

    Keys are strings, compared by the cosine of their character n-grams, or vectors, compared by distance:

        α(q, k) ∝ exp(sharpness · cos(q, k))            strings
        α(q, k) ∝ exp(−sharpness · ‖q − k‖² / 2)        vectors, or any `score` of jumok.attention

    Values that are numbers or vectors are averaged, Σ α v (differentiable for vectors); of others the most similar
    key's value is returned.
    """

    def __init__(
        self,
        pairs: Mapping[Any, Any] | Iterable[tuple[Any, Any]],
        *,
        sharpness: float = 10.0,
        score: ScoreLike | None = None,
    ) -> None:
        """From a dict, a set or a list of pairs. A larger `sharpness` gives the best key more weight."""
        if not (isinstance(sharpness, float | int) and 0 < sharpness < float("inf")):
            raise ArgumentError(f"sharpness must be a finite number greater than 0, but it is {sharpness!r}")
        self.keys, self.values = _columns(pairs)
        self._blend = _as_vectors(self.values)
        self._index: NgramIndex | None = None
        if all(isinstance(key, str) for key in self.keys):
            if score is not None:
                raise ArgumentError(
                    "score applies only to keys that are vectors; strings are compared by their n-grams"
                )
            self._index = NgramIndex(self.keys)
            self._score: ScoreLike = scaled_dot(sharpness)
        else:
            self._vectors = _key_vectors(self.keys)
            self._score = gaussian(sharpness**-0.5) if score is None else score

    def __len__(self) -> int:
        return len(self.keys)

    def __call__(self, query: Any) -> Answer:
        """The answer to a string, or to a vector as wide as the keys."""
        vector, keys = self._vectors_of(query)
        values = torch.ones(len(self), 1, dtype=keys.dtype) if self._blend is None else self._blend.to(keys.dtype)
        attended = attend(vector[None], keys, values.reshape(len(self), -1), score=self._score)
        if not attended.weights().any():  # out of every kernel's reach: the nearest key answers alone
            nearest = torch.linalg.vector_norm(keys - vector, dim=-1).argmin()
            only = torch.arange(len(self)) == nearest
            attended = attend(vector[None], keys, values.reshape(len(self), -1), normalise="mean", visible=only)
        order, weights = _sorted(attended.weights)
        ranked = [(self.keys[i], self.values[i], weight) for i, weight in zip(order, weights, strict=True)]
        if self._blend is None:
            return Answer(query, ranked[0][1], ranked)
        mixed = attended.values.reshape(self._blend.shape[1:])
        return Answer(query, mixed if mixed.dim() else mixed.item(), ranked)

    def _vectors_of(self, query: Any) -> tuple[Float[Tensor, " dim"], Float[Tensor, "key dim"]]:
        """The query and the keys as vectors."""
        if self._index is not None:
            if not isinstance(query, str):
                raise ArgumentError(f"the keys are strings, but the query is {type(query).__name__}: {query!r}")
            return self._index.vectors(query)
        width, vector = self._vectors.shape[-1], _as_vector(query)
        if vector is None or vector.shape != (width,):
            description = f"{type(query).__name__}: {query!r}" if vector is None else f"of shape {list(vector.shape)}"
            raise ArgumentError(f"the keys are vectors of {width} numbers, but the query is {description}")
        if not vector.isfinite().all():
            raise ArgumentError(f"the query must be finite numbers, but it is {query!r}")
        return vector, self._vectors


def bar(weight: float) -> str:
    """A weight as a bar of at most BAR blocks, to an eighth of a block."""
    eighths = round(weight * BAR * 8)
    return "█" * (eighths // 8) + ("▏▎▍▌▋▊▉"[eighths % 8 - 1] if eighths % 8 else "")


def _columns(pairs: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    if isinstance(pairs, Mapping):
        pairs = pairs.items()
    elif isinstance(pairs, str) or not isinstance(pairs, Iterable):
        raise ArgumentError(f"pairs must be a dict or pairs of key and value, but it is {type(pairs).__name__}")
    elif isinstance(pairs, set | frozenset):
        pairs = sorted(pairs, key=repr)  # a set of strings has another order in every process
    rows = list(pairs)
    for number, pair in enumerate(rows, start=1):
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            raise ArgumentError(f"pair {number} must be a key and a value, but it is {pair!r}")
    if not rows:
        raise ArgumentError("the database is empty; it needs at least one pair of key and value")
    return [key for key, _ in rows], [value for _, value in rows]


def _key_vectors(keys: list[Any]) -> Float[Tensor, "key dim"]:
    for key in keys:
        vector = _as_vector(key)
        if vector is None or vector.dim() != 1:
            raise ArgumentError(f"keys must be all strings or all vectors of numbers, but one is {key!r}")
    vectors = _as_vectors(keys)
    if vectors is None:
        widths = sorted({len(vector) for key in keys if (vector := _as_vector(key)) is not None})
        raise ArgumentError(f"keys must be equally wide, but there are widths {', '.join(map(str, widths))}")
    return vectors.reshape(len(keys), -1)


def _as_vectors(items: list[Any]) -> Tensor | None:
    """All of them as one tensor, or None where they are not numbers of one shape."""
    vectors = [_as_vector(item) for item in items]
    if any(vector is None or vector.shape != vectors[0].shape for vector in vectors):  # type: ignore[union-attr]
        return None
    stacked = torch.stack(vectors)  # type: ignore[arg-type]
    return stacked.squeeze(-1) if all(isinstance(item, Real) for item in items) else stacked


def _as_vector(item: Any) -> Float[Tensor, "..."] | None:
    """A number or an array as a tensor of at least one axis; None for what is neither."""
    if isinstance(item, str | bool):
        return None
    try:
        tensor = item if isinstance(item, Tensor) else torch.tensor(item)
    except (TypeError, ValueError, RuntimeError):
        return None
    if tensor.is_complex() or tensor.dtype == torch.bool:
        return None
    return tensor.double() if tensor.dim() else tensor.double()[None]


def _sorted(weights: Weights) -> tuple[list[int], list[float]]:
    row = weights().detach()[0]
    ranked, order = row.sort(descending=True, stable=True)
    return order.tolist(), ranked.tolist()
