"""Masks from and to PyTorch, which has two conventions for what True means."""

import torch
from jaxtyping import Bool
from torch import Tensor

from jumok.attention.checks import check_sizes, check_tensor, describe
from jumok.attention.masks import KeyMask, Mask, Visible, whole
from jumok.errors import ArgumentError


def from_torch_padding(key_padding_mask: Bool[Tensor, "batch key"]) -> Visible:
    """From `key_padding_mask` of torch.nn.MultiheadAttention, [batch, key], where True means *ignore this key*."""
    check_tensor("key_padding_mask", key_padding_mask)
    if key_padding_mask.dtype != torch.bool or key_padding_mask.dim() != 2:
        raise ArgumentError(f"key_padding_mask must be boolean [batch, key], but it is {describe(key_padding_mask)}")
    return KeyMask(~key_padding_mask)


def from_torch_mask(attn_mask: Tensor, *, true_means: str) -> Visible:
    """From a PyTorch attention mask, boolean or additive (0 and -inf).

    PyTorch has two conventions for boolean masks: use `true_means="hidden"` for torch.nn.MultiheadAttention and
    nn.Transformer, `true_means="visible"` for scaled_dot_product_attention.
    """
    check_tensor("attn_mask", attn_mask)
    true_is_hidden = _true_is_hidden(true_means)
    if attn_mask.dtype == torch.bool:
        return Mask(~attn_mask if true_is_hidden else attn_mask)
    message = f"attn_mask ({attn_mask.dtype}) must be boolean or hold only 0 and -inf; add a bias in the score instead"
    hidden = attn_mask == -torch.inf
    no_bias = (hidden | (attn_mask == 0)).all()
    if torch.compiler.is_compiling():
        torch._assert_async(no_bias, message)  # there are no numbers while tracing: the compiled code checks them
    elif not attn_mask.is_floating_point() or not no_bias:
        raise ArgumentError(message)
    return Mask(~hidden)


def to_torch_mask(
    visible: Visible | Bool[Tensor, "..."],
    *,
    true_means: str,
    lead: tuple[int, ...] = (),
    queries: int,
    keys: int,
    device: torch.device | str = "cpu",
) -> Bool[Tensor, "*lead query key"]:
    """A boolean PyTorch mask, in the convention `true_means` (see `from_torch_mask`)."""
    true_is_hidden = _true_is_hidden(true_means)
    matrix = whole(visible, lead=lead, queries=queries, keys=keys, device=device)
    return ~matrix if true_is_hidden else matrix


def to_torch_padding(
    visible: Visible | Bool[Tensor, "..."], *, batch: int, keys: int, device: torch.device | str = "cpu"
) -> Bool[Tensor, "batch key"]:
    """A `key_padding_mask` for torch.nn.MultiheadAttention, from a mask that is the same for every query."""
    check_sizes(batch=batch, least=0)
    matrix = whole(visible, lead=(batch,), queries=1, keys=keys, device=device)
    return ~matrix[:, 0]


def _true_is_hidden(true_means: str) -> bool:
    if true_means not in ("hidden", "visible"):
        raise ArgumentError(f'true_means must be "hidden" or "visible", but it is {true_means!r}')
    return true_means == "hidden"
