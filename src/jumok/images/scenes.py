"""Pictures with a known caption: coloured shapes, their relative positions, and which word names which shape.

Scene number n of a split is a pure function of (seed, split, n). The thing nearest to the middle is what the caption is
about, and the others, from left to right, are where it is. So there is one right caption, and as no two things of a
scene have one colour, every word that names a thing has one place in the picture to look at.
"""

from collections.abc import Iterator
from hashlib import blake2b
from itertools import pairwise
from math import cos, hypot, pi, sin
from random import Random
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, UInt8

from jumok.data.pairs import Split

Language = Literal["en", "ko"]

RADII = {"small": 0.09, "": 0.14, "large": 0.2}
"""Half the extent of a thing, as a share of the picture's side; that of middle size goes without a word."""
COLOURS = {
    "red": (214, 40, 40),
    "green": (38, 150, 60),
    "blue": (40, 80, 210),
    "yellow": (240, 205, 40),
    "purple": (140, 60, 170),
    "black": (35, 35, 35),
}
SHAPES = ("circle", "square", "triangle", "star")
KOREAN = {
    **{"small": "작은", "large": "큰"},
    **{"red": "빨간", "green": "초록", "blue": "파란", "yellow": "노란", "purple": "보라", "black": "검은"},
    **{"circle": "동그라미", "square": "네모", "triangle": "세모", "star": "별"},
    **{"left of": "왼쪽에", "right of": "오른쪽에", "above": "위에", "below": "아래에"},
}
GAP = 0.04  # between things, at least
NEARER = 0.12  # by how much the first thing is nearer to the middle than any other
LEFTER = 0.08  # by how much a thing lies further left than the next one
SIDEWAYS = 1.6  # one thing lies beside another if it is this many times as far across as up or down
TRIES = 30  # to find room; large things need many, and after these others are drawn
FINE = 4  # samples along each side of a pixel


class Thing(NamedTuple):
    """A coloured shape; places are shares of the picture's side, from its upper left corner."""

    size: str
    colour: str
    shape: str
    x: float
    y: float

    @property
    def radius(self) -> float:
        """Half its extent."""
        return RADII[self.size]


class Word(NamedTuple):
    """A word of a caption, and the thing it names: a number in `Scene.things`, None for words such as "of"."""

    text: str
    thing: int | None


class Scene(NamedTuple):
    """Two or three things: that nearest to the middle, then the others from left to right."""

    things: tuple[Thing, ...]
    paper: int
    """Brightness of the background."""
    grain: int
    """Seed of the noise on it."""

    def words(self, language: Language = "en") -> tuple[Word, ...]:
        """The caption, word by word."""
        return tuple(_korean(self.things) if language == "ko" else _english(self.things))

    def caption(self, language: Language = "en") -> str:
        """The caption."""
        return " ".join(word.text for word in self.words(language))

    def masks(self, side: int) -> Bool[np.ndarray, "thing {side} {side}"]:
        """The pixels that each thing covers, at least in part, in a picture of this many pixels a side."""
        return np.stack([_cover(thing, side) > 0 for thing in self.things])

    def picture(self, side: int) -> UInt8[np.ndarray, "{side} {side} 3"]:
        """The scene with this many pixels a side, edges smoothed, a little noise everywhere."""
        noise = np.random.default_rng(self.grain).normal(0, 4, (side, side, 1))
        canvas = np.full((side, side, 3), float(self.paper))
        for thing in self.things:
            cover = _cover(thing, side)[..., None]
            canvas = canvas * (1 - cover) + np.array(COLOURS[thing.colour]) * cover
        return np.clip(canvas + noise, 0, 255).astype(np.uint8)


def scenes(count: int, *, split: Split = "train", seed: int = 0) -> Iterator[Scene]:
    """The first scenes of a split."""
    return (scene(number, split=split, seed=seed) for number in range(count))


def scene(number: int, *, split: Split = "train", seed: int = 0) -> Scene:
    """One scene; no things of one split are together in another."""
    draws = Random(f"scenes/{seed}/{split}/{number}")
    count = draws.choice((2, 3))
    while True:
        appearances = _appearances(draws, count)
        tries = TRIES if _split_of(appearances) == split else 0
        for things in filter(None, (_placed(draws, appearances) for _ in range(tries))):
            return Scene(things, draws.randrange(205, 250), draws.getrandbits(32))


def relation(first: Thing, second: Thing) -> str | None:
    """Where the first thing is, seen from the second; None if that is unclear."""
    across, down = first.x - second.x, first.y - second.y
    if abs(across) > SIDEWAYS * abs(down):
        return "right of" if across > 0 else "left of"
    if abs(down) > SIDEWAYS * abs(across):
        return "below" if down > 0 else "above"
    return None


Appearance = tuple[str, str, str]
"""Size, colour and shape of a thing."""


def _appearances(draws: Random, count: int) -> list[Appearance]:
    colours = draws.sample(list(COLOURS), count)
    return [(draws.choice(list(RADII)), colour, draws.choice(SHAPES)) for colour in colours]


