"""Random numbers and random orders without a state: each number from its own alone, each place of an order from itself.

An order of a billion things costs nothing until a place of it is asked for, and then only that place.
"""

import numpy as np
from jaxtyping import Int, UInt

ROUNDS = 12  # fewer show where there are only a handful of things


def mixed(numbers: UInt[np.ndarray, "*shape"]) -> UInt[np.ndarray, "*shape"]:
    """Numbers that look random, each from its own alone (splitmix64, Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        numbers = numbers + np.uint64(0x9E3779B97F4A7C15)
        numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        last: np.ndarray = numbers ^ (numbers >> np.uint64(31))
    return last


def shuffled(
    places: Int[np.ndarray, " n"], sizes: Int[np.ndarray, " n"], keys: UInt[np.ndarray, " n"]
) -> Int[np.ndarray, " n"]:
    """Where each of `places` goes when `sizes` things are shuffled; equal keys (and sizes) are one shuffle.

    The things are laid out in a rectangle, a Feistel network over its sides: in turn, rows are rotated by a number that
    depends on the row, and columns by one that depends on the column. That is a bijection of the rectangle, which is
    hardly larger than `sizes`; who lands outside walks on until it is back inside, so it is one of the things too.
    """
    found = places.astype(np.uint64)
    sizes = sizes.astype(np.uint64)
    wide = np.ceil(np.sqrt(sizes)).astype(np.uint64)
    high = (sizes + wide - np.uint64(1)) // wide
    outside = np.arange(len(places))
    while outside.size:
        found[outside] = _rotated(found[outside], wide[outside], high[outside], keys[outside])
        outside = outside[found[outside] >= sizes[outside]]
    return found.astype(np.int64)


def _rotated(
    places: UInt[np.ndarray, " n"],
    wide: UInt[np.ndarray, " n"],
    high: UInt[np.ndarray, " n"],
    keys: UInt[np.ndarray, " n"],
) -> UInt[np.ndarray, " n"]:
    row, column = places // wide, places % wide
    for number in range(ROUNDS):
        keys = mixed(keys)
        if number % 2:
            row = (row + mixed(keys ^ column) % high) % high
        else:
            column = (column + mixed(keys ^ row) % wide) % wide
    found: np.ndarray = row * wide + column
    return found
