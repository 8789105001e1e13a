"""A recurrent decoder: fixed context, Bahdanau's or Luong's attention, over the states of any encoder."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from jumok.attention import Weights
from jumok.errors import ArgumentError, ConfigError
from jumok.layers import LuongAttention, Recurrence, TokenEmbedding
from jumok.layers.recurrent import States
from jumok.models.config import Tied, Tying, token_table
from jumok.models.encoder_decoder import BeamState, Copied, Decoder, Encoding, Hidden, Prediction, State
from jumok.models.rnn.attention import AfterStep, BeforeStep, Carried, FixedContext, Look, Opened, Seen
from jumok.models.rnn.encoder import RnnConfig
from jumok.settings import NonNegativeFloat, PositiveInt


class Copying(nn.Module):
    """p_gen = σ(w · [c; s; y] + b), and the weights of attention as the distribution of what is copied."""

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.to_generate = nn.Linear(width, 1)

    def forward(
        self,
        known: Float[Tensor, "batch place width"],
        weights: Float[Tensor, "batch place source"],
        tokens: Int[Tensor, "batch source"],
    ) -> Copied:
        """`known` is what p_gen is read from: context, state and the word before."""
        generate = self.to_generate(known).squeeze(-1)
        everywhere = tokens[:, None].expand(-1, weights.shape[1], -1)
        return Copied(everywhere, merged(weights, tokens), generate)


def merged(
    weights: Float[Tensor, "batch place source"], tokens: Int[Tensor, "batch source"]
) -> Float[Tensor, "batch place source"]:
    """The weights of the same token added up where it stands first, and zero elsewhere."""
    same = tokens[:, :, None] == tokens[:, None, :]
    first = same.to(torch.uint8).argmax(-1)  # the first of equal maxima
    return weights @ F.one_hot(first, tokens.shape[1]).to(weights.dtype)


def log_mixture(logits: Float[Tensor, "*place vocabulary"], copied: Copied) -> Float[Tensor, "*place vocabulary"]:
    """log(p_gen · softmax(logits) + (1 − p_gen) · copies), for every token (equation 9).

    Weights that sum to less than 1, as those of a Gaussian window do, leave the rest to the vocabulary.
    """
    tiny = torch.finfo(logits.dtype).tiny
    log_copy = F.logsigmoid(-copied.generate)
    rest = (1 - copied.weights.sum(-1)).clamp(min=tiny).log()
    log_own = torch.logaddexp(F.logsigmoid(copied.generate), log_copy + rest)
    own = logits.log_softmax(-1) + log_own[..., None]
    copies = copied.weights.clamp(min=tiny).log() + log_copy[..., None]
    # Only the tokens of the source change: each by log(own + copy) − log(own).
    there = own.gather(-1, copied.tokens)
    return own.scatter_add(-1, copied.tokens, torch.logaddexp(there, copies) - there)


@dataclass(frozen=True, eq=False)
class OneHead:
    """Weights [batch, 1, target, source], built when called: of all places together, or one place after another."""

    parts: tuple[Weights | Float[Tensor, "batch some source"], ...]

    def __call__(
        self, *, heads: Sequence[int] | None = None, rows: slice | Sequence[int] | None = None
    ) -> Float[Tensor, "batch head target source"]:
        """The weights of the chosen rows; the only head is number 0."""
        for head in heads or ():
            if head not in (0, -1):
                raise ArgumentError(f"heads asks for number {head}, but there is 1")
        built = torch.cat([part if isinstance(part, Tensor) else part() for part in self.parts], 1)[:, None]
        if heads is not None:
            built = built.expand(-1, len(heads), -1, -1)
        if rows is None or isinstance(rows, slice):
            return built if rows is None else built[:, :, rows]
        size = built.shape[2]
        for row in rows:
            if not -size <= row < size:
                raise ArgumentError(f"rows asks for number {row}, but there are {size}")
        return built[:, :, list(rows)]


Attention = Literal["none", "additive", "dot", "general", "concat", "location"]
Reach = Literal["global", "local-m", "local-p"]


@dataclass(frozen=True, kw_only=True)
class RnnDecoderConfig(Tying, RnnConfig):
    """The section [decoder] of a recipe, with kind = "rnn"."""

    section: ClassVar[str] = "decoder"

    attention: Attention = "additive"
    """Score: "additive" (Bahdanau), "dot", "general", "concat" or "location" (Luong), or "none" for a fixed context."""
    reach: Reach = "global"
    """Reach of Luong's attention: "global", or a window that moves by one ("local-m") or is predicted ("local-p")."""
    half_window: PositiveInt = 10
    """Half the width of the window of local attention."""
    longest: PositiveInt = 512
    """Longest source for attention "location", in tokens."""
    input_feeding: bool = False
    """Feed Luong's attentional state into the next step."""
    coverage: bool = False
    """Give additive attention the sum of its past weights (coverage), and penalise repeated attention."""
    coverage_weight: NonNegativeFloat = 1.0
    """Weight of the coverage loss."""
    copy: bool = False
    """Let the decoder copy source tokens; needs a shared vocabulary."""
    readout: PositiveInt | None = None
    """Size of the layer before the output; defaults to `embedding`, and is `width` with Luong's attention."""
    tied: Tied = "none"
    """Shared weights: target embedding and "output" layer, source and target "embeddings", "all" three, or "none"."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_attention()
        self._check_output()

    @property
    def luong(self) -> bool:
        """Whether the attention is one of Luong's."""
        return self.attention not in ("none", "additive")

    @property
    def output_width(self) -> int:
        """Size of what the output layer is given."""
        return self.width if self.luong else self.embedding if self.readout is None else self.readout

    @property
    def limit(self) -> int | None:
        """The longest source there can be; None where there is no such limit."""
        return self.longest if self.attention == "location" else None

    def _check_attention(self) -> None:
        if self.reach != "global" and not self.luong:
            raise self._not_with("reach", "attention", "a window is for dot, general, concat and location")
        if self.input_feeding and not self.luong:
            raise self._not_with("input_feeding", "attention", "it is for dot, general, concat and location")
        if self.coverage and self.attention != "additive":
            raise self._not_with("coverage", "attention", "it is for additive")
        if self.copy and self.attention == "none":
            raise self._not_with("copy", "attention", "what is copied is what attention looks at")

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

    def _not_with(self, name: str, other: str, reason: str) -> ConfigError:
        return ConfigError(f"{self.shown(name)} does not go with {self.shown(other)}: {reason}")


