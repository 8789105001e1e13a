"""Image encoders: an image becomes a grid of regions, each a vector that a decoder can attend to.

The grid is that of a residual network (as in Show, Attend and Tell, Xu et al. 2015), or patches through Transformer
layers (Dosovitskiy et al. 2021). Each region gets its position as two learned vectors, of its row and of its column.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NoReturn

import torch
from annotated_types import Ge, Le
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from jumok.errors import ArgumentError, ConfigError
from jumok.images.resnet import Block, ResNet, Stem
from jumok.layers.dropout import Dropout
from jumok.layers.transformer import EncoderLayer
from jumok.models.build import DECODERS, AnySourceDecoderConfig
from jumok.models.encoder_decoder import Encoder, EncoderDecoder, Encoding
from jumok.models.transformer.config import initialise
from jumok.settings import Depth, FilePath, Fraction, OnlyWith, PositiveInt, Settings

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Mean and standard deviation of the colours in ImageNet, which its networks expect to be standardised."""

Layout = Literal["own", "resnet18", "resnet34", "resnet50"]
LAYOUTS: dict[str, tuple[Block, tuple[int, ...]]] = {
    "resnet18": ("basic", (2, 2, 2, 2)),
    "resnet34": ("basic", (3, 4, 6, 3)),
    "resnet50": ("bottleneck", (3, 4, 6, 3)),
}


@dataclass(frozen=True, kw_only=True)
class ImageEncoderConfig(Settings):
    """The settings that all image encoders share."""

    section: ClassVar[str] = "encoder"

    kind: str = ""
    width: PositiveInt = 256
    """Size of a region's vector."""
    positions: bool = True
    """Add learned row and column embeddings to each region."""
    dropout: Fraction = 0.1
    """Dropout on the regions."""


@dataclass(frozen=True, kw_only=True)
class GridEncoderConfig(ImageEncoderConfig):
    """The section [encoder] of a captioner, with kind = "grid": a residual network."""

    kind: Literal["grid"] = "grid"
    """Kind of image encoder: "grid" (convolutional) or "patches" (Transformer)."""
    layout: Layout = "own"
    """Network: "resnet18", "resnet34" or "resnet50" of torchvision, or "own", set by `blocks`, `channels`, `stem`."""
    stages: Annotated[int, Ge(1), Le(4), OnlyWith("layout", *LAYOUTS)] = 4
    """Number of stages of a named layout to use; 3 gives a grid twice as fine as 4."""
    blocks: Annotated[tuple[Depth, ...], OnlyWith("layout", "own")] = (1, 1, 1)
    """Residual blocks in each stage of layout "own"."""
    channels: Annotated[PositiveInt, OnlyWith("layout", "own")] = 32
    """Channels of the first stage of layout "own"; each further stage has twice as many."""
    stem: Annotated[Stem, OnlyWith("layout", "own")] = "small"
    """First layers of layout "own": "large" (7 × 7, a quarter of the resolution) or "small" (3 × 3, all of it)."""
    weights: FilePath = ""
    """File of pretrained weights in torchvision's format: .pth, .pt or .safetensors."""
    freeze: Annotated[bool, OnlyWith("weights")] = False
    """Do not train the pretrained weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.blocks:
            raise ConfigError(f"{self.shown('blocks')} must have at least one stage")

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
    patch: PositiveInt = 8
    """Side of a patch in pixels."""
    layers: Annotated[int, Ge(0), Le(1000)] = 4
    """Number of Transformer layers; 0 uses the projected patches alone."""
    heads: PositiveInt = 4
    """Attention heads per layer; must divide `width`."""
    hidden: PositiveInt = 512
    """Hidden size of the feed-forward networks."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise ConfigError(f"{self.shown('heads')} does not divide {self.shown('width')}")


Centres = tuple[float, float]
"""Centre of the first region's receptive field and the distance to the next, as fractions of the image's side."""


class ImageEncoder(Encoder):
    """Turns a batch of images of one size into an `Encoding` whose states are the regions, row by row."""

    def __init__(self, config: ImageEncoderConfig, *, side: int, grid: tuple[int, int], centres: Centres) -> None:
        super().__init__()
        self.width, self.side, self.grid, self.centres = config.width, side, grid, centres
        self.places = GridPositions(grid, config.width) if config.positions else nn.Identity()
        self.dropout = Dropout(config.dropout)

    def forward(self, images: UInt8[Tensor, "batch 3 side side"]) -> Encoding:
        """Encode a batch; the summary of an image is the mean of its regions."""
        # Under autocast the last layer gives half precision; sums over many words need more.
        dtype = next(self.parameters()).dtype
        states = self.regions(_standardised(images).to(dtype)).to(dtype)
        visible = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
        return Encoding(states, visible, states.mean(1))

    def self_attention(self, images: UInt8[Tensor, "batch 3 side side"]) -> NoReturn:
        """Raise an ArgumentError: image encoders have no maps of self-attention."""
        raise ArgumentError(
            "there is no map of the self-attention of an image encoder; use --kind cross or decoder (in Python kind=)"
        )

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
                f"images.size = {side} gives one region (a region is {network.shrinks} × {network.shrinks} pixels); "
                f"set images.size = {network.shrinks + 1} or more, or use fewer stages"
            )
        # Region i is around pixel i · shrinks: padding by half the size centres every convolution on a pixel it keeps.
        super().__init__(config, side=side, grid=(cells, cells), centres=(0.5 / side, network.shrinks / side))
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
                f"encoder.patch = {config.patch} does not divide images.size = {side}; expected a divisor of it"
            )
        step = config.patch / side
        super().__init__(config, side=side, grid=(side // config.patch,) * 2, centres=(step / 2, step))
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


EncoderConfig = GridEncoderConfig | PatchEncoderConfig


def build_captioner(
    encoder_config: EncoderConfig, decoder_config: AnySourceDecoderConfig, *, side: int, vocabulary: int
) -> EncoderDecoder:
    """A captioner of images `side` pixels high and wide; the same weights after the same torch.manual_seed.

    Its decoder attends to the regions of an image, row by row (Xu et al. 2015).
    """
    if isinstance(encoder_config, GridEncoderConfig):
        encoder: ImageEncoder = GridEncoder(encoder_config, side=side)
    else:
        encoder = PatchEncoder(encoder_config, side=side)
    decoder = DECODERS[decoder_config.kind].make(
        decoder_config, vocabulary=vocabulary, encoder_width=encoder.width, embedding=None
    )
    return EncoderDecoder(encoder, decoder)
