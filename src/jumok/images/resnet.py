"""A residual network (He et al. 2016), and reading torchvision's weights into it."""

import os
import pickle
import zipfile
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from jumok.errors import DataError
from jumok.files import open_plain
from jumok.models.weights import check_fit, read_tensors

Block = Literal["basic", "bottleneck"]
Stem = Literal["large", "small"]


class BasicBlock(nn.Module):
    """x + two 3 × 3 convolutions."""

    expansion = 1

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _convolution(inputs, channels, 3, stride)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = _convolution(channels, channels, 3)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = _shortcut(inputs, channels, stride)
        self.relu = nn.ReLU()

    def forward(self, x: Float[Tensor, "batch inputs row column"]) -> Float[Tensor, "batch channels rows columns"]:
        """The block with its residual connection."""
        change = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out: Tensor = self.relu(change + (x if self.downsample is None else self.downsample(x)))
        return out


class Bottleneck(nn.Module):
    """x + a 3 × 3 convolution between two 1 × 1 ones; the stride is in the 3 × 3, as torchvision has it."""

    expansion = 4

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _convolution(inputs, channels, 1)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = _convolution(channels, channels, 3, stride)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = _convolution(channels, 4 * channels, 1)
        self.bn3 = nn.BatchNorm2d(4 * channels)
        self.downsample = _shortcut(inputs, 4 * channels, stride)
        self.relu = nn.ReLU()

    def forward(self, x: Float[Tensor, "batch inputs row column"]) -> Float[Tensor, "batch channels rows columns"]:
        """The block with its residual connection."""
        change = self.relu(self.bn1(self.conv1(x)))
        change = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(change)))))
        out: Tensor = self.relu(change + (x if self.downsample is None else self.downsample(x)))
        return out


class ResNet(nn.Module):
    """Images to a grid of regions; stage n has `blocks[n]` blocks and `channels` · 2ⁿ channels."""

    def __init__(self, *, block: Block, blocks: Sequence[int], channels: int = 64, stem: Stem = "large") -> None:
        super().__init__()
        kind = BasicBlock if block == "basic" else Bottleneck
        large = stem == "large"
        self.conv1 = _convolution(3, channels, 7 if large else 3, 2 if large else 1)
        self.bn1 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1) if large else nn.Identity()
        inputs, stages = channels, []
        for number, count in enumerate(blocks):
            width, stride = channels * 2**number, 2 if number else 1
            stages.append(_stage(kind, inputs, width, count, stride))
            inputs = width * kind.expansion
        self.stages = len(stages)
        for number, stage in enumerate(stages, start=1):
            self.add_module(f"layer{number}", stage)
        self.width = inputs
        self.shrinks = (4 if large else 1) * 2 ** (len(stages) - 1)
        """Side of a region of the grid in pixels of the image."""
        _initialise(self)

    def forward(self, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch channels rows columns"]:
        """The grid of the last stage."""
        x: Tensor = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        for number in range(1, self.stages + 1):
            x = self.get_submodule(f"layer{number}")(x)
        return x


def _stage(
    kind: type[BasicBlock] | type[Bottleneck], inputs: int, width: int, count: int, stride: int
) -> nn.Sequential:
    first = kind(inputs, width, stride)
    return nn.Sequential(first, *(kind(width * kind.expansion, width, 1) for _ in range(count - 1)))


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    """The residual connection of a block: a 1 × 1 convolution where shapes differ, else None."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(_convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


def _initialise(model: nn.Module) -> None:
    """He-normal weights, which keep the variance of activations through rectifiers (He et al. 2015)."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


MOST_BYTES = 2**31
"""Eight times the size of torchvision's largest residual network."""
BROKEN = (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError, AttributeError, zipfile.BadZipFile)
"""The errors of reading a damaged file."""
COUNTER = "num_batches_tracked"  # missing in older files, and not used


def begin_with_weights(network: ResNet, path: str | Path) -> None:
    """Load the weights of a .pth, .pt or .safetensors file into the network; later stages in the file are ignored."""
    unused = ("fc.", *(f"layer{number}." for number in range(network.stages + 1, 5)))
    tensors = {
        name: tensor
        for name, tensor in _read(Path(path)).items()
        if not name.startswith(unused) and not name.endswith(COUNTER)
    }
    wanted = {name: tensor for name, tensor in network.state_dict().items() if not name.endswith(COUNTER)}
    check_fit(wanted, tensors, path, hint="set encoder.layout to the network that the weights belong to")
    network.load_state_dict(tensors, strict=False)


def _check_size(file: BufferedReader, path: Path) -> None:
    """Refuse a file that is too large, or a .pth file, which is a .zip, that unpacks to too much."""
    size = os.fstat(file.fileno()).st_size
    if size <= MOST_BYTES and zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as parts:
            size = sum(part.file_size for part in parts.infolist())
    if size > MOST_BYTES:
        raise DataError(f"encoder.weights: {path} holds {size:,} bytes, but it may hold at most {MOST_BYTES:,}")
    file.seek(0)


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        return read_tensors(path)
    if not path.exists():
        raise DataError(f"encoder.weights: there is no file {path}")
    try:
        with open_plain(path) as file:
            _check_size(file, path)
            tensors = torch.load(file, map_location="cpu", weights_only=True)
    except DataError:
        raise
    except BROKEN as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:120]
        raise DataError(f"{path} is damaged or holds more than weights ({reason})") from None
    if not isinstance(tensors, dict) or not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
        raise DataError(f"{path} holds no tensors by name; save model.state_dict(), not the model")
    return tensors
