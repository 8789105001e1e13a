"""Encoder-decoder models: an encoder turns a source into states, a decoder predicts a target over them.

    encoding = encoder(*source)
    p(next token | tokens so far, source) = softmax(decoder.logits(decoder.hidden(encoding, tokens)))

Any encoder works with any decoder, because all that passes between them is an `Encoding`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.attention import Weights
from jumok.errors import ArgumentError
from jumok.layers import TokenEmbedding

NO_SELF_ATTENTION = (
    "the {} of this model has no self-attention, which only a Transformer has; use --kind cross (in Python "
    'kind="cross")'
)


class Encoding(NamedTuple):
    """The output of an encoder for a batch of sources, in one form for all decoders."""

    states: Float[Tensor, "batch source width"]
    """One vector for each source item (a token, a region of an image); zeros at padding."""
    visible: Bool[Tensor, "batch source"]
    """True where there is a source item, False at padding."""
    summary: Float[Tensor, "batch width"]
    """The whole source in one vector: the context of a decoder without attention, and a first state for others."""
    tokens: Int[Tensor, "batch source"] | None = None
    """The source ids, for decoders that copy; None where the source is not text."""

    def select(self, rows: Int[Tensor, " row"]) -> "Encoding":
        """The encodings of some rows of the batch, in this order; a row may repeat."""
        tokens = None if self.tokens is None else self.tokens[rows]
        return Encoding(self.states[rows], self.visible[rows], self.summary[rows], tokens)

    def range(self, start: int, end: int) -> "Encoding":
        """The encodings from row `start` to row `end`, which is not among them; tensors are views."""
        tokens = None if self.tokens is None else self.tokens[start:end]
        return Encoding(self.states[start:end], self.visible[start:end], self.summary[start:end], tokens)

    @staticmethod
    def joined(batches: "Sequence[Encoding]") -> "Encoding":
        """Several batches as one, padded to the longest source."""
        if len(batches) == 1:
            return batches[0]
        longest = max(batch.visible.shape[1] for batch in batches)

        def along(parts: Sequence[Tensor]) -> Tensor:
            return torch.cat([F.pad(part, (0, 0) * (part.dim() - 2) + (0, longest - part.shape[1])) for part in parts])

        states, visible, summary, tokens = zip(*batches, strict=True)
        has_tokens = all(part is not None for part in tokens)
        return Encoding(along(states), along(visible), torch.cat(summary), along(tokens) if has_tokens else None)


@runtime_checkable
class HeadWeights(Protocol):
    """Attention weights [batch, head, target, source], built when called; `jumok.attention.Weights` is one."""

    def __call__(
        self, *, heads: list[int] | None = None, rows: slice | list[int] | None = None
    ) -> Float[Tensor, "batch head target source"]: ...


@dataclass(frozen=True, eq=False)
class SingleHeadWeights:
    """Weights of attention without a head axis, as `HeadWeights` [batch, 1, target, source].

    `parts` holds the weights of the whole target, or those of each step in turn: [batch, steps, source].
    """

    parts: tuple[Weights | Float[Tensor, "batch steps source"], ...]

    def __call__(
        self, *, heads: Sequence[int] | None = None, rows: slice | Sequence[int] | None = None
    ) -> Float[Tensor, "batch head target source"]:
        """The weights of the chosen rows; the only head is number 0."""
        for head in heads or ():
            if head not in (0, -1):
                raise ArgumentError(f"heads asks for number {head}, but there is 1")
        weights = torch.cat([part if isinstance(part, Tensor) else part() for part in self.parts], 1)[:, None]
        if heads is not None:
            weights = weights.expand(-1, len(heads), -1, -1)
        return weights if rows is None else weights[:, :, rows if isinstance(rows, slice) else list(rows)]


class Copied(NamedTuple):
    """What a decoder that copies takes from the source at each position of the target."""

    tokens: Int[Tensor, "*position source"]
    """The source ids."""
    weights: Float[Tensor, "*position source"]
    """The probability of copying each, given that one is copied; that of a repeated id is all at its first position."""
    generate: Float[Tensor, "*position"]
    """The logit of generating a word from the vocabulary instead."""


class Hidden(NamedTuple):
    """A decoder's states before its output layer, with attention and other extras; only the states are required."""

    states: Float[Tensor, "*position width"]
    """[batch, target, width] of a whole target; [sentence, beam, width] of one step."""
    attention: tuple[HeadWeights, ...] = ()
    """Attention over the source [batch, head, target, source], one entry for each layer; empty without attention."""
    self_attention: tuple[HeadWeights, ...] = ()
    """Attention over the target so far [batch, head, target, target], one entry for each layer that has it."""
    copied: Copied | None = None
    """What `logits` mixes into the distribution of a decoder that copies."""
    penalty: Float[Tensor, "*position"] | None = None
    """A term to add to the training loss at each position, such as the coverage loss."""

    def select(self, positions: Int[Tensor, " token"] | None) -> "Hidden":
        """The same at some or all positions of the flattened [batch, target], without attention: what a loss needs."""

        def selected(part: Tensor) -> Tensor:
            flat = part.flatten(0, 1)
            return flat if positions is None else flat[positions]

        copied = None if self.copied is None else Copied(*map(selected, self.copied))
        return Hidden(
            selected(self.states), copied=copied, penalty=None if self.penalty is None else selected(self.penalty)
        )


