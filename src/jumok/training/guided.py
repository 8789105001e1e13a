"""Guided alignment: attention is taught where to look by word links (Chen et al. 2016, Garg et al. 2019).

    loss = - Σ_t  1/n_t  Σ_{s linked to t}  log α(t, s)        n_t the source tokens linked to target token t

Target tokens without links are taught nothing. The weights of one layer are taught, those of one head or the mean of
all; the other heads stay free to look at whatever translation needs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from jumok.errors import ConfigError
from jumok.models.seq2seq import HeadWeights
from jumok.training.config import TrainingConfig

SMALLEST = 1e-6  # of a weight, so that its logarithm stays finite


@dataclass(frozen=True, kw_only=True)
class Guide:
    """Which attention is taught, and how much that counts."""

    weight: float
    layer: int | None
    head: int | None
    shift: bool

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
        )

    def loss(
        self, attention: Sequence[HeadWeights], links: Bool[Tensor, "batch target source"] | None
    ) -> Float[Tensor, ""]:
        """Cross-entropy from links to attention, summed over the target tokens that have links."""
        if links is None:
            raise ConfigError("training.guided_alignment needs word links of the training pairs; set data.alignments")
        weights = self._weights(attention)
        if self.shift:  # the step after a token was predicted is the one that reads it
            weights, links = weights[:, 1:], links[:, :-1]
        rows = links.float()
        wanted = rows / rows.sum(-1, keepdim=True).clamp(min=1)
        found: Tensor = -self.weight * (wanted * weights.float().clamp(min=SMALLEST).log()).sum()
        return found

    def _weights(self, attention: Sequence[HeadWeights]) -> Float[Tensor, "batch target source"]:
        layers = len(attention)
        if not layers:
            raise ConfigError("training.guided_alignment needs a decoder with attention, but this one has none")
        layer = guided_layer(self.layer, layers)
        if not 0 <= layer < layers:
            raise ConfigError(f"training.guided_layer = {layer}, but the decoder's layers are 0 to {layers - 1}")
        if self.head is None:
            return attention[layer]().mean(1)
        every = attention[layer]
        try:
            return every(heads=[self.head]).squeeze(1)
        except ValueError as error:
            raise ConfigError(f"training.guided_head = {self.head}: {error}") from None


def guided_layer(layer: int | None, layers: int) -> int:
    """The layer that is taught: as given, else the last but one, which aligns best (Garg et al. 2019)."""
    return max(layers - 2, 0) if layer is None else layer
