"""A residual network over images (He et al. 2016), its weights named as torchvision names them.

    stem: 7 × 7 convolution, stride 2, then max-pooling; or one 3 × 3 convolution for small pictures
    stage n: blocks of convolutions with a way round each; every stage but the first halves the grid

So a file of torchvision's ResNet weights fits as it is; the classifier `fc` is left out.
"""

from collections.abc import Sequence
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

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