class LinearOutput(NamedTuple):
    """States h, weight W and bias b of an output layer whose logits are h Wᵀ + b."""

    states: Float[Tensor, "*position width"]
    weight: Float[Tensor, "vocabulary width"]
    bias: Float[Tensor, " vocabulary"] | None


class Prediction(NamedTuple):
    """What a decoder predicts for a whole target at once."""

    logits: Float[Tensor, "batch target vocabulary"]
    """Scores of the next token at every position; their softmax is its distribution."""
    attention: tuple[HeadWeights, ...] = ()
    """As in `Hidden`."""
    penalty: Float[Tensor, "batch target"] | None = None
    """As in `Hidden`."""


class State(ABC):
    """A decoder's state after some steps, for a beam of hypotheses of each sentence.

    A state keeps what belongs to the source once for each sentence, however wide the beam is.
    """

    @abstractmethod
    def reorder(self, parents: Int[Tensor, "sentence beam"]) -> "State":
        """Hypothesis b of sentence n continues what was hypothesis parents[n, b]; the beam may change its width."""

    @abstractmethod
    def keep(self, sentences: Int[Tensor, " kept"]) -> "State":
        """Only these sentences continue; the others have finished."""


@dataclass(frozen=True, eq=False)
class BeamState(State):
    """The encoding of each sentence; a subclass adds fields of tensors [sentence, beam, ...], or of tuples of them."""

    encoding: Encoding

    def reorder(self, parents: Int[Tensor, "sentence beam"]) -> "BeamState":
        """Hypothesis b of sentence n continues what was hypothesis parents[n, b]; the beam may change its width."""
        sentences = torch.arange(len(parents), device=parents.device)[:, None]
        return self._indexed(self.encoding, (sentences, parents))

    def keep(self, sentences: Int[Tensor, " kept"]) -> "BeamState":
        """Only these sentences continue."""
        return self._indexed(self.encoding.select(sentences), sentences)

    def _indexed(self, encoding: Encoding, index: Tensor | tuple[Tensor, Tensor]) -> "BeamState":
        names = [field.name for field in fields(self) if field.name != "encoding"]
        return replace(self, encoding=encoding, **{name: _indexed(getattr(self, name), index) for name in names})


def _indexed(tensors: Any, index: Tensor | tuple[Tensor, Tensor]) -> Any:
    """A tensor, or a tuple of them to any depth, at some places."""
    return tensors[index] if isinstance(tensors, Tensor) else tuple(_indexed(part, index) for part in tensors)


@dataclass(frozen=True, eq=False)
class PrefixState(BeamState):
    """The tokens of every hypothesis so far: the state of a decoder that caches nothing."""

    prefixes: Int[Tensor, "sentence beam length"]


class StaticState(ABC):
    """A decoder's state for a whole search in preallocated tensors, so that a CUDA graph can record its step.

    It is made for a number of sentences, a beam, a source length and a number of steps, and is used for one search
    after another. Unlike a `State` it changes with every step. It is kept as long as the decoder, to which it must
    refer by a `weakref.proxy`.
    """

    @abstractmethod
    def begin(self, encoding: Encoding) -> None:
        """Start a new search with sources of the same shape: the state before the first token, for every hypothesis."""

    @abstractmethod
    def advance(self, tokens: Int[Tensor, "sentence beam"], parents: Int[Tensor, "sentence beam"]) -> "Hidden":
        """Hypothesis b of sentence n continues what was hypothesis parents[n, b], and a token is appended to it.

        Only the states, and what is copied, are needed of the result.
        """

    @abstractmethod
    def take(self, other: "StaticState", sentences: Int[Tensor, " sentence"]) -> None:
        """Copy the state of some sentences of `other`, which the same decoder made for more sentences."""

    @abstractmethod
    def put(self, other: "StaticState", rows: Int[Tensor, " row"]) -> None:
        """Replace these sentences by the first ones of `other`, which has taken one step at most.

        Nothing was taken from another state since this one began. Its sentences may then differ in their number of
        steps; that of a finished sentence is not to pass the capacity, however many more are taken.
        """


