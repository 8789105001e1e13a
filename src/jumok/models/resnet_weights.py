"""Weights of a residual network from a file of the user's, in torchvision's format; reading one runs no code."""

import pickle
from pathlib import Path

import torch
from torch import Tensor

from jumok.errors import DataError
from jumok.models.resnet import ResNet
from jumok.models.weights import read_tensors

COUNTER = "num_batches_tracked"  # not in older files, and nothing depends on it


def begin_with_weights(network: ResNet, path: str | Path) -> None:
    """Put the weights of a .pth, .pt or .safetensors file into the network; what comes after its stages is left out."""
    tensors = {name: tensor for name, tensor in _read(Path(path)).items() if not name.startswith("fc.")}
    wanted = {name: tensor for name, tensor in network.state_dict().items() if not name.endswith(COUNTER)}
    for name, weight in wanted.items():
        if name not in tensors:
            raise DataError(f"{path} has no {name}: it is not of the network that encoder.layout and its like describe")
        if tensors[name].shape != weight.shape:
            raise DataError(
                f"{path}: {name} is {list(tensors[name].shape)}, but encoder.layout and its like make it "
                f"{list(weight.shape)}"
            )
    known = {f"layer{number}." for number in range(network.stages + 1, 5)}
    for name in tensors:
        beyond = any(name.startswith(stage) for stage in known)
        if name not in wanted and not name.endswith(COUNTER) and not beyond:
            raise DataError(f"{path} has {name}, which the network has not; is it of another layout?")
    network.load_state_dict({name: tensors[name] for name in wanted}, strict=False)


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        return read_tensors(path)
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise DataError(f"encoder.weights: there is no file {path}") from None
    except OSError as error:
        raise DataError(f"encoder.weights: cannot read {path}: {error.strerror or error}") from None
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, AttributeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise DataError(f"{path} is not a file of weights alone, or is damaged ({reason})") from None
    if not isinstance(found, dict) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise DataError(f"{path} holds no table of weights by name; save model.state_dict(), not the model")
    return found