@dataclass(frozen=True, eq=False)
class RnnState(BeamState):
    """The source once a sentence; recurrent states, and what else a step gives the next, for each hypothesis."""

    opened: Opened
    tokens: Int[Tensor, "sentence source"] | None
    carried: Carried
    place: int = 0

    @property
    def sentences(self) -> int:  # type: ignore[override]
        """How many sentences are decoded."""
        return self.carried.states[0][0].shape[0]

    @property
    def beam(self) -> int:  # type: ignore[override]
        """How many hypotheses each of them has."""
        return self.carried.states[0][0].shape[1]

    def with_hypotheses(self, numbers: Int[Tensor, "sentence beam"]) -> "RnnState":
        """The same with these hypotheses."""
        return replace(self, carried=self.carried.each(lambda part: part.flatten(0, 1)[numbers]))

    def with_sources(self, sentences: Int[Tensor, " kept"]) -> "RnnState":
        """The same with the sources of these sentences only."""
        tokens = None if self.tokens is None else self.tokens[sentences]
        return replace(self, opened=self.opened.keep(sentences), tokens=tokens)


class RnnDecoder(Decoder):
    """Target ids to scores of the next token, over the states of any encoder; `encoder_width` is their width.

    Training needs no scores where the target is padding: `hidden`, then `logits` of the places that count.
    `embedding` is a table to use, pretrained or shared; it makes its own unless given one.
    """

    def __init__(
        self,
        config: RnnDecoderConfig,
        *,
        vocabulary: int,
        encoder_width: int,
        embedding: TokenEmbedding | None = None,
    ) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.embedding = token_table(config, vocabulary=vocabulary, scale=False, embedding=embedding)
        self.dropout = nn.Dropout(config.dropout)
        self.look = _look(config, encoder_width)
        self.recurrence = Recurrence(
            cell=config.cell,
            inputs=config.embedding,
            fed=self.look.fed_width,
            width=config.width,
            layers=config.layers,
            dropout=config.dropout,
        )
        self.to_first = nn.Linear(encoder_width, config.layers * self.recurrence.parts * config.width)
        known = config.width + config.embedding + encoder_width
        self.to_readout = None if config.luong else nn.Linear(known, config.output_width)
        self.copying = Copying(width=known) if config.copy else None
        self.output = nn.Linear(config.output_width, vocabulary)
        if config.ties_output:
            self.output.weight = _table(self.embedding, config)
        # Rows as long as words are would make logits as large; a scaled table has shorter ones already.
        scaled = config.ties_output and self.embedding.factor == 1.0
        self.output_factor = config.embedding**-0.5 if scaled else 1.0

    def forward(self, encoding: Encoding, target_in: Int[Tensor, "batch target"]) -> Prediction:
        """Predict every next token of a known target at once (teacher forcing)."""
        hidden = self.hidden(encoding, target_in)
        return Prediction(self.logits(hidden.states, hidden.copied), hidden.attention, hidden.penalty)

    def hidden(self, encoding: Encoding, target_in: Int[Tensor, "batch target"]) -> Hidden:
        """Everything up to the output layer, for every place of a known target."""
        words = self.dropout(self.embedding(target_in))
        seen = self.look.all_steps(self.recurrence, encoding, words, self._first(encoding))
        return self._told(seen, words, encoding.tokens)

    def logits(
        self, states: Float[Tensor, "*place width"], copied: Copied | None = None
    ) -> Float[Tensor, "*place vocabulary"]:
        """Scores of every token as the next one, from hidden states of any places; log-probabilities if it copies."""
        scores: Tensor = self.output(states * self.output_factor if self.output_factor != 1.0 else states)
        if self.copying is None:
            return scores
        if copied is None:
            raise ArgumentError("this decoder copies, so its logits need `copied` of the same places, too")
        return log_mixture(scores, copied)

    def start(self, encoding: Encoding, *, capacity: int) -> RnnState:
        """Stand before the first token, with a beam of one hypothesis; `capacity` is not needed here."""
        opened = self.look.open(encoding, self.recurrence.stepper())
        return RnnState(opened, encoding.tokens, self._first(encoding))

    def step(
        self, state: State, tokens: Int[Tensor, "sentence beam"]
    ) -> tuple[Float[Tensor, "sentence beam vocabulary"], RnnState]:
        """Append one token to every hypothesis: the log-probabilities of what comes next, and where that leaves us."""
        hidden, state = self.advance(state, tokens)
        logits = self.logits(hidden.states, hidden.copied)
        return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32)), state

    def advance(self, state: State, tokens: Int[Tensor, "sentence beam"]) -> tuple[Hidden, RnnState]:
        """A step up to the hidden states [sentence, beam, width]; its weights are [sentence, 1, beam, source]."""
        state = RnnState.checked(state, tokens)
        words = self.dropout(self.embedding(tokens))
        stepper = self.recurrence.stepper()
        gates = stepper.input_gates(words)
        seen, carried = self.look.step(stepper, state.opened, gates, state.carried, state.place)
        return self._told(seen, words, state.tokens), replace(state, carried=carried, place=state.place + 1)

    def _first(self, encoding: Encoding) -> Carried:
        """s(0) = tanh(W summary), for every layer and with a beam of one."""
        config = self.config
        shape = (config.layers, self.recurrence.parts, config.width)
        states = self.to_first(encoding.summary)[:, None].tanh().unflatten(-1, shape)
        layers: States = tuple(tuple(layer.unbind(2)) for layer in states.unbind(2))
        return self.look.first(encoding, layers)

    def _told(self, seen: Seen, words: Tensor, tokens: Tensor | None) -> Hidden:
        """t = tanh(W [s; y; c]), or Luong's s̃ as it is; and what else the output needs of a step."""
        known = torch.cat([seen.state, words, seen.context], -1) if self.to_readout or self.copying else None
        states = seen.state if self.to_readout is None else self.to_readout(known).tanh()
        attention = OneHead(seen.weights)
        copied = None
        if self.copying is not None:
            if tokens is None:
                raise ArgumentError("this decoder copies, but the encoding has no tokens to copy; set copy = false")
            copied = self.copying(known, attention().squeeze(1), tokens)
        cross = (attention,) if seen.weights else ()
        return Hidden(self.dropout(states), attention=cross, copied=copied, penalty=seen.penalty)


def _look(config: RnnDecoderConfig, encoder_width: int) -> Look:
    if config.attention == "none":
        return FixedContext(encoder_width=encoder_width)
    if config.attention == "additive":
        return BeforeStep(
            width=config.width,
            encoder_width=encoder_width,
            coverage=config.coverage,
            coverage_weight=config.coverage_weight,
        )
    attention = LuongAttention(
        query_width=config.width,
        key_width=encoder_width,
        score=config.attention,
        reach=config.reach,
        half_window=config.half_window,
        longest=config.longest,
    )
    return AfterStep(attention, width=config.width, input_feeding=config.input_feeding)


def _table(embedding: TokenEmbedding, config: RnnDecoderConfig) -> nn.Parameter:
    if embedding.project is not None:
        raise ConfigError(
            f"the output cannot be tied to vectors {embedding.table.shape[1]} wide when {config.section}.embedding = "
            f'{config.embedding}; set {config.section}.tied = "none"'
        )
    return embedding.table
