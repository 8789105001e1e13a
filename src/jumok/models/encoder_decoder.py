"""A sequence-to-sequence model: an encoder turns its input into states, a decoder steps over them.

Any encoder goes with any decoder, because all that passes between them is an `Encoding`.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.errors import ArgumentError


class Encoding(NamedTuple):
    """What an encoder made of a batch of inputs; the same for every decoder."""

    states: Float[Tensor, "batch source width"]
    """One vector for every source item (a token, a region of an image); zeros where there is none."""
    visible: Bool[Tensor, "batch source"]
    """True where there is a source item."""
    summary: Float[Tensor, "batch width"]
    """The whole input in one vector: the fixed context of a decoder without attention, and where others begin."""
    tokens: Int[Tensor, "batch source"] | None = None
    """The source ids, for decoders that copy; None where the source is not text."""


@runtime_checkable
class HeadWeights(Protocol):
    """Attention weights [batch, head, target, source], built when called; as `jumok.attention.Weights`."""

    def __call__(
        self, *, heads: list[int] | None = None, rows: slice | list[int] | None = None
    ) -> Float[Tensor, "batch head target source"]: ...


class Copied(NamedTuple):
    """What a decoder that copies takes from the source, at some places of the target."""

    tokens: Int[Tensor, "*place source"]
    """The source ids."""
    weights: Float[Tensor, "*place source"]
    """The probability of copying each, given that one is copied; that of a repeated id stands at its first place."""
    generate: Float[Tensor, "*place"]
    """The logit of writing a word of the decoder's own instead."""

    def at(self, places: Bool[Tensor, "batch target"]) -> "Copied":
        """The same at some places only, one after another."""
        return Copied(*(part[places] for part in self))


class Hidden(NamedTuple):
    """What a decoder knows of every place of a target, before it is turned into words.

    A loss needs no logits at padding: `logits = decoder.logits(hidden.states[visible])`, and for a decoder that copies,
    `decoder.logits(hidden.states[visible], hidden.copied.at(visible))`.
    """

    states: Float[Tensor, "batch target width"]
    attention: tuple[HeadWeights, ...] = ()
    """Where each place looked in the source, one entry for each such layer: [batch, head, target, source]."""
    own: tuple[HeadWeights, ...] = ()
    """Where it looked in the target so far, one entry for each such layer: [batch, head, target, target]."""
    copied: Copied | None = None
    """For decoders that copy."""
    penalty: Float[Tensor, "batch target"] | None = None
    """As in a `Prediction`."""


class Prediction(NamedTuple):
    """What a decoder says of a whole target at once."""

    logits: Float[Tensor, "batch target vocabulary"]
    """Scores of the next token at every place; their softmax is its distribution."""
    attention: tuple[HeadWeights, ...] = ()
    """Where every target place looked in the source, one entry for each layer that looks; empty without attention."""
    penalty: Float[Tensor, "batch target"] | None = None
    """What to add to the training loss of every place, such as that of coverage; None for nothing."""


class State(ABC):
    """Where a decoder stands after some steps, for a beam of hypotheses for each of some sentences.

    What belongs to a sentence (keys and values of its source) is there once, however wide the beam.
    """

    @abstractmethod
    def reorder(self, parents: Int[Tensor, "sentence beam"]) -> "State":
        """Hypothesis b of sentence n goes on from what was hypothesis parents[n, b]; the beam may change its width."""

    @abstractmethod
    def keep(self, sentences: Int[Tensor, " kept"]) -> "State":
        """Only these sentences go on; the others have finished."""


Kind = TypeVar("Kind", bound="BeamState")


class BeamState(State):
    """A state that can pick sentences, and hypotheses by number: b of sentence n is n · beam + b."""

    sentences: int
    beam: int

    @classmethod
    def checked(cls: type[Kind], state: State, tokens: Tensor) -> Kind:
        """The state as one of this kind, if it is one and there is a token for each of its hypotheses."""
        if not isinstance(state, cls):
            raise ArgumentError(
                f"state must come from this decoder's start or step, but it is a {type(state).__name__}"
            )
        wanted = [state.sentences, state.beam]
        if list(tokens.shape) != wanted:
            raise ArgumentError(
                f"tokens is {list(tokens.shape)}; wanted {wanted}, one for each hypothesis of the state"
            )
        return state

    def reorder(self, parents: Int[Tensor, "sentence beam"]) -> "BeamState":
        """Hypothesis b of sentence n goes on from what was hypothesis parents[n, b]; the beam may change its width."""
        firsts = torch.arange(self.sentences, device=parents.device)[:, None] * self.beam
        return self.with_hypotheses(firsts + parents)

    def keep(self, sentences: Int[Tensor, " kept"]) -> "BeamState":
        """Only these sentences go on; the others have finished."""
        hypotheses = torch.arange(self.beam, device=sentences.device)
        return self.with_hypotheses(sentences[:, None] * self.beam + hypotheses).with_sources(sentences)

    @abstractmethod
    def with_hypotheses(self, numbers: Int[Tensor, "sentence beam"]) -> "BeamState":
        """The same with these hypotheses."""

    @abstractmethod
    def with_sources(self, sentences: Int[Tensor, " kept"]) -> "BeamState":
        """The same with the sources of these sentences only."""


class Decoder(nn.Module, ABC):
    """Predicts targets over an encoding: whole ones while training, token by token while decoding."""

    vocabulary: int
    limit: int | None = None
    """The most steps it can take; None where there is no such limit."""

    @abstractmethod
    def forward(self, encoding: Encoding, target_in: Int[Tensor, "batch target"]) -> Prediction:
        """Predict every next token of a known target at once (teacher forcing)."""

    @abstractmethod
    def start(self, encoding: Encoding, *, capacity: int) -> State:
        """Stand before the first token, with a beam of one hypothesis; at most `capacity` steps will follow."""

    @abstractmethod
    def step(
        self, state: State, tokens: Int[Tensor, "sentence beam"]
    ) -> tuple[Float[Tensor, "sentence beam vocabulary"], State]:
        """Append one token to every hypothesis: the log-probabilities of what comes next, and where that leaves us."""


class Encoder(nn.Module, ABC):
    """Turns a batch of token ids into an `Encoding` of `width`-wide states."""

    width: int
    limit: int | None = None
    """The longest source it can take; None where there is no such limit."""

    @abstractmethod
    def forward(self, source: Int[Tensor, "batch source"], visible: Bool[Tensor, "batch source"]) -> Encoding:
        """Encode a padded batch; what is not visible changes nothing."""


class Seq2Seq(nn.Module):
    """An encoder and a decoder, trained together."""

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(
        self,
        source: Int[Tensor, "batch source"],
        source_visible: Bool[Tensor, "batch source"],
        target_in: Int[Tensor, "batch target"],
    ) -> Prediction:
        """Predict every next token of `target_in`."""
        prediction: Prediction = self.decoder(self.encoder(source, source_visible), target_in)
        return prediction
