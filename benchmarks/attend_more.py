"""Further cases of benchmarks.attend_gpu: packed sequences, additive bias, ALiBi, a soft cap and a sliding window.

Packed sequences are compared with PyTorch's attention for sequences of different lengths (torch.nn.attention.varlen),
the others with its compiled flex attention. A case whose values differ from PyTorch's by more than bf16 explains is
reported and not timed, and so is one that PyTorch cannot compute.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from jumok.attention import alibi, attend, causal, packed, scaled_dot, window

CAP, BEFORE = 30.0, 128
TOLERANCE = 0.05
"""Largest difference of values in bf16, whose size is about 1."""


class Case(NamedTuple):
    """Values of both, and the tensors that get gradients."""

    name: str
    ours: Callable[[], Tensor]
    theirs: Callable[[], Tensor]
    against: str
    ours_of: list[Tensor]
    theirs_of: list[Tensor]


def random_inputs(shape: tuple[int, ...], device: str, dtype: torch.dtype) -> list[Tensor]:
    """Query, key and value; on a CPU without gradients, which flex attention does not have there."""
    return [torch.randn(shape, device=device, dtype=dtype, requires_grad=device != "cpu") for _ in range(3)]


def cases(shape: tuple[int, ...], device: str = "cuda", dtype: torch.dtype = torch.bfloat16) -> Iterator[Case]:
    """All cases for tensors [batch, heads, time, width]."""
    yield from score_cases(shape, device, dtype, torch.compile if device == "cuda" else lambda function: function)
    if device == "cuda":
        yield packed_case(shape)  # the last: only recent versions of PyTorch have its peer


def packed_case(shape: tuple[int, ...]) -> Case:
    """All sequences of a batch in one row, without padding."""
    from torch.nn.attention.varlen import varlen_attn

    batch, heads, longest, width = shape
    draws = torch.Generator().manual_seed(1)
    lengths = torch.randint(longest // 4, longest + 1, (batch,), generator=draws).cuda()
    total = int(lengths.sum())
    ends = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).to(torch.int32)
    inputs, visible = random_inputs((1, heads, total, width), "cuda", torch.bfloat16), packed(lengths)
    rows = [tensor.detach()[0].transpose(0, 1).contiguous().requires_grad_() for tensor in inputs]  # time, head, width

    def theirs() -> Tensor:
        values = varlen_attn(*rows, ends, ends, longest, longest)
        assert isinstance(values, Tensor)
        return values.transpose(0, 1)[None]

    return Case("packed", lambda: attend(*inputs, visible=visible).values, theirs, "varlen_attn", inputs, rows)


def score_cases(shape: tuple[int, ...], device: str, dtype: torch.dtype, compiled: Callable) -> Iterator[Case]:
    """Cases that change scores, and a sliding window, which changes the mask."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    _, heads, time, _ = shape
    bias, slopes = torch.randn(heads, time, time, device=device, dtype=dtype), alibi(heads).to(device)

    def with_bias(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return score + bias[head, query, key]

    def with_slopes(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return score - slopes[head] * (query - key).abs()

    def with_cap(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return CAP * torch.tanh(score / CAP)

    def later_hidden(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return query >= key

    def near(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (query - key <= BEFORE)

    def mask(formula: Callable) -> object:
        return create_block_mask(formula, None, None, time, time, device=device)

    hidden, band = mask(later_hidden), mask(near)
    scores = {
        "additive bias": (scaled_dot(bias=bias), None, with_bias, None),
        "ALiBi, causal": (scaled_dot(slopes=slopes), causal(), with_slopes, hidden),
        "soft cap, causal": (scaled_dot(soft_cap=CAP), causal(), with_cap, hidden),
        f"window of {BEFORE}, causal": ("scaled_dot", window(BEFORE, 0), None, band),
    }
    for name, (score, visible, change, block_mask) in scores.items():
        inputs = random_inputs(shape, device, dtype)
        flex = compiled(flex_attention)

        def ours(inputs: list[Tensor] = inputs, score: object = score, visible: object = visible) -> Tensor:
            return attend(*inputs, score=score, visible=visible).values

        def theirs(
            inputs: list[Tensor] = inputs, change: object = change, blocks: object = block_mask, flex: Callable = flex
        ) -> Tensor:
            return flex(*inputs, score_mod=change, block_mask=blocks)

        yield Case(name, ours, theirs, "compiled flex_attention", inputs, inputs)


def difference(case: Case) -> float:
    """The largest difference of the values."""
    return float((case.ours().detach().float() - case.theirs().detach().float()).abs().max())


def both_ways(case: Case) -> tuple[Callable[[], object], Callable[[], object]]:
    """Forward and backward, ours and theirs."""
    upstream = torch.randn_like(case.ours())

    def train(compute: Callable[[], Tensor], inputs: list[Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(compute(), inputs, upstream)

    return train(case.ours, case.ours_of), train(case.theirs, case.theirs_of)
