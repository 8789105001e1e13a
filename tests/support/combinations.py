"""Few combinations instead of all: a fault usually needs one value, or two that meet; hardly ever three."""

from collections.abc import Callable, Sequence
from itertools import combinations, product


def in_pairs(*axes: Sequence, allowed: Callable[..., bool] = lambda *values: True) -> list[tuple]:
    """Combinations in which every two values of two axes meet, if an allowed combination has both."""
    places = [each for each in product(*(range(len(axis)) for axis in axes)) if allowed(*_values(axes, each))]
    pairs = {each: set(combinations(enumerate(each), 2)) for each in places}
    missing, chosen = set().union(*pairs.values()), []
    while missing:
        chosen.append(max(places, key=lambda each: len(missing & pairs[each])))
        missing -= pairs[chosen[-1]]
    return [_values(axes, each) for each in sorted(chosen)]


def _values(axes: Sequence[Sequence], places: Sequence[int]) -> tuple:
    return tuple(axis[place] for axis, place in zip(axes, places, strict=True))
