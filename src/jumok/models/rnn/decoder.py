"""A recurrent decoder over the states of any encoder: a fixed context, Bahdanau's or Luong's attention."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, cast

import torch
from jaxtyping import Int
from torch import Tensor, nn

from jumok.errors import ConfigError
from jumok.layers import LuongAttention, Recurrence, TokenEmbedding
from jumok.layers.dropout import Dropout
from jumok.layers.recurrent import split_states
from jumok.models.config import PretrainedVectors, Tied, TiedOutput, Tying, tied_output, token_table
from jumok.models.copying import Copying, LinearDecoder, source_tokens
from jumok.models.encoder_decoder import Encoding, Hidden, SingleHeadWeights, State, has_own_steps
from jumok.models.rnn.attention import (
    BahdanauStep,
    DecoderAttention,
    FixedContext,
    LuongStep,
    PreparedSource,
    StepOutput,
    StepState,
)
from jumok.models.rnn.encoder import RnnConfig
from jumok.models.rnn.monotonic import MonotonicStep
from jumok.models.rnn.static_state import RecurrentStaticState
from jumok.settings import NonNegativeFloat, OnlyWith, PositiveInt

Attention = Literal["none", "additive", "dot", "general", "concat", "location", "monotonic"]
Reach = Literal["global", "local-m", "local-p"]
LUONG = OnlyWith("attention", "dot", "general", "concat", "location")
AFTER_STEP = OnlyWith("attention", "dot", "general", "concat", "location", "monotonic")
ANY_ATTENTION = OnlyWith("attention", "additive", "dot", "general", "concat", "location", "monotonic")


@dataclass(frozen=True, kw_only=True)
class RnnDecoderBase(Tying, RnnConfig):
    """The settings of a recurrent decoder, whatever its source is."""

    section: ClassVar[str] = "decoder"

    kind: Literal["rnn"] = "rnn"
    """Kind of decoder: "transformer", "rnn", "transducer" (edits its source) or "hard" (attends to one item)."""
    attention: Attention = "additive"
    """Score: "additive" (Bahdanau), "dot", "general", "concat" or "location" (Luong), or "none" for a fixed context.

    "monotonic" only moves forward in the source (Raffel).
    """
    reach: Annotated[Reach, LUONG] = "global"
    """Reach of Luong's attention: "global", or a window that moves by one ("local-m") or is predicted ("local-p")."""
    half_window: Annotated[PositiveInt, OnlyWith("reach", "local-m", "local-p")] = 10
    """Half the width of the window of local attention."""
    longest: Annotated[PositiveInt, OnlyWith("attention", "location")] = 512
    """Longest source for attention "location", in tokens."""
    input_feeding: Annotated[bool, AFTER_STEP] = False
    """Feed the attentional state of Luong's or monotonic attention into the next step."""
    hard: Annotated[bool, OnlyWith("attention", "monotonic")] = False
    """Outside training, attend only to the source token at which monotonic attention stops."""
    noise: Annotated[NonNegativeFloat, OnlyWith("attention", "monotonic")] = 1.0
    """Standard deviation of the noise added to the scores of monotonic attention in training."""
    coverage: Annotated[bool, OnlyWith("attention", "additive")] = False
    """Give additive attention the sum of its past weights (coverage), and penalise repeated attention."""
    coverage_weight: Annotated[NonNegativeFloat, OnlyWith("coverage", True)] = 1.0
    """Weight of the coverage loss."""
    readout: PositiveInt | None = None
    """Size of the layer before the output; defaults to `embedding`, and is `width` with Luong's attention."""
    tied: TiedOutput = "none"
    """Shared weights: those of the embedding and the "output" layer, or "none"."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_output()

    @property
    def luong(self) -> bool:
        """Whether attention comes after the step, as Luong's does."""
        return self.attention not in ("none", "additive")

    @property
    def output_width(self) -> int:
        """Size of the output layer's input."""
        return self.width if self.luong else self.embedding if self.readout is None else self.readout

    @property
    def limit(self) -> int | None:
        """The longest source the decoder can attend to; None for no limit."""
        return self.longest if self.attention == "location" else None

    def _check_output(self) -> None:
        if self.luong and self.readout not in (None, self.width):
            raise ConfigError(
                f"{self.shown('readout')} must equal {self.shown('width')} with {self.shown('attention')}; leave it out"
            )
        if self.ties_output and self.output_width != self.embedding:
            raise ConfigError(
                f"{self.shown('tied')} needs an output layer as wide as {self.shown('embedding')}, but it is "
                f'{self.output_width} wide; make them equal or set {self.section}.tied = "none"'
            )


@dataclass(frozen=True, kw_only=True)
class RnnDecoderConfig(RnnDecoderBase, PretrainedVectors):
    """The section [decoder] of a recipe for translation, with kind = "rnn"."""

    copy: Annotated[bool, ANY_ATTENTION] = False
    """Let the decoder copy source tokens; needs a shared vocabulary."""
    tied: Tied = "none"  # type: ignore[assignment]
    """Shared weights: target embedding and "output" layer, source and target "embeddings", "all" three, or "none"."""


@dataclass(frozen=True, eq=False)
class RnnState(State):
    """The source, once for each sentence; the recurrent states and what else a step passes on, for each hypothesis."""

    source: PreparedSource
    tokens: Int[Tensor, "sentence source"] | None
    hypotheses: StepState
    length: int = 0
    """Number of steps taken."""

    def reorder(self, parents: Int[Tensor, "sentence beam"]) -> "RnnState":
        """Hypothesis b of sentence n continues what was hypothesis parents[n, b]; the beam may change its width."""
        sentences = torch.arange(len(parents), device=parents.device)[:, None]
        return replace(self, hypotheses=self.hypotheses.each(lambda part: part[sentences, parents]))

    def keep(self, sentences: Int[Tensor, " kept"]) -> "RnnState":
        """Only these sentences continue."""
        tokens = None if self.tokens is None else self.tokens[sentences]
        hypotheses = self.hypotheses.each(lambda part: part[sentences])
        return RnnState(self.source.keep(sentences), tokens, hypotheses, self.length)


