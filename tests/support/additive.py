"""Fused additive attention and its reference side by side, for the checks that run on a GPU or in Triton's interpreter.

They run in a process of their own: the interpreter is chosen when Triton is imported, and its kernels cannot be wrapped
by the checks of signatures.
"""

import torch

from jumok.attention import additive, attend
from support.attention import values_and_gradients

# Fresh memory holds NaN, so that reading what was never written shows.
torch.use_deterministic_algorithms(True, warn_only=True)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NAMES = ("values", "d_query", "d_key", "d_value", "d_v")


def draw(batch=2, queries=5, keys=7, dim=6, values=3, dtype=torch.float32, spread=1.0):
    """Query, key, value, v."""
    sizes = ((batch, queries, dim), (batch, keys, dim), (batch, keys, values), (dim,))
    query, key, value, v = (torch.randn(size).to(DEVICE) for size in sizes)
    return [tensor.to(dtype) for tensor in (query * spread, key * spread, value, v)]


def with_backend(backend, **options):
    return lambda query, key, value, v: attend(query, key, value, score=additive(v), backend=backend, **options).values


def assert_as_accurate_as_plain_torch(inputs, floor=2e-6, **options):
    upstream = torch.randn_like(with_backend("direct", **options)(*inputs))
    exact = values_and_gradients(
        with_backend("direct", **options), [tensor.double() for tensor in inputs], upstream.double()
    )
    plain = values_and_gradients(with_backend("direct", **options), inputs, upstream)
    found = values_and_gradients(with_backend("fused", **options), inputs, upstream)
    for name, want, ref, got in zip(NAMES, exact, plain, found, strict=True):
        ours, theirs = (got - want).abs().max(), (ref - want).abs().max()
        assert ours <= 2 * theirs + floor, f"{name} is off by {ours:.2e}; plain torch by {theirs:.2e}"
