"""A recurrent encoder, h(t) = f(h(t-1), x(t)), reading the source in one direction or in both."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.errors import ConfigError
from jumok.layers import Recurrence, TokenEmbedding
from jumok.layers.dropout import Dropout
from jumok.layers.recurrent import side_by_side
from jumok.models.config import PretrainedVectors, TextModelConfig, token_table
from jumok.models.encoder_decoder import Encoder, Encoding
from jumok.settings import Depth, Fraction, PositiveInt

Cell = Literal["rnn", "gru", "lstm"]


@dataclass(frozen=True, kw_only=True)
class RnnConfig(TextModelConfig):
    """The settings that recurrent encoders and decoders share; the two need not be equal."""

    cell: Cell = "gru"
    """Recurrent cell: plain "rnn", "gru" or "lstm"."""
    width: PositiveInt = 512
    """Size of the hidden state."""
    layers: Depth = 1
    """Number of recurrent layers."""
    embedding: PositiveInt = 256
    """Size of the embeddings."""
    dropout: Fraction = 0.2
    """Dropout on embeddings, between layers and before the output layer."""
    word_dropout: Fraction = 0.0
    """Dropout of whole embeddings: in training, each token is hidden with this probability (Gal & Ghahramani 2016)."""

    @property
    def token_width(self) -> int:
        """Size of a token's vector."""
        return self.embedding

    def width_for(self, token_width: int) -> str:
        """The setting that makes a token's vector this wide."""
        return f"{self.section}.embedding = {token_width}"


@dataclass(frozen=True, kw_only=True)
class RnnEncoderConfig(RnnConfig, PretrainedVectors):
    """The section [encoder] of a recipe, with kind = "rnn"."""

    section: ClassVar[str] = "encoder"

    kind: Literal["rnn"] = "rnn"
    """Kind of encoder: "transformer" or "rnn"."""
    width: PositiveInt = 512
    """Size of the hidden state, of both directions together."""
    dropout: Fraction = 0.2
    """Dropout on embeddings and between layers."""
    bidirectional: bool = True
    """Read the source in both directions; each direction gets half of `width`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bidirectional and self.width % 2:
            raise ConfigError(
                f"{self.shown('width')} is odd, but two directions share it equally; "
                f"use {self.width + 1}, or set {self.section}.bidirectional = false"
            )


class RnnEncoder(Encoder):
    """A recurrent encoder; its summary is the last state of each direction.

    A bidirectional state is [forwards; backwards], the states of reading up to its token from either end. Padding must
    follow the tokens. `embedding` is a table to use, pretrained or shared; the encoder makes its own by default.
    """

    def __init__(self, config: RnnEncoderConfig, *, vocabulary: int, embedding: TokenEmbedding | None = None) -> None:
        super().__init__()
        self.config, self.width, self.vocabulary = config, config.width, vocabulary
        self.embedding = token_table(config, vocabulary=vocabulary, scale=False, embedding=embedding)
        self.dropout, self.word_dropout = Dropout(config.dropout), nn.Dropout1d(config.word_dropout)
        self.forwards = self._direction()
        self.backwards = self._direction() if config.bidirectional else None

    def forward(self, source: Int[Tensor, "batch source"], visible: Bool[Tensor, "batch source"]) -> Encoding:
        """Encode a padded batch; padding follows the tokens and changes nothing."""
        lengths = visible.sum(1)
        states: Tensor = self.word_dropout(self.embedding(source))
        for layer, forwards in enumerate(self.forwards):
            states = self.dropout(states)
            if self.backwards is None:
                states = forwards(states)
            else:
                both = (states, _reversed(states, lengths))
                ahead, back = side_by_side((forwards, self.backwards[layer]), both)  # type: ignore[arg-type]
                states = torch.cat([ahead, _reversed(back, lengths)], -1)
        states = states.masked_fill(~visible[..., None], 0)
        return Encoding(states, visible, self._summary(states, lengths), source)

    def _direction(self) -> nn.ModuleList:
        config = self.config
        width = config.width // 2 if config.bidirectional else config.width
        inputs = [config.embedding] + [config.width] * (config.layers - 1)
        return nn.ModuleList(Recurrence(cell=config.cell, inputs=size, width=width) for size in inputs)

    def _summary(
        self, states: Float[Tensor, "batch source width"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch width"]:
        last = (lengths - 1).clamp(min=0)
        ends = states[torch.arange(len(states), device=states.device), last]
        if self.backwards is None:
            return ends
        half = self.width // 2
        return torch.cat([ends[:, :half], states[:, 0, half:]], -1)


def _reversed(
    states: Float[Tensor, "batch time width"], lengths: Int[Tensor, " batch"]
) -> Float[Tensor, "batch time width"]:
    """Each sequence from its last token to its first; padding stays where it is."""
    places = torch.arange(states.shape[1], device=states.device)
    mirrored = lengths[:, None] - 1 - places
    index = torch.where(mirrored >= 0, mirrored, places)
    reversed_states: Tensor = _Mirrored.apply(states, index[..., None].expand(-1, -1, states.shape[-1]))  # type: ignore[no-untyped-call]
    return reversed_states


class _Mirrored(torch.autograd.Function):
    """states[index] along time, where doing it twice changes nothing: the gradient is mirrored, not added up."""

    generate_vmap_rule = True

    @staticmethod
    def forward(states: Tensor, index: Tensor) -> Tensor:
        return states.gather(1, index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        return gradient.gather(1, index), None
