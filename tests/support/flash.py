"""Flash attention and its reference side by side, for the checks that run on a GPU or in Triton's interpreter.

They run in a process of their own: the interpreter is chosen when Triton is imported, and its kernels cannot be wrapped
by the checks of signatures.
"""

import torch

from jumok.attention import attend, scaled_dot
from support.attention import values_and_gradients

# Fresh memory holds NaN, so that reading what was never written shows.
torch.use_deterministic_algorithms(True, warn_only=True)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
NAMES = ("values", "d_query", "d_key", "d_value", "d_parameter")


def draw(lead=(2, 2), queries=33, keys=33, dim=16, values=16, dtype=torch.float32):
    """Query, key and value."""
    sizes = ((*lead, queries, dim), (*lead, keys, dim), (*lead, keys, values))
    return [torch.randn(size).to(DEVICE).to(dtype) for size in sizes]


def with_backend(backend, score=None, **options):
    def compute(query, key, value, *parameters):
        chosen = scaled_dot() if score is None else score(*parameters)
        return attend(query, key, value, score=chosen, backend=backend, **options).values

    return compute


def assert_as_accurate_as_plain_torch(inputs, floor=3e-6, **options):
    upstream = torch.randn_like(with_backend("direct", **options)(*inputs))
    exact = values_and_gradients(
        with_backend("direct", **options), [tensor.double() for tensor in inputs], upstream.double()
    )
    plain = values_and_gradients(with_backend("direct", **options), inputs, upstream)
    found = values_and_gradients(with_backend("fused", **options), inputs, upstream)
    for name, want, ref, got in zip(NAMES, exact, plain, found, strict=False):
        assert (got.isnan() == want.isnan()).all(), f"{name} is NaN elsewhere"
        ours, theirs = ((x - want).nan_to_num().abs().max() if x.numel() else 0 for x in (got, ref))
        assert ours <= 2 * theirs + floor, f"{name} is off by {ours:.2e}; plain torch by {theirs:.2e}"
