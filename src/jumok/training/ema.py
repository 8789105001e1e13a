"""A moving average of the weights: often better than the weights themselves, and steadier from step to step."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from jumok.training.optimiser import trained


class MovingAverage:
    """average(n) = d · average(n-1) + (1 - d) · weights(n), with d = min(decay, (1 + n) / (10 + n)).

    The smaller d of the first steps lets go of the random weights that training began with.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.average = {name: weight.detach().clone() for name, weight in trained(model).items()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Take in the weights after step 1, 2, ..."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.average.values()), list(trained(model).values()), 1 - decay)

    @contextmanager
    def in_place(self, model: nn.Module) -> Iterator[None]:
        """The model with its average for weights, until the block ends."""
        weights = trained(model)
        own = {name: weight.detach().clone() for name, weight in weights.items()}
        try:
            put(weights, self.average)
            yield
        finally:
            put(weights, own)


@torch.no_grad()
def put(weights: dict[str, Tensor], values: dict[str, Tensor]) -> None:
    """Write values into the weights of the same names."""
    for name, weight in weights.items():
        weight.copy_(values[name])
