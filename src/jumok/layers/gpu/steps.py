"""Attention of one decoding step on a GPU. Importing this module imports Triton."""

import torch
import triton
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.layers.gpu.step_kernels import descend_kernel, embed_kernel, own_step_kernel, source_step_kernel

PAST, SOURCE = 16, 32
"""Earlier steps and source items in a block."""
STEPS = 64
"""Steps in a block of a table of ancestors."""
ROWS = 16
"""Hypotheses in a program, the fewest that tensor cores multiply."""


def self_attention_step(
    query: Float[Tensor, "row head dim"],
    key: Float[Tensor, "row shared dim"],
    value: Float[Tensor, "row shared dim"],
    keys: Float[Tensor, "sentence capacity beam shared dim"],
    values: Float[Tensor, "sentence capacity beam shared dim"],
    ancestry: Int[Tensor, "sentence beam capacity"],
    positions: Int[Tensor, " sentence"],
) -> Float[Tensor, "row width"]:
    """What `layers.steps.self_attention_step` computes."""
    rows, heads, dim = query.shape
    out = query.new_empty(rows, heads * dim)
    own_step_kernel(
        (rows, heads), query, key, value, keys, values, ancestry, positions, out, query.stride(0), key.stride(0),
        value.stride(0), keys.shape[2], keys.shape[1], SCALE=dim**-0.5, DIM=dim,
        BLOCK_DIM=triton.next_power_of_2(dim), HEADS=heads, KEY_HEADS=key.shape[1], BLOCK=PAST, warps=1,
    )  # fmt: skip
    return out


def cross_attention_step(
    query: Float[Tensor, "row head dim"],
    keys: Float[Tensor, "sentence source shared dim"],
    values: Float[Tensor, "sentence source shared dim"],
    visible: Bool[Tensor, "sentence source"],
    lengths: Int[Tensor, " sentence"],
) -> Float[Tensor, "row width"]:
    """What `layers.steps.cross_attention_step` computes."""
    rows, heads, dim = query.shape
    sentences, source = visible.shape
    beam = rows // sentences
    out = query.new_empty(rows, heads * dim)
    source_step_kernel(
        (sentences, heads, triton.cdiv(beam, ROWS)), query, keys, values, visible.view(torch.uint8), lengths, out,
        query.stride(0), keys.stride(0), keys.stride(1), values.stride(0), values.stride(1), beam, source,
        SCALE=dim**-0.5, DIM=dim, BLOCK_DIM=max(16, triton.next_power_of_2(dim)), HEADS=heads,
        KEY_HEADS=keys.shape[2], ROWS=ROWS, BLOCK=SOURCE, PRECISION="ieee", warps=2,
    )  # fmt: skip
    return out


def update_ancestry(
    ancestry: Int[Tensor, "sentence beam capacity"],
    parents: Int[Tensor, "sentence beam"],
    positions: Int[Tensor, " sentence"],
) -> None:
    """What `layers.steps.update_ancestry` does."""
    sentences, beam, capacity = ancestry.shape
    descend_kernel(
        (sentences,), ancestry, parents, positions, capacity, BEAM=beam, BEAMS=triton.next_power_of_2(beam),
        BLOCK=STEPS, warps=1,
    )  # fmt: skip


def embed(
    tokens: Int[Tensor, "sentence beam"],
    positions: Int[Tensor, " sentence"],
    table: Float[Tensor, "vocabulary width"],
    factor: float,
    added: Float[Tensor, "capacity width"],
) -> Float[Tensor, "row width"]:
    """The vectors of the tokens times a factor, and those of their positions, in single precision."""
    width = table.shape[1]
    out = torch.empty(tokens.numel(), width, device=table.device)
    embed_kernel(
        (tokens.numel(),), tokens, positions, table, added, out, BEAM=tokens.shape[1], FACTOR=factor, WIDTH=width,
        BLOCK=triton.next_power_of_2(width), warps=4,
    )  # fmt: skip
    return out
