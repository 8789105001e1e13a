"""The ways to say what is visible: by lengths, causal, in a window, and from or to PyTorch's two conventions."""

from numbers import Integral, Real
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.attention import tracing
from jumok.attention.arguments import check_sizes, whole_number
from jumok.attention.masks import Causal, GaussianWindow, Keys, Lengths, Mask, Visible, Window, whole
from jumok.errors import ArgumentError


def from_lengths(lengths: Int[Tensor, "*batch"] | list[int]) -> Visible:
    """Each sequence shows its first `lengths` keys; shape [batch], or any leading part of [batch, head, ...]."""
    lengths = lengths if isinstance(lengths, Tensor) else _whole_numbers(lengths)
    if lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise ArgumentError(f"lengths must be whole numbers, but it is {lengths.dtype}")
    if tracing.is_readable(lengths) and lengths.numel() and int(lengths.min()) < 0:
        raise ArgumentError(f"lengths must not be negative, but it holds {int(lengths.min())}")
    return Lengths(lengths)


def causal(offset: int = 0) -> Visible:
    """Query i sees keys 0 … i + offset; in step-by-step decoding `offset` is how many keys came before this call."""
    return Causal(whole_number("offset", offset))


def window(
    before: int, after: int | None = None, *, centre: Float[Tensor, "*#lead query"] | None = None, offset: int = 0
) -> Visible:
    """Keys from `before` places before each query to `after` places after it (defaults to `before`): local-m.

    Query i stands at key i + offset, or at `centre[i]` if centres are given (Luong et al. 2015, section 3.2);
    a centre that is NaN or infinite is nowhere, and its query sees nothing.
    """
    after = before if after is None else after
    if not all(isinstance(places, Real) and places >= 0 for places in (before, after)):
        raise ArgumentError(
            f"a window reaches before = {before!r} and after = {after!r} places; both must be numbers, none negative"
        )
    if centre is not None:
        _check_tensor("centre", centre)
    return Window(_plain_number(before), _plain_number(after), centre, whole_number("offset", offset))


def gaussian_window(centre: Float[Tensor, "*#lead query"], reach: float) -> Visible:
    """Keys within `reach` of a predicted `centre` per query, weighed by a Gaussian of σ = reach / 2 around it: local-p.

    The Gaussian multiplies the normalised weights (Luong et al. 2015, equation 10), so a row sums to at most 1.
    A query whose centre is NaN or infinite sees nothing.
    """
    if not (isinstance(reach, Real) and reach > 0):
        raise ArgumentError(f"reach must be a number greater than 0, but it is {reach!r}")
    _check_tensor("centre", centre)
    if not centre.is_floating_point():
        raise ArgumentError(f"centre must be a floating-point position, but it is {centre.dtype}")
    return GaussianWindow(centre, _plain_number(reach))


def from_torch_padding(key_padding_mask: Bool[Tensor, "batch key"]) -> Visible:
    """From `key_padding_mask` of torch.nn.MultiheadAttention, [batch, key]: True there means *ignore this key*."""
    _check_tensor("key_padding_mask", key_padding_mask)
    if key_padding_mask.dtype != torch.bool:
        raise ArgumentError(f"key_padding_mask must be boolean, but it is {key_padding_mask.dtype}")
    if key_padding_mask.dim() != 2:
        raise ArgumentError(f"key_padding_mask must be [batch, key], but its shape is {list(key_padding_mask.shape)}")
    return Keys(~key_padding_mask)


def from_torch_mask(attn_mask: Tensor, *, true_means: str) -> Visible:
    """From a PyTorch attention mask, boolean or additive (0 and -inf).

    PyTorch has two conventions for booleans, so say which one: `true_means="hidden"` for torch.nn.MultiheadAttention
    and nn.Transformer, `true_means="visible"` for scaled_dot_product_attention.
    """
    if true_means not in ("hidden", "visible"):
        raise ArgumentError(f'true_means must be "hidden" or "visible", but it is {true_means!r}')
    _check_tensor("attn_mask", attn_mask)
    if attn_mask.dtype == torch.bool:
        return Mask(~attn_mask if true_means == "hidden" else attn_mask)
    wrong = f"attn_mask ({attn_mask.dtype}) must be boolean or hold only 0 and -inf; a bias belongs to the score"
    hidden = attn_mask == -torch.inf
    no_bias = (hidden | (attn_mask == 0)).all()
    if torch.compiler.is_compiling():
        torch._assert_async(no_bias, wrong)  # what is traced has no numbers yet: the compiled code looks at them
    elif not attn_mask.is_floating_point() or not no_bias:
        raise ArgumentError(wrong)
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
    """As a boolean PyTorch mask, in the convention named by `true_means` (see `from_torch_mask`)."""
    if true_means not in ("hidden", "visible"):
        raise ArgumentError(f'true_means must be "hidden" or "visible", but it is {true_means!r}')
    matrix = whole(visible, lead=lead, queries=queries, keys=keys, device=device)
    return ~matrix if true_means == "hidden" else matrix


def _plain_number(given: Any) -> Any:
    """Python's own number for one of numpy's."""
    return int(given) if isinstance(given, Integral) else float(given)


def _whole_numbers(lengths: Any) -> Tensor:
    try:
        found = torch.as_tensor(lengths)
    except (TypeError, ValueError, RuntimeError):
        raise ArgumentError(f"lengths must be a tensor or a list of whole numbers, but it is {lengths!r}") from None
    return found if found.numel() else found.long()


def _check_tensor(name: str, given: Any) -> None:
    if not isinstance(given, Tensor):
        raise ArgumentError(f"{name} must be a tensor, but it is {type(given).__name__}; use torch.as_tensor({name})")


def to_torch_padding(
    visible: Visible | Bool[Tensor, "..."], *, batch: int, keys: int, device: torch.device | str = "cpu"
) -> Bool[Tensor, "batch key"]:
    """As `key_padding_mask` of torch.nn.MultiheadAttention, for a mask that is the same for every query."""
    check_sizes(batch=batch, least=0)
    matrix = whole(visible, lead=(batch,), queries=1, keys=keys, device=device)
    return ~matrix[:, 0]