def _placed(draws: Random, appearances: list[Appearance]) -> tuple[Thing, ...] | None:
    """Things of these appearances at random positions; None if they touch or their relative position is unclear."""
    first = Thing(*appearances[0], draws.gauss(0.5, 0.12), draws.gauss(0.5, 0.12))
    others = tuple(_beside(draws, first, appearance) for appearance in appearances[1:])
    things = (first, *others)
    inside = all(thing.radius + 0.02 < x < 0.98 - thing.radius for thing in things for x in (thing.x, thing.y))
    nearest = all(_from_middle(first) + NEARER < _from_middle(other) for other in others)
    ordered = all(thing.x + LEFTER < next_.x for thing, next_ in pairwise(others))
    apart = all(_apart(thing, other) for count, thing in enumerate(things) for other in things[:count])
    return things if inside and nearest and ordered and apart else None


def _beside(draws: Random, first: Thing, appearance: Appearance) -> Thing:
    """A thing clearly to the left or right of the first, above or below it."""
    away = draws.choice((-1, 1)) * (RADII[appearance[0]] + first.radius + GAP + 0.25 * draws.random())
    aside = draws.uniform(-1, 1) * abs(away) / (1.01 * SIDEWAYS)
    across, down = draws.choice(((away, aside), (aside, away)))
    return Thing(*appearance, first.x + across, first.y + down)


def _from_middle(thing: Thing) -> float:
    return hypot(thing.x - 0.5, thing.y - 0.5)


def _apart(thing: Thing, other: Thing) -> bool:
    return hypot(thing.x - other.x, thing.y - other.y) > thing.radius + other.radius + GAP


def _split_of(appearances: list[Appearance]) -> Split:
    digest = blake2b(repr(appearances).encode(), digest_size=8).digest()
    return {0: "test", 1: "valid"}.get(int.from_bytes(digest) % 20, "train")  # type: ignore[return-value]


def _english(things: tuple[Thing, ...]) -> Iterator[Word]:
    """A small red circle left of a blue square and above a large green star."""
    yield from _named(things, 0)
    for number in range(1, len(things)):
        if number > 1:
            yield Word("and", None)
        for word in str(relation(things[0], things[number])).split():
            yield Word(word, None)
        yield from _named(things, number)


def _named(things: tuple[Thing, ...], number: int) -> Iterator[Word]:
    yield Word("a", None)
    for text in (things[number].size, things[number].colour, things[number].shape):
        if text:
            yield Word(text, number)


def _korean(things: tuple[Thing, ...]) -> Iterator[Word]:
    """작은 빨간 동그라미가 파란 네모 왼쪽에 있고 큰 초록 별 위에 있다."""
    first = things[0]
    yield from _described(things, 0)
    yield Word(KOREAN[first.shape] + ("이" if first.shape == "star" else "가"), 0)
    for number in range(1, len(things)):
        if number > 1:
            yield Word("있고", None)
        yield from _described(things, number)
        yield Word(KOREAN[things[number].shape], number)
        yield Word(KOREAN[str(relation(first, things[number]))], None)
    yield Word("있다", None)


def _described(things: tuple[Thing, ...], number: int) -> Iterator[Word]:
    for text in (things[number].size, things[number].colour):
        if text:
            yield Word(KOREAN[text], number)


def _cover(thing: Thing, side: int) -> Float[np.ndarray, "{side} {side}"]:
    """How much of every pixel the thing covers."""
    cover = np.zeros((side, side))
    box = [
        slice(max(int((centre - thing.radius) * side), 0), min(int((centre + thing.radius) * side) + 1, side))
        for centre in (thing.y, thing.x)
    ]
    down, across = (
        ((np.arange(part.start * FINE, part.stop * FINE) + 0.5) / (FINE * side) - centre) / thing.radius
        for part, centre in zip(box, (thing.y, thing.x), strict=True)
    )
    inside = _inside(thing.shape, across[None, :], down[:, None])
    rows, columns = (part.stop - part.start for part in box)
    cover[box[0], box[1]] = inside.reshape(rows, FINE, columns, FINE).mean((1, 3))
    return cover


def _inside(
    shape: str, across: Float[np.ndarray, "1 column"], down: Float[np.ndarray, "row 1"]
) -> Bool[np.ndarray, "row column"]:
    """Whether points are inside a shape that reaches from -1 to 1."""
    if shape == "circle":
        inside: np.ndarray = across**2 + down**2 <= 1
    elif shape == "square":
        inside = np.maximum(abs(across), abs(down)) <= 0.88
    elif shape == "triangle":
        inside = (abs(across) <= (down + 1) / 2) & (down <= 0.9)
    else:
        inside = np.hypot(across, down) <= _star(np.arctan2(across, -down))
    return inside


def _star(angle: Float[np.ndarray, "row column"]) -> Float[np.ndarray, "row column"]:
    """How far the edge of a star is from its middle, in some direction; the first of its five points is upwards."""
    notch, half = 0.42, pi / 5
    turned = np.mod(angle, 2 * half)
    turned = np.minimum(turned, 2 * half - turned)
    # The straight line from a point (distance 1, angle 0) to the notch beside it (distance `notch`, angle π/5).
    edge: np.ndarray = (
        notch * sin(half) / (np.sin(turned) * (1 - notch * cos(half)) + np.cos(turned) * notch * sin(half))
    )
    return edge
