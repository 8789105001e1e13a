"""What a layer's input must be, and what is said when it is not."""

from typing import Any

from torch import Tensor, nn

from jumok.attention.arguments import check_dense
from jumok.attention.checks import is_autocast
from jumok.errors import ArgumentError


def check_input(name: str, x: Any, axes: str, layer: nn.Linear) -> None:
    """A tensor of these axes ("batch, query"), then the layer's width, of the layer's type and on its device."""
    if not isinstance(x, Tensor):
        raise ArgumentError(f"{name} must be a tensor, but it is {type(x).__name__}; use torch.as_tensor({name})")
    check_dense(name, x)
    if x.dim() != axes.count(",") + 2 or x.shape[-1] != layer.in_features:
        raise ArgumentError(f"{name} must be [{axes}, {layer.in_features}], but its shape is {list(x.shape)}")
    check_kind(name, x, layer.weight)


def check_kind(name: str, x: Any, weight: Any) -> None:
    """Of the type of the layer's weights, unless autocast sees to that, and on their device."""
    if not isinstance(weight, Tensor):  # a quantised layer takes what it takes
        return
    if x.device != weight.device:
        raise ArgumentError(f"{name} is on {x.device} but the layer is on {weight.device}; move one of them")
    cast = is_autocast(x.device) and x.dtype.is_floating_point
    if x.dtype != weight.dtype and not cast:
        raise ArgumentError(f"{name} is {x.dtype} but the layer is {weight.dtype}; use {name}.to({weight.dtype})")
