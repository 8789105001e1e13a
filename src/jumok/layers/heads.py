"""Between one wide vector and several heads: split, join, and let heads share keys and values."""

from jaxtyping import Float
from torch import Tensor


def split_heads(x: Float[Tensor, "batch time width"], heads: int) -> Float[Tensor, "batch head time dim"]:
    """Cut each vector into `heads` pieces."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)  # type: ignore[no-untyped-call, no-any-return]


def join_heads(x: Float[Tensor, "batch head time dim"]) -> Float[Tensor, "batch time width"]:
    """Put the pieces back side by side."""
    return x.transpose(1, 2).flatten(2)


def share_heads(x: Float[Tensor, "batch group time dim"], heads: int) -> Float[Tensor, "batch head time dim"]:
    """Let neighbouring heads use the same keys or values (grouped-query attention, Ainslie et al. 2023)."""
    groups = x.shape[1]
    if groups == heads:
        return x
    return x[:, :, None].expand(-1, -1, heads // groups, -1, -1).flatten(1, 2)
