"""Learning to caption: the cross-entropy of the captions, and attention that leaves no region out.

doubly stochastic (Xu et al. 2015, eq. 14):    λ Σᵢ (1 − Σ_t α_ti)²        i a region, t a word
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from jumok.data.image_store import ImageBatch
from jumok.errors import ConfigError, TrainingError
from jumok.models.seq2seq import HeadWeights, Hidden
from jumok.training.config import TrainingConfig
from jumok.training.cross_entropy import Loss
from jumok.training.loss import Places, hidden_loss


class CaptionTask:
    """A captioner that says the captions of its images, token by token."""

    unit = "tok"

    def items(self, batch: ImageBatch) -> int:
        """Caption tokens."""
        return int(batch.target_visible.sum())

    def loss(self, model: nn.Module, batch: ImageBatch, device: torch.device, config: TrainingConfig) -> Loss:
        """Summed over the caption tokens, which are found before the batch leaves the CPU."""
        places = Places.of(batch)
        return caption_loss(
            model,
            batch.to(device),
            places.to(device),
            smoothing=config.label_smoothing,
            doubly_stochastic=config.doubly_stochastic,
        )

    def size(self, batch: ImageBatch) -> str:
        """In images and tokens."""
        count, _, side, _ = batch.images.shape
        return f"{count} images of {side} × {side} pixels, {batch.target_in.shape[1]} tokens long"

    def halves(self, batch: ImageBatch) -> list[ImageBatch]:
        """Each half without the padding only the other needed."""
        count = len(batch.images)
        if count < 2:
            raise TrainingError(
                f"out of memory with a single image ({self.size(batch)}); train a smaller model, or set a smaller "
                "images.size"
            )
        return [_cut(batch, 0, count // 2), _cut(batch, count // 2, count)]


def caption_loss(
    model: nn.Module, batch: ImageBatch, places: Places, *, smoothing: float = 0.0, doubly_stochastic: float = 0.0
) -> Loss:
    """The loss of a captioner on one batch."""
    encoder: Any = model.encoder
    decoder: Any = model.decoder
    hidden: Hidden = decoder.hidden(encoder(batch.images), batch.target_in)
    loss = hidden_loss(decoder, hidden, places, smoothing=smoothing)
    if not doubly_stochastic:
        return loss
    uneven = unevenness(hidden.attention, batch.target_visible)
    return loss._replace(total=loss.total + doubly_stochastic * uneven)


def unevenness(attention: Sequence[HeadWeights], words: Bool[Tensor, "batch target"]) -> Float[Tensor, ""]:
    """Σᵢ (1 − Σ_t α_ti)², summed over the captions; of the mean over heads, and the mean over layers of that."""
    if not attention:
        raise ConfigError("training.doubly_stochastic needs a decoder with attention, but this one has none")
    per_layer = []
    for layer in attention:
        weights = layer().float().mean(1) * words[..., None]
        per_layer.append(((1 - weights.sum(1)) ** 2).sum())
    return torch.stack(per_layer).mean()


def _cut(batch: ImageBatch, start: int, end: int) -> ImageBatch:
    rows = batch.each(lambda part: part[start:end])
    longest = int(rows.target_visible.any(0).sum())
    captions = (part[:, :longest] for part in (rows.target_in, rows.target_out, rows.target_visible))
    return ImageBatch(rows.images, *captions)
