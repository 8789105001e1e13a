"""What the tensors of one call of attention must have in common, and what is said when they have not."""

from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from jumok.attention.arguments import check_dense
from jumok.attention.scores import Score
from jumok.errors import ArgumentError


def check_input(name: str, x: Any, axes: str, layer: nn.Linear) -> None:
    """A tensor of these axes ("batch, query"), then the layer's width, of the layer's type and on its device."""
    if not isinstance(x, Tensor):
        raise ArgumentError(f"{name} must be a tensor, but it is {type(x).__name__}; use torch.as_tensor({name})")
    check_dense(name, x)
    if x.dim() != axes.count(",") + 2 or x.shape[-1] != layer.in_features:
        raise ArgumentError(f"{name} must be [{axes}, {layer.in_features}], but its shape is {list(x.shape)}")
    check_device_and_dtype(name, x, layer.weight)


def check_device_and_dtype(name: str, x: Any, weight: Any) -> None:
    """Of the type of the layer's weights, unless autocast sees to that, and on their device."""
    if not isinstance(weight, Tensor):  # a quantised layer takes what it takes
        return
    if x.device != weight.device:
        raise ArgumentError(f"{name} is on {x.device} but the layer is on {weight.device}; move one of them")
    cast = is_autocast(x.device) and x.dtype.is_floating_point
    if x.dtype != weight.dtype and not cast:
        raise ArgumentError(f"{name} is {x.dtype} but the layer is {weight.dtype}; use {name}.to({weight.dtype})")


def check_tensors(**tensors: Tensor) -> None:
    """Floating-point tensors of at least [time, dim], of one type and on one device."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise ArgumentError(
                f"{name} must be a tensor, but it is {type(tensor).__name__}; use torch.as_tensor({name})"
            )
        check_dense(name, tensor)
        if not tensor.is_floating_point():
            raise ArgumentError(f"{name} must be floating point, but it is {tensor.dtype}; use {name}.float()")
        if tensor.dim() < 2:
            raise ArgumentError(f"{name} must be at least [time, dim], but its shape is {list(tensor.shape)}")
    (first, model), *others = tensors.items()
    for name, tensor in others:
        if tensor.dtype != model.dtype:
            raise ArgumentError(f"{name} is {tensor.dtype} but {first} is {model.dtype}; they must be of one type")
        if tensor.device != model.device:
            raise ArgumentError(f"{name} is on {tensor.device} but {first} is on {model.device}; move one of them")


def common_dtype(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Under autocast, where layers hand over what types they like, the tensors brought to one; elsewhere themselves."""
    if not all(isinstance(tensor, Tensor) for tensor in tensors) or len({tensor.dtype for tensor in tensors}) == 1:
        return tensors
    if not is_autocast(tensors[0].device):
        return tensors
    widest = reduce(torch.promote_types, (tensor.dtype for tensor in tensors))
    return tuple(tensor.to(widest) for tensor in tensors)


def is_autocast(device: torch.device) -> bool:
    """Whether autocast sees to types there; a device without numbers has none, and PyTorch raises an error for it."""
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


def check_parameters(score: Score, query: Tensor) -> None:
    """A score's tensors live where the queries live, are of their type and have the axes that are their own."""
    for name, own in score.parameter_axes.items():
        tensor = getattr(score, name)
        if not isinstance(tensor, Tensor):
            if own:
                raise ArgumentError(f"{name} of {score} must be a tensor, but it is {type(tensor).__name__}")
            continue
        check_dense(f"{name} of {score}", tensor)
        if not tensor.is_floating_point():
            raise ArgumentError(f"{name} of {score} must be floating point, but it is {tensor.dtype}")
        if tensor.dim() < own:
            raise ArgumentError(
                f"{name} of {score} must have at least {own} axes, but its shape is {list(tensor.shape)}"
            )
        # A scalar goes anywhere, as it does in PyTorch; autocast sees to types itself.
        if tensor.dim() and tensor.device != query.device:
            raise ArgumentError(f"{name} of {score} is on {tensor.device} but query is on {query.device}")
        if tensor.dim() and tensor.dtype != query.dtype and not is_autocast(query.device):
            raise ArgumentError(f"{name} of {score} is {tensor.dtype} but query is {query.dtype}; use .to(query.dtype)")


def leading_axes(score: Score, **tensors: Tensor) -> tuple[int, ...]:
    """The axes before [time, dim], broadcast over all tensors and the score's own parameters."""
    leads = [(name, tuple(tensor.shape[:-2])) for name, tensor in tensors.items()]
    for name, own in score.parameter_axes.items():
        parameter = getattr(score, name)
        if isinstance(parameter, Tensor):
            leads.append((name, tuple(parameter.shape[: parameter.dim() - own])))
    # The usual case, without PyTorch's slow way of looking at it.
    if all(lead == leads[0][1] or not lead for _, lead in leads):
        return leads[0][1]
    try:
        return tuple(torch.broadcast_shapes(*(lead for _, lead in leads)))  # type: ignore[no-untyped-call]
    except RuntimeError:
        seen = ", ".join(f"{name if name in tensors else f'{name} of {score}'} {list(lead)}" for name, lead in leads)
        raise ArgumentError(f"the leading axes do not broadcast: {seen}") from None
