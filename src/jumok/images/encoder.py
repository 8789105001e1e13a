"""Image encoders: an image becomes a grid of regions, each a vector that a decoder can attend to.

The grid is that of a residual network (as in Show, Attend and Tell, Xu et al. 2015), or patches through Transformer
layers (Dosovitskiy et al. 2021). Each region gets its position as two learned vectors, of its row and of its column.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from jumok.errors import ConfigError
from jumok.images.resnet import Block, ResNet, Stem
from jumok.layers.transformer import EncoderLayer
from jumok.models.encoder_decoder import Encoding
from jumok.models.transformer.config import initialise

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of the colours in ImageNet, which its networks expect to be standardised."""

Layout = Literal["own", "resnet18", "resnet34", "resnet50"]
LAYOUTS: dict[str, tuple[Block, tuple[int, ...]]] = {
    "resnet18": ("basic", (2, 2, 2, 2)),
    "resnet34": ("basic", (3, 4, 6, 3)),
    "resnet50": ("bottleneck", (3, 4, 6, 3)),
}


@dataclass(frozen=True, kw_only=True)
class ImageEncoderConfig:
    """The settings that all image encoders share."""

    section: ClassVar[str] = "encoder"

    kind: str = ""
    width: int = 256
    """Size of a region's vector."""
    positions: bool = True
    """Add learned row and column embeddings to each region."""
    dropout: float = 0.1
    """Dropout on the regions."""

    def __post_init__(self) -> None:
        self._at_least("width", 1)
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"{self._said('dropout')}; wanted at least 0 and below 1")

    def _at_least(self, name: str, least: int) -> None:
        if getattr(self, name) < least:
            raise ConfigError(f"{self._said(name)}; wanted at least {least}")

    def _said(self, name: str) -> str:
        value = getattr(self, name)
        shown = f'"{value}"' if isinstance(value, str) else list(value) if isinstance(value, tuple) else value
        return f"{self.section}.{name} = {shown}"


@dataclass(frozen=True, kw_only=True)
class GridEncoderConfig(ImageEncoderConfig):
    """The section [encoder] of a captioner, with kind = "grid": a residual network."""

    kind: Literal["grid"] = "grid"
    """Kind of image encoder: "grid" (convolutional) or "patches" (Transformer)."""
    layout: Layout = "own"
    """ "resnet18", "resnet34", "resnet50" as in torchvision, or "own": what `blocks`, `channels` and `stem` say."""
    stages: int = 4
    """Number of stages of a named layout to use; 3 gives a grid twice as fine as 4."""
    blocks: tuple[int, ...] = (1, 1, 1)
    """Blocks in every stage of a network of your own."""
    channels: int = 32
    """Channels of its first stage; every next one has twice as many."""
    stem: Stem = "small"
    """How it begins: "large" (7 × 7, a quarter of the pixels a side are left) or "small" (3 × 3, all are)."""
    weights: str = ""
    """File of weights to begin with, in torchvision's format: .pth, .pt or .safetensors."""
    freeze: bool = False
    """Do not train these weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layout not in get_args(Layout):
            raise ConfigError(f"{self._said('layout')}; wanted one of {', '.join(get_args(Layout))}")
        if not 1 <= self.stages <= 4:
            raise ConfigError(f"{self._said('stages')}; wanted 1 to 4")
        if not self.blocks or min(self.blocks) < 1:
            raise ConfigError(f"{self._said('blocks')}; wanted at least one stage, of at least one block each")
        self._at_least("channels", 1)
        if self.freeze and not self.weights:
            raise ConfigError("encoder.freeze = true needs encoder.weights: random weights would stay random")

    def network(self) -> ResNet:
        """A residual network with fresh weights."""
        if self.layout == "own":
            return ResNet(block="basic", blocks=self.blocks, channels=self.channels, stem=self.stem)
        block, blocks = LAYOUTS[self.layout]
        return ResNet(block=block, blocks=blocks[: self.stages])


@dataclass(frozen=True, kw_only=True)
class PatchEncoderConfig(ImageEncoderConfig):
    """The section [encoder] of a captioner, with kind = "patches": square patches through Transformer layers."""

    kind: Literal["patches"] = "patches"
    """Kind of image encoder: "grid" (convolutional) or "patches" (Transformer)."""
    patch: int = 8
    """Side of a patch in pixels."""
    layers: int = 4
    """Number of Transformer layers; 0 uses the projected patches alone."""
    heads: int = 4
    """Attention heads of each; must divide `width`."""
    hidden: int = 512
    """Hidden size of the feed-forward networks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("patch", "heads", "hidden"):
            self._at_least(name, 1)
        self._at_least("layers", 0)
        if self.width % self.heads:
            raise ConfigError(f"{self._said('heads')} does not divide {self._said('width')}")