class Decoder(nn.Module, ABC):
    """Predicts a target over an `Encoding`: all positions at once in training, one token at a time in decoding.

    A decoder of your own sets `vocabulary` and writes two methods, `hidden` and `logits`. It then trains, decodes with
    beam search, and with attention also aligns words and draws maps:

        class GruDecoder(Decoder):
            def __init__(self, *, vocabulary, width):
                super().__init__()
                self.vocabulary = vocabulary
                self.words = nn.Embedding(vocabulary, width)
                self.gru = nn.GRU(width, width, batch_first=True)
                self.output = nn.Linear(2 * width, vocabulary)

            def hidden(self, encoding, target_in):
                states, _ = self.gru(self.words(target_in), encoding.summary[None].contiguous())
                keys = encoding.states
                context, weights = attend(states, keys, keys, visible=encoding.visible[:, None])
                return Hidden(torch.cat([states, context], -1), attention=(SingleHeadWeights((weights,)),))

            def logits(self, hidden):
                return self.output(hidden.states)

    The state at position t may depend on tokens 0 to t of `target_in` only, and on visible source items only.

    The rest is optional. Without `start` and `advance`, each step of decoding runs `hidden` over all tokens so far:
    correct, but n steps cost n² / 2; write both to carry a recurrent state or a cache instead. Return `copied` in
    `Hidden` to copy source tokens, and `penalty` to add a term to the training loss. Write `informed_attention` to
    support `training.guided_context = "full"`, and `linear_output` to save memory and time on a GPU. Write
    `has_static_state` and `static_state` to decode on a GPU without waiting for the host.
    """

    vocabulary: int
    """Number of target tokens."""
    limit: int | None = None
    """The most steps the decoder can take; None for no limit."""
    source_limit: int | None = None
    """The longest source the decoder can attend to; None for no limit."""
    embedding: TokenEmbedding
    """The vectors of the target tokens; needed only to start from pretrained vectors."""
    attends_while_writing: bool = False
    """Whether a position attends to what its own token is written from; alignments then use its row, not the next."""

    @abstractmethod
    def hidden(self, encoding: Encoding, target_in: Int[Tensor, "batch target"]) -> Hidden:
        """The states at every position of a known target (teacher forcing), and the attention of every layer."""

    @abstractmethod
    def logits(self, hidden: Hidden) -> Float[Tensor, "*position vocabulary"]:
        """Scores of the next token at any positions: [batch, target], [sentence, beam], or those a loss selects."""

    def hidden_in_training(self, encoding: Encoding, target_in: Int[Tensor, "batch target"]) -> Hidden:
        """As `hidden`, for losses that need no attention weights; a decoder may skip them to be faster."""
        return self.hidden(encoding, target_in)

    def linear_output(self, hidden: Hidden) -> LinearOutput | None:
        """What `logits` multiplies, for a loss that never stores all logits; None if they are not a single product."""
        return None

    def start(self, encoding: Encoding, *, capacity: int) -> State:
        """The state before the first token, with one hypothesis for each sentence; at most `capacity` steps follow."""
        empty = torch.zeros(len(encoding.states), 1, 0, dtype=torch.long, device=encoding.states.device)
        return PrefixState(encoding, empty)

    def advance(self, state: State, tokens: Int[Tensor, "sentence beam"]) -> tuple[Hidden, State]:
        """Append a token to every hypothesis: the states there, and the next state of the decoder.

        The attention of a step is [sentence, head, beam, source].
        """
        before = cast(PrefixState, state)
        prefixes = torch.cat([before.prefixes, tokens[..., None]], -1)
        sentences, beam, length = prefixes.shape
        rows = torch.arange(sentences, device=tokens.device).repeat_interleave(beam)
        hidden = self.hidden(before.encoding.select(rows), prefixes.flatten(0, 1))
        last = hidden.select(torch.arange(1, len(rows) + 1, device=tokens.device) * length - 1)
        attention = tuple(partial(_last_rows, layer, beam) for layer in hidden.attention)
        states = last.states.view(sentences, beam, -1)
        copied = last.copied and Copied(*(part.view(sentences, beam, *part.shape[1:]) for part in last.copied))
        return Hidden(states, attention, copied=copied), PrefixState(before.encoding, prefixes)

    def has_static_state(self) -> bool:
        """Whether there is a `static_state`; without one, beam search on a GPU runs `start` and `step` as on a CPU."""
        return False

    def static_state(self, encoding: Encoding, *, beam: int, capacity: int) -> StaticState:
        """A state for at most `capacity` steps of beam search with sources of this shape, before the first.

        Its steps must compute what `advance` does.
        """
        raise NotImplementedError

    def informed_attention(
        self,
        encoding: Encoding,
        target_in: Int[Tensor, "batch target"],
        target_visible: Bool[Tensor, "batch target"],
        *,
        layer: int,
    ) -> HeadWeights:
        """Attention of one layer over the source when every position sees the whole target (Garg et al. 2019).

        It is for aligning words, not for predicting them.
        """
        raise ArgumentError(
            f'{type(self).__name__} has no attention that sees the whole target; set training.guided_context = "causal"'
        )

    def forward(self, encoding: Encoding, target_in: Int[Tensor, "batch target"]) -> Prediction:
        """Predict every next token of a known target at once."""
        hidden = self.hidden(encoding, target_in)
        return Prediction(self.logits(hidden), hidden.attention, hidden.penalty)

    def step(
        self, state: State, tokens: Int[Tensor, "sentence beam"]
    ) -> tuple[Float[Tensor, "sentence beam vocabulary"], State]:
        """Append a token to every hypothesis: the log-probabilities of the next one, and the next state."""
        hidden, after = self.advance(state, tokens)
        logits = self.logits(hidden)
        return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32)), after

    def source_attention(self, encoding: Encoding, target_in: Int[Tensor, "batch target"]) -> tuple[HeadWeights, ...]:
        """Attention over the source along a known target, one entry for each layer: what is aligned and drawn."""
        attention = self.hidden(encoding, target_in).attention
        if not attention:
            raise ArgumentError("this model has no attention: its decoder sees only a fixed context")
        return attention

    def self_attention(self, encoding: Encoding, target_in: Int[Tensor, "batch target"]) -> tuple[HeadWeights, ...]:
        """Attention [batch, head, target, target] over the target so far along a known target, layer by layer."""
        attention = self.hidden(encoding, target_in).self_attention
        if not attention:
            raise ArgumentError(NO_SELF_ATTENTION.format("decoder"))
        return attention


