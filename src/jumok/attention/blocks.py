"""Attention in blocks of query rows: each block's intermediates are freed, and recomputed for the gradient."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from jumok.attention.call import AttentionCall
from jumok.attention.scores import Custom

Result = TypeVar("Result")

BLOCK_BYTES = 32 * 2**20
"""Upper limit on the largest tensor of one block, about the size of a last-level cache."""


def run(call: AttentionCall) -> Tensor:
    """The values of all rows, computed block by block."""
    if torch.is_grad_enabled():
        return torch.cat(list(in_blocks(_values, call)), -2)
    # Small results allocated between large blocks would fragment memory, so that no later block fits.
    joined, start = call.value.new_empty(*call.query.shape[:-1], call.value.shape[-1]), 0
    for values in in_blocks(_values, call):
        joined[..., start : start + values.shape[-2], :] = values
        start += values.shape[-2]
    return joined


def _values(block: AttentionCall) -> Tensor:
    return block.mix(block.weights())


def in_blocks(compute: Callable[[AttentionCall], Result], call: AttentionCall) -> Iterator[Result]:
    """The results of `compute` for one block of rows after another; a call that fits is a single block."""
    queries, rows = call.query.shape[-2], rows_per_block(call)
    if queries <= rows:
        yield compute(call)
        return
    for start in range(0, queries, rows):
        block = call.for_rows(slice(start, start + rows))
        if torch.is_grad_enabled():
            # The random state is restored for the second computation only where random numbers may be drawn.
            random = call.dropout > 0 or isinstance(call.score, Custom)
            yield checkpoint(compute, block, use_reentrant=False, preserve_rng_state=random)
        else:
            yield compute(block)


def rows_per_block(call: AttentionCall) -> int:
    """The number of query rows whose largest tensor stays within BLOCK_BYTES; at least one."""
    row = bytes_at_once(call) // max(1, call.query.shape[-2])
    return max(1, BLOCK_BYTES // max(1, row))


def bytes_at_once(call: AttentionCall) -> int:
    """The size of the largest tensor that the direct backend builds."""
    return call.pairs * call.planes * call.query.element_size()
