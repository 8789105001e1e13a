"""A model's weights as a safetensors file: read without running anything, and checked against the model."""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from jumok.errors import DataError


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name; those that are one tensor under several names come once, under the first."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            found[name] = tensor.detach()
    return found


def to_bytes(tensors: dict[str, Tensor]) -> bytes:
    """The contents of a safetensors file."""
    return bytes(save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}))


def from_bytes(content: bytes, path: str | Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file that was read from `path`."""
    try:
        tensors: dict[str, Tensor] = load(content)
    except SafetensorError as error:
        raise DataError(f"{path} is not a whole safetensors file ({error}); copy it again or train anew") from None
    return tensors


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    return from_bytes(content, path)


@torch.no_grad()
def load_weights(model: nn.Module, tensors: dict[str, Tensor], path: str | Path) -> None:
    """Put tensors read from `path` into the model; if one does not fit, the error names it and nothing is changed."""
    weights = weights_of(model)
    check_fit(weights, tensors, path)
    for name, weight in weights.items():
        weight.copy_(tensors[name])


def check_fit(wanted: dict[str, Tensor], tensors: dict[str, Tensor], path: str | Path) -> None:
    """Raise a DataError with the first of `tensors`, read from `path`, that has not the name and shape wanted."""
    advice = "it belongs to another model; use the recipe that was saved beside it"
    for name, weight in wanted.items():
        if name not in tensors:
            raise DataError(f"{path} has no {name} {list(weight.shape)}, which this model wants; {advice}")
        if tensors[name].shape != weight.shape:
            found = list(tensors[name].shape)
            raise DataError(f"{path} holds {name} as {found}, but this model wants {list(weight.shape)}; {advice}")
    if extra := sorted(tensors.keys() - wanted.keys()):
        raise DataError(f"{path} holds {extra[0]}, which this model does not have; {advice}")
