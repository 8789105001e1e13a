"""The shapes of the additive attention benchmarks, and how one is run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from jumok.attention import additive, attend


class Shape(NamedTuple):
    """B sequences, queries and keys, width of the score and of the values."""

    batch: int
    queries: int
    keys: int
    dim: int
    values: int

    def __str__(self) -> str:
        time = f"T{self.queries}" if self.queries == self.keys else f"T{self.queries}×{self.keys}"
        return f"B{self.batch} {time} d{self.dim}"

    @property
    def elements(self) -> int:
        return self.batch * self.queries * self.keys * self.dim


MAIN = Shape(16, 512, 512, 256, 128)
SHAPES = [MAIN, Shape(64, 64, 64, 512, 128), Shape(128, 10, 128, 1024, 1024), Shape(1280, 1, 66, 1024, 1024)]
ODD = [
    Shape(*sizes)
    for sizes in (
        (1, 1, 1, 8, 1),
        (2, 63, 65, 60, 17),
        (2, 65, 63, 512, 128),
        (1, 129, 500, 64, 64),
        (1, 500, 129, 60, 300),
        (3, 1, 500, 512, 256),
        (2, 4, 129, 60, 40),
        (2, 130, 257, 256, 100),
        (1, 20, 4000, 64, 64),
        (4, 512, 512, 256, 128),
        (1, 64, 16000, 32, 32),
        (2, 20, 35, 70, 20),
        (2, 33, 40, 200, 64),
    )
]
SPREAD = 0.5
"""The standard deviation of queries and keys where nothing else is said."""
SPREADS = (0.1, 0.2, 2.0, 8.0)
LONG = [Shape(1, length, length, 256, 128) for length in (512, 1024, 2048, 4096, 8192, 16384)]


def inputs(shape: Shape, dtype: torch.dtype = torch.float32, spread: float = SPREAD) -> list[Tensor]:
    """Query, key, value, v."""
    sizes = ((shape.batch, shape.queries, shape.dim), (shape.batch, shape.keys, shape.dim))
    query, key = (torch.randn(size, device="cuda") * spread for size in sizes)
    value = torch.randn(shape.batch, shape.keys, shape.values, device="cuda")
    return [tensor.to(dtype) for tensor in (query, key, value, torch.randn(shape.dim, device="cuda"))]


def run(backend: str, **options) -> Callable[..., Tensor]:
    return lambda query, key, value, v: attend(query, key, value, score=additive(v), backend=backend, **options).values


def with_gradients(compute: Callable[..., Tensor], tensors: list[Tensor], upstream: Tensor) -> list[Tensor]:
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    values = compute(*leaves)
    return [values.detach(), *torch.autograd.grad(values, leaves, upstream)]


@contextmanager
def poisoned() -> Iterator[None]:
    """Fresh memory holds NaN."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
