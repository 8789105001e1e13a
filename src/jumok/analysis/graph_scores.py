"""How many items get their right class, with the interval that chance allows."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from jumok.errors import ArgumentError


class Accuracy(NamedTuple):
    """In percent, with a 95% interval (Wilson 1927)."""

    value: float
    low: float
    high: float
    items: int


def accuracy(found: Int[np.ndarray, " item"], wanted: Int[np.ndarray, " item"]) -> Accuracy:
    """The share of items whose class was found.

    >>> accuracy(np.array([0, 1, 1, 2]), np.array([0, 1, 2, 2])).value
    75.0
    """
    if not len(wanted):
        raise ArgumentError("there is no accuracy of no items")
    count, share, z = len(wanted), float((found == wanted).mean()), 1.96
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    reach = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return Accuracy(100 * share, 100 * max(middle - reach, 0.0), 100 * min(middle + reach, 1.0), count)