class ImageEncoder(nn.Module, ABC):
    """Turns a batch of images of one size into an `Encoding` whose states are the regions, row by row."""

    def __init__(self, config: ImageEncoderConfig, *, side: int, grid: tuple[int, int]) -> None:
        super().__init__()
        self.width, self.side, self.grid = config.width, side, grid
        self.places = GridPositions(grid, config.width) if config.positions else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, images: UInt8[Tensor, "batch 3 side side"]) -> Encoding:
        """Encode a batch; the summary of an image is the mean of its regions."""
        # Under autocast the last layer gives half precision; sums over many words need more.
        states = self.regions(_standardised(images)).to(next(self.parameters()).dtype)
        visible = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
        return Encoding(states, visible, states.mean(1))

    @abstractmethod
    def regions(self, images: Float[Tensor, "batch 3 side side"]) -> Float[Tensor, "batch region width"]:
        """The vectors of the regions, from standardised colours."""


def _standardised(images: UInt8[Tensor, "batch 3 side side"]) -> Float[Tensor, "batch 3 side side"]:
    mean, deviation = (torch.tensor(part, device=images.device).view(3, 1, 1) for part in (MEAN, DEVIATION))
    return (images / 255 - mean) / deviation


class GridEncoder(ImageEncoder):
    """The last grid of a residual network, projected to `width`."""

    def __init__(self, config: GridEncoderConfig, *, side: int) -> None:
        network = config.network()
        cells = -(-side // network.shrinks)
        if cells < 2:
            raise ConfigError(
                f"images.size = {side} leaves a single region, because the network's are {network.shrinks} pixels a "
                f"side; wanted at least {network.shrinks + 1}, or fewer stages"
            )
        super().__init__(config, side=side, grid=(cells, cells))
        self.config, self.network = config, network
        self.to_width = nn.Linear(network.width, config.width)
        if config.freeze:
            network.requires_grad_(False)

    def regions(self, images: Float[Tensor, "batch 3 side side"]) -> Float[Tensor, "batch region width"]:
        """Convolve, then flatten the grid row by row."""
        grid: Tensor = self.network(images)
        states: Tensor = self.dropout(self.places(self.to_width(grid.flatten(2).transpose(1, 2))))
        return states

    def train(self, mode: bool = True) -> "GridEncoder":
        """Set the mode; a frozen network stays in evaluation mode, which keeps the statistics of its norms."""
        super().train(mode)
        if self.config.freeze:
            self.network.eval()
        return self


class PatchEncoder(ImageEncoder):
    """Patches, projected to `width`, through Transformer layers in which each attends to all."""

    def __init__(self, config: PatchEncoderConfig, *, side: int) -> None:
        if side % config.patch:
            raise ConfigError(
                f"encoder.patch = {config.patch} does not divide images.size = {side}; wanted a divisor of it"
            )
        super().__init__(config, side=side, grid=(side // config.patch, side // config.patch))
        self.config = config
        self.to_width = nn.Conv2d(3, config.width, config.patch, stride=config.patch)
        self.layers = nn.ModuleList(_layer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        initialise(self.layers)

    def regions(self, images: Float[Tensor, "batch 3 side side"]) -> Float[Tensor, "batch region width"]:
        """Project the patches, add positions, and run the layers."""
        x: Tensor = self.dropout(self.places(self.to_width(images).flatten(2).transpose(1, 2)))
        for layer in self.layers:
            x = layer(x).values
        normed: Tensor = self.norm(x)
        return normed


def _layer(config: PatchEncoderConfig) -> EncoderLayer:
    return EncoderLayer(
        width=config.width, heads=config.heads, hidden=config.hidden, activation="gelu", dropout=config.dropout
    )


class GridPositions(nn.Module):
    """x + R[row] + C[column]: a learned vector for every row of the grid and one for every column."""

    def __init__(self, grid: tuple[int, int], width: int) -> None:
        super().__init__()
        self.rows, self.columns = (PositionTable(count, width) for count in grid)

    def forward(self, x: Float[Tensor, "batch region width"]) -> Float[Tensor, "batch region width"]:
        """Regions come row by row."""
        return x + (self.rows.table[:, None] + self.columns.table[None, :]).flatten(0, 1).to(x.dtype)


class PositionTable(nn.Module):
    """Learned vectors; weight decay skips parameters named `table`."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(nn.init.normal_(torch.empty(count, width), std=0.02))
