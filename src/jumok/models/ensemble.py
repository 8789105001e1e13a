"""Several encoder-decoders as one, whose prediction is the mean of theirs.

    p(next token | tokens so far, source) = 1/n · Σᵢ pᵢ(next token | tokens so far, source)

An `EncoderDecoder` of these parts decodes, aligns and draws maps like any other.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.models.encoder_decoder import Decoder, Encoder, EncoderDecoder, Encoding, HeadWeights, Hidden, State


def ensemble(models: Sequence[EncoderDecoder]) -> EncoderDecoder:
    """One model of several with the same vocabularies."""
    widths = [model.encoder.width for model in models]
    encoder = EnsembleEncoder([model.encoder for model in models])
    return EncoderDecoder(encoder, EnsembleDecoder([model.decoder for model in models], widths))


class EnsembleEncoder(Encoder):
    """The encoders side by side: a state is their states one after another."""

    def __init__(self, encoders: Sequence[Encoder]) -> None:
        super().__init__()
        self.members = nn.ModuleList(encoders)
        self.width = sum(encoder.width for encoder in encoders)
        self.vocabulary = encoders[0].vocabulary
        self.limit = _least(encoder.limit for encoder in encoders)

    def forward(self, source: Int[Tensor, "batch source"], visible: Bool[Tensor, "batch source"]) -> Encoding:
        """Encode a padded batch."""
        encodings = [encoder(source, visible) for encoder in self.members]
        states, summary = (
            torch.cat(parts, -1) for parts in zip(*((e.states, e.summary) for e in encodings), strict=True)
        )
        return Encoding(states, visible, summary, source)

    def self_attention(
        self, source: Int[Tensor, "batch source"], visible: Bool[Tensor, "batch source"]
    ) -> tuple[HeadWeights, ...]:
        """The mean of the encoders' self-attention."""
        return _mean_attention([cast(Encoder, encoder).self_attention(source, visible) for encoder in self.members])


@dataclass(frozen=True, eq=False)
class EnsembleState(State):
    """The states of all decoders."""

    members: tuple[State, ...]

    def reorder(self, parents: Int[Tensor, "sentence beam"]) -> "EnsembleState":
        """Hypothesis b of sentence n continues what was hypothesis parents[n, b]."""
        return EnsembleState(tuple(state.reorder(parents) for state in self.members))

    def keep(self, sentences: Int[Tensor, " kept"]) -> "EnsembleState":
        """Only these sentences continue."""
        return EnsembleState(tuple(state.keep(sentences) for state in self.members))


class EnsembleDecoder(Decoder):
    """The decoders side by side; its hidden states are the logarithms of the mean probabilities."""

    def __init__(self, decoders: Sequence[Decoder], widths: Sequence[int]) -> None:
        super().__init__()
        self.members = nn.ModuleList(decoders)
        self.widths = list(widths)
        self.vocabulary = decoders[0].vocabulary
        self.limit = _least(decoder.limit for decoder in decoders)

    def hidden(self, encoding: Encoding, target_in: Int[Tensor, "batch target"]) -> Hidden:
        """The mean prediction at every position, and the mean attention."""
        hidden = [decoder.hidden(part, target_in) for decoder, part in self._parts(encoding)]
        attention, own = [each.attention for each in hidden], [each.self_attention for each in hidden]
        to_source, to_target = (_mean_attention(layers) if all(layers) else () for layers in (attention, own))
        return Hidden(self._mean(hidden), to_source, to_target)

    def logits(self, hidden: Hidden) -> Float[Tensor, "*position vocabulary"]:
        """The logarithms of the mean probabilities."""
        return hidden.states

    def start(self, encoding: Encoding, *, capacity: int) -> EnsembleState:
        """The states before the first token."""
        return EnsembleState(tuple(decoder.start(part, capacity=capacity) for decoder, part in self._parts(encoding)))

    def advance(self, state: State, tokens: Int[Tensor, "sentence beam"]) -> tuple[Hidden, EnsembleState]:
        """Append a token to every hypothesis of every decoder."""
        assert isinstance(state, EnsembleState)
        steps = [decoder.advance(each, tokens) for decoder, each in zip(self._decoders, state.members, strict=True)]
        return Hidden(self._mean([hidden for hidden, _ in steps])), EnsembleState(tuple(after for _, after in steps))

    def source_attention(self, encoding: Encoding, target_in: Int[Tensor, "batch target"]) -> tuple[HeadWeights, ...]:
        """The mean of the decoders' attention."""
        return _mean_attention([decoder.source_attention(part, target_in) for decoder, part in self._parts(encoding)])

    @property
    def _decoders(self) -> list[Decoder]:
        return [cast(Decoder, member) for member in self.members]

    def _parts(self, encoding: Encoding) -> list[tuple[Decoder, Encoding]]:
        """Every decoder with what its own encoder made of the source."""
        states, summaries = (torch.split(part, self.widths, -1) for part in (encoding.states, encoding.summary))
        return [
            (decoder, Encoding(state, encoding.visible, summary, encoding.tokens))
            for decoder, state, summary in zip(self._decoders, states, summaries, strict=True)
        ]

    def _mean(self, hidden: list[Hidden]) -> Float[Tensor, "*position vocabulary"]:
        """The logarithms of the mean probabilities."""
        logits = [decoder.logits(each) for decoder, each in zip(self._decoders, hidden, strict=True)]
        log_probs = [each.log_softmax(-1, dtype=torch.promote_types(each.dtype, torch.float32)) for each in logits]
        return torch.logsumexp(torch.stack(log_probs), 0) - math.log(len(log_probs))


@dataclass(frozen=True, eq=False)
class MeanWeights:
    """The mean over several weights of the same shape; of each one's heads first, if `joined`."""

    parts: tuple[HeadWeights, ...]
    joined: bool = False

    def __call__(
        self, *, heads: list[int] | None = None, rows: slice | list[int] | None = None
    ) -> Float[Tensor, "batch head target source"]:
        """The mean weights of the chosen heads and rows."""
        if not self.joined:
            return torch.stack([part(heads=heads, rows=rows) for part in self.parts]).mean(0)
        mean = torch.stack([part(rows=rows).mean(1, keepdim=True) for part in self.parts]).mean(0)
        return mean if heads is None else mean.expand(-1, len(heads), -1, -1)


def _mean_attention(members: Sequence[tuple[HeadWeights, ...]]) -> tuple[HeadWeights, ...]:
    """Layer by layer and head by head where all have the same number of both; otherwise one mean of all."""
    shapes = {(len(layers), *(layer(rows=slice(0, 1)).shape[1] for layer in layers)) for layers in members}
    if len(shapes) == 1:
        return tuple(MeanWeights(layers) for layers in zip(*members, strict=True))
    return (MeanWeights(tuple(MeanWeights(layers, joined=True) for layers in members), joined=True),)


def _least(limits: Iterable[int | None]) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)
