"""How fast the models are, learnt from the batches they do: how much fits into a batch, and into the time of a request."""

from collections.abc import Hashable
from typing import NamedTuple

BATCH_SECONDS = 0.5
"""What a batch should take at most: about as long as a newcomer waits for its turn."""
FIRST_COST = 1024
"""Of the first batch, before anything is known."""


class Rate(NamedTuple):
    """Cost done in a second."""

    value: float
    steady: bool
    """Measured on batches long enough to tell; short ones say only how fast it is at least."""


class Pace:
    """The rate of every engine; a unit of cost is a source token times the hypotheses followed for it."""

    def __init__(self) -> None:
        self._rates: dict[Hashable, Rate] = {}

    def batch_cost(self, engine: Hashable) -> float:
        """What a batch may cost."""
        rate = self._rates.get(engine)
        return FIRST_COST if rate is None else rate.value * BATCH_SECONDS

    def rate(self, engine: Hashable) -> float | None:
        """Cost done in a second; None as long as that is not known."""
        rate = self._rates.get(engine)
        return rate.value if rate is not None and rate.steady else None

    def seconds(self, engine: Hashable, cost: float) -> float:
        """How long it takes; 0 as long as that is not known."""
        rate = self.rate(engine)
        return 0.0 if rate is None else cost / rate

    def learn(self, engine: Hashable, cost: float, seconds: float) -> None:
        """A batch of this cost took so long. One that was not full tells nothing: small ones are slower by the token."""
        if cost < self.batch_cost(engine) / 2:
            return
        before = self._rates.get(engine)
        value = cost / max(seconds, 1e-6)
        mean = value if before is None else (before.value + value) / 2
        steady = seconds >= BATCH_SECONDS / 3 or (before is not None and before.steady)
        self._rates[engine] = Rate(mean, steady)
