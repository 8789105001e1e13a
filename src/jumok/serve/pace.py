"""How fast the models are, as their batches show: how much goes into a batch, and into the time of a request."""

from collections.abc import Hashable
from typing import NamedTuple

BATCH_SECONDS = 0.5
"""What a batch should take at most: about as long as a newcomer waits for its turn."""
FIRST_COST = 1024
"""Of the first batch, before anything is known."""
FADING = 0.98
"""What is left of the best rate after each batch that was slower: the half after about 35."""


class Rate(NamedTuple):
    """Cost done in a second."""

    recent: float
    """In the last batches, the last counting half."""
    best: float
    """In the best of them, less and less the longer ago that was."""
    steady: bool
    """Whether a batch was long enough to tell; short ones say only how fast it is at least."""


class Pace:
    """The rate of every engine; a unit of cost is a source token times the hypotheses followed for it."""

    def __init__(self) -> None:
        self._rates: dict[Hashable, Rate] = {}

    def batch_cost(self, engine: Hashable) -> float:
        """What a batch may cost."""
        rate = self._rates.get(engine)
        return FIRST_COST if rate is None else rate.recent * BATCH_SECONDS

    def rate(self, engine: Hashable) -> float | None:
        """Cost done in a second when all goes well; None as long as that is not known."""
        rate = self._rates.get(engine)
        return rate.best if rate is not None and rate.steady else None

    def seconds(self, engine: Hashable, cost: float) -> float:
        """How long it takes when all goes well; 0 as long as that is not known."""
        rate = self.rate(engine)
        return 0.0 if rate is None else cost / rate

    def learn(self, engine: Hashable, cost: float, seconds: float) -> None:
        """A batch of this cost took so long. A small one tells nothing: its tokens take longer than those of others."""
        if cost < self.batch_cost(engine) / 2:
            return
        value = cost / max(seconds, 1e-6)
        before = self._rates.get(engine, Rate(value, value, steady=False))
        self._rates[engine] = Rate(
            recent=(before.recent + value) / 2,
            best=max(value, FADING * before.best),
            steady=before.steady or seconds >= BATCH_SECONDS / 3,
        )