class RnnDecoder(LinearDecoder):
    """A recurrent decoder over the states of any encoder, `encoder_width` wide.

    s(t) = f(s(t-1), y(t-1), c(t)), p(y(t)) = softmax(W tanh(U [s(t); y(t-1); c(t)])), or softmax(W s̃(t)) of Luong's.
    `embedding` is a table to use, pretrained or shared; the decoder makes its own by default.
    """

    def __init__(
        self,
        config: RnnDecoderBase,
        *,
        vocabulary: int,
        encoder_width: int,
        embedding: TokenEmbedding | None = None,
    ) -> None:
        super().__init__()
        self.config, self.vocabulary, self.source_limit = config, vocabulary, config.limit
        self.embedding = token_table(config, vocabulary=vocabulary, scale=config.ties_output, embedding=embedding)
        self.dropout, self.word_dropout = Dropout(config.dropout), nn.Dropout1d(config.word_dropout)
        self.look = _decoder_attention(config, encoder_width)  # saved models know its weights by this name
        self.recurrence = Recurrence(
            cell=config.cell,
            inputs=config.embedding,
            fed=self.look.fed_width,
            width=config.width,
            layers=config.layers,
            dropout=config.dropout,
        )
        self.to_first = nn.Linear(encoder_width, self.recurrence.state_width)
        features = config.width + config.embedding + encoder_width
        self.to_readout = None if config.luong else nn.Linear(features, config.output_width)
        self.copying = Copying(width=features) if config.copy else None
        self.output = nn.Linear(config.output_width, vocabulary)
        if config.ties_output:
            self.output.weight = tied_output(self.embedding, config)

    def hidden(self, encoding: Encoding, target_in: Int[Tensor, "batch target"]) -> Hidden:
        """The states at every position of a known target."""
        words = self.dropout(self.word_dropout(self.embedding(target_in)))
        output = self.look.all_steps(self.recurrence, encoding, words, self._first_state(encoding))
        return self._hidden(output, words, encoding.tokens)

    def start(self, encoding: Encoding, *, capacity: int) -> RnnState:
        """The state before the first token, with one hypothesis for each sentence; any number of steps may follow."""
        source = self.look.prepare(encoding, self.recurrence.stepper())
        return RnnState(source, encoding.tokens, self._first_state(encoding))

    def advance(self, state: State, tokens: Int[Tensor, "sentence beam"]) -> tuple[Hidden, RnnState]:
        """Append a token to every hypothesis; the attention of the step is [sentence, 1, beam, source]."""
        before = cast(RnnState, state)
        words = self.dropout(self.word_dropout(self.embedding(tokens)))
        stepper = self.recurrence.stepper()
        gates = stepper.input_gates(words)
        output, hypotheses = self.look.step(stepper, before.source, gates, before.hypotheses, before.length)
        after = replace(before, hypotheses=hypotheses, length=before.length + 1)
        return self._hidden(output, words, before.tokens), after

    def has_static_state(self) -> bool:
        """Not in training, with overridden steps, or with attention that depends on the number of the step."""
        recorded = self.config.reach != "local-m" and self.config.attention != "monotonic"
        return recorded and not (self.training or has_own_steps(self, RnnDecoder))

    def static_state(self, encoding: Encoding, *, beam: int, capacity: int) -> RecurrentStaticState:
        """The state before the first token."""
        return RecurrentStaticState(self, encoding, lambda state: state.hypotheses, beam=beam)

    def _first_state(self, encoding: Encoding) -> StepState:
        """s(0) = tanh(W summary), for every layer and with a beam of one."""
        first = self.to_first(encoding.summary).tanh()[:, None]
        states = split_states(first, layers=self.config.layers, parts=self.recurrence.parts)
        return self.look.first_state(encoding, states)

    def _hidden(self, output: StepOutput, words: Tensor, tokens: Tensor | None) -> Hidden:
        """The readout tanh(U [s; y; c]), or Luong's s̃ as it is, and what is copied."""
        features = torch.cat([output.state, words, output.context], -1) if self.to_readout or self.copying else None
        states = output.state if self.to_readout is None else self.to_readout(features).tanh()
        attention = SingleHeadWeights(output.weights)
        copied = None
        if self.copying is not None:
            copied = self.copying(features, attention().squeeze(1), source_tokens(tokens))
        layers = (attention,) if output.weights else ()
        return Hidden(self.dropout(states), attention=layers, copied=copied, penalty=output.penalty)


def _decoder_attention(config: RnnDecoderBase, encoder_width: int) -> DecoderAttention:
    if config.attention == "none":
        return FixedContext(encoder_width=encoder_width)
    if config.attention == "additive":
        return BahdanauStep(
            width=config.width,
            encoder_width=encoder_width,
            coverage=config.coverage,
            coverage_weight=config.coverage_weight,
        )
    if config.attention == "monotonic":
        return MonotonicStep(
            width=config.width,
            encoder_width=encoder_width,
            input_feeding=config.input_feeding,
            hard=config.hard,
            noise=config.noise,
        )
    attention = LuongAttention(
        query_width=config.width,
        key_width=encoder_width,
        score=config.attention,
        reach=config.reach,
        half_window=config.half_window,
        longest=config.longest,
    )
    return LuongStep(attention, width=config.width, input_feeding=config.input_feeding)
