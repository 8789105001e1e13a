"""Attention: `attend` beside PyTorch's scaled_dot_product_attention, and the additive score beside its direct form."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from jumok.attention import additive, attend, causal, from_lengths
from jumok.bench import JUMOK, Size
from jumok.bench.timing import Call, Work


class AttentionShape(NamedTuple):
    """[batch, heads, time, dim] of dot-product attention; additive attention has no heads and `width` features."""

    batch: int
    heads: int
    time: int
    dim: int
    width: int

    @property
    def words(self) -> str:
        """For a row of the table."""
        return f"[{self.batch}, {self.heads}, {self.time}, {self.dim}]"


SHAPES: dict[str, dict[Size, AttentionShape]] = {
    "cpu": {
        "small": AttentionShape(8, 4, 32, 32, 64),
        "medium": AttentionShape(16, 8, 128, 64, 256),
        "large": AttentionShape(4, 16, 1024, 64, 256),
    },
    "cuda": {
        "small": AttentionShape(32, 8, 64, 64, 512),
        "medium": AttentionShape(16, 16, 1024, 64, 256),
        "large": AttentionShape(4, 16, 4096, 64, 256),
    },
}

Compute = Callable[[Tensor, Tensor, Tensor], Tensor]


def works(device: torch.device, size: Size) -> Iterator[Work]:
    """Without a mask, causal, with lengths between a quarter and the whole; then additive. Forward and backward."""
    shape = SHAPES[device.type][size]
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(shape.time // 4, shape.time + 1, (shape.batch, 1), generator=generator).to(device)
    dense = (torch.arange(shape.time, device=device) < lengths[..., None])[:, None]
    ways: dict[str, tuple[Compute, Compute]] = {
        "no mask": (lambda q, k, v: attend(q, k, v).values, F.scaled_dot_product_attention),
        "causal": (
            lambda q, k, v: attend(q, k, v, visible=causal()).values,
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        ),
        "lengths": (
            lambda q, k, v: attend(q, k, v, visible=from_lengths(lengths)).values,
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=dense),
        ),
    }
    sizes = [(shape.batch, shape.heads, shape.time, shape.dim)] * 3
    for name, (ours, theirs) in ways.items():
        yield Work(
            f"{name}, {_short(dtype)} {shape.words}",
            {
                JUMOK: partial(_trained, ours, sizes, dtype, device),
                "PyTorch sdpa": partial(_trained, theirs, sizes, dtype, device),
            },
        )
    yield _additive(shape, device)


def _additive(shape: AttentionShape, device: torch.device) -> Work:
    """The direct form needs a tensor of batch × queries × keys × width numbers, which a large shape has no room for."""
    batch = max(1, min(shape.batch, 2**29 // (shape.time**2 * shape.width)))
    length = shape.time if batch > 1 else min(shape.time, 1024)
    v = torch.randn(shape.width, device=device) * shape.width**-0.5
    sizes = [(batch, length, shape.width), (batch, length, shape.width), (batch, length, 128)]

    def direct(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores: Tensor = (query[:, :, None] + key[:, None]).tanh() @ v
        return scores.softmax(-1) @ value

    def ours(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attend(query, key, value, score=additive(v)).values

    return Work(
        f"additive, float32 B{batch} T{length} d{shape.width}",
        {
            JUMOK: partial(_trained, ours, sizes, torch.float32, device),
            "PyTorch, direct form": partial(_trained, direct, sizes, torch.float32, device),
        },
    )


def _trained(compute: Compute, sizes: Sequence[tuple[int, ...]], dtype: torch.dtype, device: torch.device) -> Call:
    """Forward and backward."""
    torch.manual_seed(0)
    tensors = [torch.randn(size, dtype=dtype, device=device, requires_grad=True) for size in sizes]
    upstream = torch.randn(*sizes[0][:-1], sizes[2][-1], dtype=dtype, device=device)

    def call() -> None:
        torch.autograd.grad(compute(*tensors), tensors, upstream)

    return call


def _short(dtype: torch.dtype) -> str:
    return "bf16" if dtype is torch.bfloat16 else "float32"
