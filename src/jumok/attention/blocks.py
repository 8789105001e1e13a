"""Attention a few rows at a time: what a block needs is thrown away after it and computed again for its gradient."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from torch.utils.checkpoint import checkpoint

from jumok.attention.call import AttentionCall
from jumok.attention.scores import Custom, Positional

Result = TypeVar("Result")

BLOCK_BYTES = 32 * 2**20
"""How large the largest tensor of one block may be; about what a last-level cache holds."""


def why_not(call: AttentionCall) -> str | None:
    """Why this call cannot be cut into blocks of rows; None if it can."""
    if isinstance(call.score, Custom) and not isinstance(call.score, Positional):
        return f"{call.score} may look at positions, so it must get all queries at once; positional(...) tells it them"
    return None


def in_blocks(compute: Callable[[AttentionCall], Result], call: AttentionCall) -> Iterator[Result]:
    """`compute` on one block of rows after another; one call of it for everything where everything fits."""
    queries, rows = call.query.shape[-2], rows_per_block(call)
    if queries <= rows:
        yield compute(call)
        return
    for start in range(0, queries, rows):
        block = call.for_rows(slice(start, start + rows))
        if torch.is_grad_enabled():
            # The random state is kept only where numbers may be drawn, which must be the same the second time.
            random = call.dropout > 0 or isinstance(call.score, Custom)
            yield checkpoint(compute, block, use_reentrant=False, preserve_rng_state=random)
        else:
            yield compute(block)


def rows_per_block(call: AttentionCall) -> int:
    """How many query rows stay within BLOCK_BYTES; at least one."""
    row = bytes_at_once(call) // max(1, call.query.shape[-2])
    return max(1, BLOCK_BYTES // max(1, row))


def bytes_at_once(call: AttentionCall) -> int:
    """The size of the largest tensor that the direct form builds."""
    return call.pairs * call.score.planes(call.query) * call.query.element_size()
