"""Attention a few rows at a time: what a block needs is thrown away after it and computed again for its gradient."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from torch.utils.checkpoint import checkpoint

from jumok.attention.call import Lookup
from jumok.attention.scores import Custom, Positional

Result = TypeVar("Result")

BLOCK_BYTES = 32 * 2**20
"""How large the largest tensor of one block may be; about what a last-level cache holds."""


def why_not(lookup: Lookup) -> str | None:
    """Why this call cannot be cut into blocks of rows; None if it can."""
    if isinstance(lookup.score, Custom) and not isinstance(lookup.score, Positional):
        return (
            f"{lookup.score} may look at positions, so it must get all queries at once; positional(...) tells it them"
        )
    return None


def in_blocks(compute: Callable[[Lookup], Result], lookup: Lookup) -> Iterator[Result]:
    """`compute` on one block of rows after another; one call of it for everything where everything fits."""
    queries, rows = lookup.query.shape[-2], rows_per_block(lookup)
    if queries <= rows:
        yield compute(lookup)
        return
    for start in range(0, queries, rows):
        block = lookup.for_rows(slice(start, start + rows))
        if torch.is_grad_enabled():
            # The random state is kept only where numbers may be drawn, which must be the same the second time.
            random = lookup.dropout > 0 or isinstance(lookup.score, Custom)
            yield checkpoint(compute, block, use_reentrant=False, preserve_rng_state=random)
        else:
            yield compute(block)


def rows_per_block(lookup: Lookup) -> int:
    """How many query rows stay within BLOCK_BYTES; at least one."""
    row = bytes_at_once(lookup) // max(1, lookup.query.shape[-2])
    return max(1, BLOCK_BYTES // max(1, row))


def bytes_at_once(lookup: Lookup) -> int:
    """The size of the largest tensor that the direct form builds."""
    return lookup.pairs * lookup.score.planes(lookup.query) * lookup.query.element_size()
