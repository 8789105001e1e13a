"""Guided alignment: the attention of one layer is trained on word links (Chen et al. 2016; Garg et al. 2019)."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from jumok.data import Batch
from jumok.models.encoder_decoder import Decoder, Encoding, HeadWeights, Hidden

SMALLEST = 1e-6
"""Weights are raised to this much, so that their logarithm stays finite."""
GuidedContext = Literal["causal", "full"]


@dataclass(frozen=True, kw_only=True)
class GuidedAlignment:
    """Trains one layer's attention towards given word links; the settings `training.guided_…` (Garg et al. 2019)."""

    weight: float
    layer: int | None
    head: int | None
    shift: bool
    context: GuidedContext = "causal"
    null: bool = False

    def attention(self, decoder: Decoder, encoding: Encoding, hidden: Hidden, batch: Batch) -> HeadWeights:
        """The attention of the guided layer; `hidden` is what the decoder returned for the batch."""
        layer = guided_layer(self.layer, len(hidden.attention))
        if self.context == "causal":
            return hidden.attention[layer]
        return decoder.informed_attention(encoding, batch.target_in, batch.target_visible, layer=layer)

    def links(self, batch: Batch) -> Bool[Tensor, "batch target source"]:
        """The source tokens that each target token should attend to."""
        assert batch.word_links is not None, "a recipe with guided alignment has data.alignments"
        if not self.null:
            return batch.word_links
        source = batch.source_visible
        end = torch.arange(source.shape[1], device=source.device) == source.sum(1, keepdim=True) - 1
        unlinked = batch.target_visible & ~batch.word_links.any(-1)
        return batch.word_links | (unlinked[:, :, None] & end[:, None])

    def loss(self, attention: HeadWeights, links: Bool[Tensor, "batch target source"]) -> Float[Tensor, ""]:
        """Cross-entropy of a layer's attention against the links, summed over the target tokens that have links."""
        weights = self._of_heads(attention)
        if self.shift:  # the row after a token was predicted is the one that reads it
            weights, links = weights[:, 1:], links[:, :-1]
        rows = links.float()
        wanted = rows / rows.sum(-1, keepdim=True).clamp(min=1)
        return -self.weight * (wanted * weights.float().clamp(min=SMALLEST).log()).sum()

    def _of_heads(self, attention: HeadWeights) -> Float[Tensor, "batch target source"]:
        return attention().mean(1) if self.head is None else attention(heads=[self.head]).squeeze(1)


def guided_layer(layer: int | None, layers: int) -> int:
    """The guided layer counted from 0; by default the last but one, which aligns best (Garg et al. 2019)."""
    return max(layers - 2, 0) if layer is None else layer % layers