def has_own_steps(decoder: Decoder, known: type[Decoder]) -> bool:
    """Whether the class of a decoder overrides steps of `known`, which a static state of `known` would not take."""
    return any(getattr(type(decoder), name) is not getattr(known, name) for name in ("start", "advance", "step"))


def _last_rows(
    layer: HeadWeights, beam: int, *, heads: list[int] | None = None, rows: slice | list[int] | None = None
) -> Float[Tensor, "sentence head beam source"]:
    """The last row of [sentence · beam, head, target, source] for each hypothesis."""
    last = layer(heads=heads, rows=slice(-1, None)).squeeze(2)
    weights = last.view(-1, beam, *last.shape[1:]).transpose(1, 2)
    return weights if rows is None else weights[:, :, rows]


class Encoder(nn.Module, ABC):
    """Turns a batch of sources into an `Encoding`; an encoder of your own sets `width` and writes `forward`.

    Both methods take what the encoder reads. That of texts is `source`, token ids [batch, source], and `visible`, which
    is False at padding; padding follows the tokens and changes nothing. That of images is `images`.
    """

    width: int
    """Size of a state."""
    vocabulary: int
    """Number of source tokens; only encoders of texts have it."""
    limit: int | None = None
    """The longest source the encoder can take; None for no limit."""
    embedding: TokenEmbedding
    """The vectors of the source tokens; needed only to share them with a decoder or start from pretrained ones."""

    @abstractmethod
    def forward(self, *source: Any, **named: Any) -> Encoding:
        """Encode a batch."""

    def self_attention(self, *source: Any, **named: Any) -> tuple[HeadWeights, ...]:
        """Attention [batch, head, source, source] of the source items to each other, one entry for each layer."""
        raise ArgumentError(NO_SELF_ATTENTION.format("encoder"))


class EncoderDecoder(nn.Module):
    """An encoder and a decoder, trained together."""

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, *source_and_target: Tensor) -> Prediction:
        """Predict every next token of a target: model(source, visible, target_in), or model(images, target_in)."""
        *source, target_in = source_and_target
        prediction: Prediction = self.decoder(self.encoder(*source), target_in)
        return prediction
