"""Guided alignment: attention is taught where to look by word links (Chen et al. 2016, Garg et al. 2019).

    loss = - Σ_t  1/n_t  Σ_{s linked to t}  log α(t, s)        n_t the source tokens linked to target token t

Target tokens without links are taught nothing, or with `null` to look at the end of the source. The weights of one
layer are taught, those of one head or the mean of all; the other heads stay free to look at whatever translation needs.

With the context "causal" they are the weights that predict words, which know the target so far. With "full" they come
from a pass of their own, in which every place sees the whole target: what a word is linked to can depend on those after
it, and nobody has to guess them, for words are aligned when the whole target is known.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from jumok.data import Batch
from jumok.errors import ConfigError
from jumok.models.seq2seq import Encoding, HeadWeights, Hidden
from jumok.training.config import Context, TrainingConfig

SMALLEST = 1e-6  # of a weight, so that its logarithm stays finite


@dataclass(frozen=True, kw_only=True)
class Guide:
    """Which attention is taught, and how much that counts."""

    weight: float
    layer: int | None
    head: int | None
    shift: bool
    context: Context = "causal"
    null: bool = False

    @classmethod
    def of(cls, config: TrainingConfig) -> "Guide | None":
        """The recipe's guide; None where there is none."""
        if not config.guided_alignment:
            return None
        return cls(
            weight=config.guided_alignment,
            layer=config.guided_layer,
            head=config.guided_head,
            shift=config.guided_shift,
            context=config.guided_context,
            null=config.guided_null,
        )

    def taught(self, decoder: Any, encoding: Encoding, hidden: Hidden, batch: Batch) -> HeadWeights:
        """The attention of the layer that is taught, `hidden` being what the decoder made of the batch."""
        layers = len(hidden.attention)
        if not layers:
            raise ConfigError("training.guided_alignment needs a decoder with attention, but this one has none")
        layer = guided_layer(self.layer, layers)
        if self.context == "causal":
            return hidden.attention[layer]
        informed: HeadWeights = decoder.informed_attention(encoding, batch.target_in, batch.target_visible, layer=layer)
        return informed

    def links(self, batch: Batch) -> Bool[Tensor, "batch target source"]:
        """Where each target token is to look."""
        if batch.links is None:
            raise ConfigError("training.guided_alignment needs word links of the training pairs; set data.alignments")
        if not self.null:
            return batch.links
        source = batch.source_visible
        end = torch.arange(source.shape[1], device=source.device) == source.sum(1, keepdim=True) - 1
        bare = batch.target_visible & ~batch.links.any(-1)
        return batch.links | (bare[:, :, None] & end[:, None])

    def loss(self, attention: HeadWeights, links: Bool[Tensor, "batch target source"]) -> Float[Tensor, ""]:
        """Cross-entropy from links to the attention of a layer, summed over the target tokens that have links."""
        weights = self._of_heads(attention)
        if self.shift:  # the step after a token was predicted is the one that reads it
            weights, links = weights[:, 1:], links[:, :-1]
        rows = links.float()
        wanted = rows / rows.sum(-1, keepdim=True).clamp(min=1)
        found: Tensor = -self.weight * (wanted * weights.float().clamp(min=SMALLEST).log()).sum()
        return found

    def _of_heads(self, attention: HeadWeights) -> Float[Tensor, "batch target source"]:
        if self.head is None:
            return attention().mean(1)
        try:
            return attention(heads=[self.head]).squeeze(1)
        except ValueError as error:
            raise ConfigError(f"training.guided_head = {self.head}: {error}") from None


def guided_layer(layer: int | None, layers: int) -> int:
    """The layer that is taught: as given, -1 the last; else the last but one, which aligns best (Garg et al. 2019)."""
    if layer is None:
        return max(layers - 2, 0)
    if not -layers <= layer < layers:
        raise ConfigError(f"training.guided_layer = {layer}, but the decoder's layers are 0 to {layers - 1}")
    return layer % layers
