"""Weights of a residual network from a file of the user's, in torchvision's format; reading one runs no code."""

import os
import pickle
import zipfile
from io import BufferedReader
from pathlib import Path

import torch
from torch import Tensor

from jumok.errors import DataError
from jumok.models.resnet import ResNet
from jumok.models.weights import read_tensors
from jumok.plain_files import open_plain

MOST_BYTES = 2**31
"""Eight times what the largest residual network of torchvision takes."""
BROKEN = (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, AttributeError, zipfile.BadZipFile)
"""What reading a damaged file ends with."""
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


def _check_size(file: BufferedReader, path: Path) -> None:
    """Refuse what would not fit: a sparse file of any size, or a .pth, which is a .zip, that unpacks to one."""
    size = os.fstat(file.fileno()).st_size
    if size <= MOST_BYTES and zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as parts:
            size = sum(part.file_size for part in parts.infolist())
    if size > MOST_BYTES:
        raise DataError(f"encoder.weights: {path} holds {size:,} bytes; {MOST_BYTES:,} are the most it may hold")
    file.seek(0)


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        return read_tensors(path)
    if not path.exists():
        raise DataError(f"encoder.weights: there is no file {path}")
    try:
        with open_plain(path) as file:
            _check_size(file, path)
            found = torch.load(file, map_location="cpu", weights_only=True)
    except DataError:
        raise
    except BROKEN as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise DataError(f"{path} is not a file of weights alone, or is damaged ({reason})") from None
    if not isinstance(found, dict) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise DataError(f"{path} holds no table of weights by name; save model.state_dict(), not the model")
    return found
