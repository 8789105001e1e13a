"""PyTorch's fused scaled_dot_product_attention, for every score that is a dot product."""

import torch.nn.functional as F
from torch import Tensor

from jumok.attention.dot_scores import Dot
from jumok.attention.lookup import Lookup
from jumok.attention.normalise import softmax
from jumok.attention.visible import Causal


def why_not(lookup: Lookup) -> str | None:
    """Why this call cannot run through it; None if it can."""
    if not isinstance(lookup.score, Dot):
        return f"{lookup.score} is not a dot product"
    if lookup.normalise is not softmax:
        return "it normalises by softmax only"
    if lookup.visible is not None and lookup.visible.graded:
        return "a Gaussian window multiplies the weights after the softmax"
    if lookup.pairs == 0:
        return "there is nothing to compare"
    return None


def run(lookup: Lookup) -> Tensor:
    """Σ softmax(scale · q kᵀ) v in one kernel; the weights are never built."""
    assert isinstance(lookup.score, Dot)
    if lookup.visible is None:
        return _fused(lookup, lookup.score.scale)
    if isinstance(lookup.visible, Causal) and lookup.visible.offset == 0:
        return _fused(lookup, lookup.score.scale, is_causal=True)
    visible = lookup.visible.tile(lookup.tile)
    # A row that sees nothing would be 0 / 0 in some of its kernels: it looks everywhere, and is emptied afterwards.
    nothing = ~visible.any(-1, keepdim=True)
    return _fused(lookup, lookup.score.scale, attn_mask=visible | nothing).masked_fill(nothing, 0)


def _fused(lookup: Lookup, scale: float, *, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
    # Its fast kernels want exactly [batch, head, time, dim].
    lead = lookup.query.shape[:-2]
    batch, heads = (lead[:-1].numel(), lead[-1]) if lead else (1, 1)
    query, key, value = (
        tensor.reshape(batch, heads, *tensor.shape[-2:]) for tensor in (lookup.query, lookup.key, lookup.value)
    )
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*lead, *attn_mask.shape[-2:]).reshape(batch, heads, *attn_mask.shape[-2:])
    values = F.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, dropout_p=lookup.dropout, is_causal=is_causal, scale=scale
    )
    return values.reshape(*lead, *values.shape[-2:])
