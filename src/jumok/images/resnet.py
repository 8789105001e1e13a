"""ResNet: the network, and weights of torchvision read into it."""

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
from jumok.models.weights import read_tensors

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
        self.downsample = _way_round(inputs, channels, stride)
        self.relu = nn.ReLU()

    def forward(self, x: Float[Tensor, "batch inputs row column"]) -> Float[Tensor, "batch channels rows columns"]:
        """The sum of both ways."""
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
        self.downsample = _way_round(inputs, 4 * channels, stride)
        self.relu = nn.ReLU()

    def forward(self, x: Float[Tensor, "batch inputs row column"]) -> Float[Tensor, "batch channels rows columns"]:
        """The sum of both ways."""
        change = self.relu(self.bn1(self.conv1(x)))
        change = self.bn3(self.conv3(self.relu(self.bn2(self.conv2(change)))))
        out: Tensor = self.relu(change + (x if self.downsample is None else self.downsample(x)))
        return out


class ResNet(nn.Module):
    """Images to a grid of regions: `blocks` of each stage, the first `channels` wide and every next twice that."""

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
        """How many pixels of the image a region of the grid is high and wide."""
        _initialise(self)

    def forward(self, images: Float[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch channels rows columns"]:
        """The last stage's grid."""
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


def _way_round(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    """Where shapes differ, the way round a block goes through a 1 × 1 convolution."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(_convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


def _initialise(model: nn.Module) -> None:
    """He's normal spread, which keeps what goes through a rectifier as large as it was (He et al. 2015)."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


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
