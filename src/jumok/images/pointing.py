"""Pointing accuracy: whether words attend to the things they name, on scenes, where these are known.

A word that names a thing (its size, colour or shape) points at it if the regions that the thing reaches into hold more
of the word's attention than those of any other thing, and more than half of all.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from jumok.errors import ArgumentError
from jumok.images.scenes import COLOURS, KOREAN, SHAPES, Language, Scene

KINDS = ("size", "colour", "shape")


class Pointing(NamedTuple):
    """The share of words naming a thing that point at it, in percent."""

    all: float
    size: float
    colour: float
    shape: float
    words: int
    """The number of words that name a thing."""
    mass: float
    """The share of attention, in percent, that lies on the thing a word names, on average."""


def pointing(maps: Iterable[tuple[Scene, Float[np.ndarray, "_ _ _"]]], *, language: Language = "en") -> Pointing:
    """The pointing accuracy on scenes, each with the attention of every word of its true caption."""
    hits: dict[str, list[bool]] = {kind: [] for kind in KINDS}
    masses: list[float] = []
    for scene, weights in maps:
        words = scene.words(language)
        if len(words) != len(weights):
            raise ArgumentError(
                f"the caption has {len(words)} words, but there is attention for {len(weights)}; the numbers must match"
            )
        reach = regions(scene, weights.shape[1:])
        for word, attention in zip(words, weights, strict=True):
            if word.thing is not None:
                on = (attention * reach).sum((1, 2))
                masses.append(float(on[word.thing]))
                hits[named_property(word.text)].append(bool(on.argmax() == word.thing and on[word.thing] > 0.5))
    every = [hit for kind in KINDS for hit in hits[kind]]
    return Pointing(
        _percent(every),
        _percent(hits["size"]),
        _percent(hits["colour"]),
        _percent(hits["shape"]),
        len(every),
        _percent(masses),
    )


def _percent(shares: Sequence[float]) -> float:
    return 100 * float(np.mean(shares)) if shares else float("nan")


def regions(scene: Scene, grid: tuple[int, ...]) -> Bool[np.ndarray, "thing row column"]:
    """The regions of a grid that each thing reaches into."""
    rows, columns = grid
    side = 8 * int(np.lcm(rows, columns))  # fine enough, and both divide it
    masks = scene.masks(side).reshape(len(scene.things), rows, side // rows, columns, side // columns)
    return np.asarray(masks.any((2, 4)))


def named_property(word: str) -> str:
    """What a naming word says of its thing: size, colour or shape."""
    english = {KOREAN[name]: name for name in KOREAN}
    stem = next((english[known] for known in sorted(english, key=len, reverse=True) if word.startswith(known)), word)
    return "colour" if stem in COLOURS else "shape" if stem in SHAPES else "size"
