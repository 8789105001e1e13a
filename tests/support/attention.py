"""Scores with random parameters, and their formulas written out once more, pair by pair, in numpy's float64; and what
tests of attention share.
"""

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from jumok.attention import (
    Score,
    additive,
    attend,
    boxcar,
    concat,
    cosine,
    dot,
    epanechnikov,
    gaussian,
    general,
    location,
    scaled_dot,
    triangular,
)
from jumok.errors import ArgumentError
from support.combinations import in_pairs

NORMALISERS = ("softmax", "sum", "sparsemax", "entmax15", "mean")
DOT_PRODUCTS = ("dot", "scaled_dot", "cosine", "general", "location")
KERNELS = ("gaussian", "boxcar", "epanechnikov", "triangular")
POSITIONS = 9


@dataclass(frozen=True)
class ScoreCase:
    """A score: its parameters' own shapes at a width, how to build it, and its formula for one query and one key."""

    shapes: Callable[[int], list[tuple[int, ...]]]
    build: Callable[..., Score]
    formula: Callable[..., float]

    def parameters(self, dim: int, lead: tuple[int, ...] = (), dtype: torch.dtype = torch.float64) -> list[Tensor]:
        return [self.draw(shape, lead, dtype) for shape in self.shapes(dim)]

    def draw(self, shape: tuple[int, ...], lead: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        drawn = torch.randn((*lead, *shape), dtype=dtype)
        # A parameter without axes of its own is a bandwidth: some keys within it, some not.
        return drawn if shape else 3 + drawn.sigmoid()


def cosine_formula(q, k, i):
    lengths = np.linalg.norm(q) * np.linalg.norm(k)
    return q @ k / lengths if lengths else 0.0


def kernel_formula(kernel):
    def formula(q, k, i, bandwidth):
        with np.errstate(divide="ignore"):
            return np.log(kernel(np.sqrt(((q - k) ** 2).sum()) / bandwidth))

    return formula


def one_kernel(build, kernel):
    return ScoreCase(lambda dim: [()], build, kernel_formula(kernel))


SCORES = {
    "dot": ScoreCase(lambda dim: [], dot, lambda q, k, i: sum(a * b for a, b in zip(q, k, strict=True))),
    "scaled_dot": ScoreCase(lambda dim: [], scaled_dot, lambda q, k, i: (q * k).sum() / np.sqrt(len(q))),
    "cosine": ScoreCase(lambda dim: [], cosine, cosine_formula),
    "general": ScoreCase(lambda dim: [(dim, dim)], general, lambda q, k, i, w: q @ w @ k),
    "additive": ScoreCase(lambda dim: [(dim,)], additive, lambda q, k, i, v: (v * np.tanh(q + k)).sum()),
    "concat": ScoreCase(
        lambda dim: [(dim + 2,), (dim + 2, 2 * dim)],
        concat,
        lambda q, k, i, v, w: (v * np.tanh(w @ np.concatenate([q, k]))).sum(),
    ),
    "location": ScoreCase(lambda dim: [(POSITIONS, dim)], location, lambda q, k, i, w: w[i] @ q),
    "gaussian": one_kernel(gaussian, lambda u: np.exp(-(u**2) / 2)),
    "boxcar": one_kernel(boxcar, lambda u: float(u <= 1)),
    "epanechnikov": one_kernel(epanechnikov, lambda u: max(0.0, 1 - u**2)),
    "triangular": one_kernel(triangular, lambda u: max(0.0, 1 - u)),
}


def backends_of(name: str, normalise: str = "softmax") -> list[str]:
    """The backends that must be able to run a score and a normaliser."""
    fused = name in DOT_PRODUCTS and normalise in ("softmax", "sum")
    return ["direct", "blocked", "sdpa"] if fused else ["direct", "blocked"]


every_score = pytest.mark.parametrize("name", SCORES)
every_normaliser = pytest.mark.parametrize("normalise", NORMALISERS)
every_score_and_backend = pytest.mark.parametrize(
    ("name", "backend"), [(name, backend) for name in SCORES for backend in backends_of(name)], indirect=["backend"]
)


def every_score_backend_and(**others: Sequence) -> pytest.MarkDecorator:
    """Every two of a score, a backend and other values."""
    return pytest.mark.parametrize(
        ("name", "backend", *others),
        in_pairs(
            tuple(SCORES),
            ("direct", "blocked", "sdpa"),
            *others.values(),
            allowed=lambda name, backend, *_: backend in backends_of(name),
        ),
        indirect=["backend"],
    )


every_combination = pytest.mark.parametrize(
    ("name", "normalise", "backend"),
    in_pairs(
        tuple(SCORES),
        NORMALISERS,
        ("direct", "blocked", "sdpa"),
        allowed=lambda name, way, backend: backend in backends_of(name, way),
    ),
    indirect=["backend"],
)
"""Every two of them."""


def random_score(name: str, dim: int, lead: tuple[int, ...] = (), dtype: torch.dtype = torch.float64) -> Score:
    case = SCORES[name]
    return case.build(*case.parameters(dim, lead, dtype))


def random_inputs(lead=(2, 3), queries=4, keys=5, dim=3, value_dim=2, dtype=torch.float64) -> list[Tensor]:
    """Query, key and value."""
    return [
        torch.randn((*lead, rows, width), dtype=dtype)
        for rows, width in ((queries, dim), (keys, dim), (keys, value_dim))
    ]


def values_and_gradients(compute: Callable[..., Tensor], inputs: list[Tensor], upstream: Tensor | None = None):
    """What `compute` gives for the inputs, and the gradient of its product with `upstream` for each of them."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    values = compute(*leaves)
    upstream = (
        torch.randn(values.shape, generator=torch.Generator().manual_seed(1)).to(values)
        if upstream is None
        else upstream
    )
    gradients = [torch.zeros_like(leaf) for leaf in leaves]
    if values.requires_grad:
        found = torch.autograd.grad(values, leaves, upstream, allow_unused=True)
        gradients = [zero if got is None else got for zero, got in zip(gradients, found, strict=True)]
    return [values.detach(), *gradients]


def attended_values(**options):
    """A function of query, key and value for `values_and_gradients`."""
    return lambda query, key, value: attend(query, key, value, **options).values


def assert_all_close(found, wanted, **tolerances) -> None:
    for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
        torch.testing.assert_close(one, other, msg=lambda text, index=index: f"tensor {index}: {text}", **tolerances)


@contextmanager
def raises(*parts, error=ArgumentError):
    """Raises our error, with every one of the parts in its message."""
    with pytest.raises(error) as raised:
        yield
    missing = [part for part in parts if part not in str(raised.value)]
    assert not missing, f"{str(raised.value)!r} does not say {missing}"
