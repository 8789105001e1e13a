"""Augmentation: every image of a training batch is cropped, flipped and recoloured at random."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from annotated_types import Gt, Le
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from jumok.settings import Fraction, Settings


@dataclass(frozen=True, kw_only=True)
class AugmentConfig(Settings):
    """The section [augment] of a captioner's recipe; off by default."""

    section: ClassVar[str] = "augment"

    crop: Annotated[float, Gt(0), Le(1)] = 1.0
    """Smallest side of a random crop, as a share of the image's side; 1 turns cropping off."""
    flip: bool = False
    """Mirror images at random; leave it off if captions mention left and right."""
    colour: Fraction = 0.0
    """Largest relative change of brightness, contrast and saturation."""

    @property
    def changes(self) -> bool:
        """Whether any augmentation is on."""
        return self.crop < 1 or self.flip or self.colour > 0


def augment(
    images: UInt8[Tensor, "batch 3 side side"],
    rows: Int[np.ndarray, " batch"],
    config: AugmentConfig,
    *,
    seed: int,
    epoch: int,
) -> UInt8[Tensor, "batch 3 side side"]:
    """The images of these rows, each changed by random numbers of its own."""
    if not config.changes:
        return images
    draws = np.stack([np.random.default_rng([seed, epoch, int(row)]).random(7) for row in rows]).astype(np.float32)
    changed = images.float()
    if config.crop < 1 or config.flip:
        changed = _cut(changed, torch.from_numpy(draws[:, :4]), config)
    if config.colour:
        changed = _coloured(changed, 1 + config.colour * (2 * torch.from_numpy(draws[:, 4:]) - 1))
    return changed.round().clamp(0, 255).to(torch.uint8)


def _cut(
    images: Float[Tensor, "batch 3 side side"], draws: Float[Tensor, "batch 4"], config: AugmentConfig
) -> Float[Tensor, "batch 3 side side"]:
    """Enlarge a random square window of each image, flipped at random."""
    share = config.crop + (1 - config.crop) * draws[:, 0]
    across, down = ((1 - share) * (2 * draws[:, column] - 1) for column in (1, 2))
    mirror = 1 - 2 * (draws[:, 3] < 0.5).float() if config.flip else torch.ones(len(draws))
    nothing = torch.zeros(len(draws))
    # Where each pixel comes from: x' = mirror · share · x + across, y' = share · y + down, both from -1 to 1.
    rows = torch.stack([mirror * share, nothing, across, nothing, share, down], 1).view(-1, 2, 3)
    places = F.affine_grid(rows, list(images.shape), align_corners=False)
    return F.grid_sample(images, places, mode="bilinear", padding_mode="border", align_corners=False)


def _coloured(
    images: Float[Tensor, "batch 3 side side"], factors: Float[Tensor, "batch 3"]
) -> Float[Tensor, "batch 3 side side"]:
    """Scale brightness, then contrast about the mean of an image, then saturation about its grey levels."""
    brightness, contrast, saturation = (factor.view(-1, 1, 1, 1) for factor in factors.unbind(1))
    images = images * brightness
    middle = images.mean((1, 2, 3), keepdim=True)
    images = middle + contrast * (images - middle)
    grey = images.mean(1, keepdim=True)
    return grey + saturation * (images - grey)
