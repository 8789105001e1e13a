"""Hard attention with exact marginalisation: each word attends to one source item, and the alignment is latent.

    p(y | x) = Σ over alignments a of Πₜ p(a(t) | a(t-1), y(<t), x) · p(y(t) | a(t), y(<t), x)
    p(y(t) | a(t) = i) = softmax(W tanh(U [s(t); y(t-1); h(i)]))                  [s; y; h; c] with context
    p(a(t) = i | a(t-1) = j) = softmax over i ≥ j of s(t)ᵀ T h(i) + jump(s(t), i - j)        order 1, monotonic
    p(a(t) = i) = softmax over i of s(t)ᵀ T h(i)                                              order 0, free

Wu & Cotterell (2019) for order 1, Wu, Shapiro & Cotterell (2018) for order 0. The state s(t) depends on the words
alone, so the forward algorithm sums over all alignments, and a step of it gives p(y(t) | y(<t)): with the belief of
where the last word attended, b(t-1, j) = p(a(t-1) = j | y(<t)),

    prior(t, i) = Σⱼ b(t-1, j) p(i | j)      p(y(t)) = Σᵢ prior(t, i) p(y(t) | i)      b(t, i) ∝ prior(t, i) p(y(t) | i)

A table of source × vocabulary for each position makes it a decoder for letters and sounds, not for large vocabularies.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from jumok.layers import Recurrence, TokenEmbedding
from jumok.layers.dropout import Dropout
from jumok.layers.recurrent import States, split_states
from jumok.models.config import PretrainedVectors, token_table
from jumok.models.copying import log_mixture, source_tokens
from jumok.models.encoder_decoder import (
    BeamState,
    Copied,
    Decoder,
    Encoding,
    HeadWeights,
    Hidden,
    SingleHeadWeights,
    State,
)
from jumok.models.rnn.aligned import AlignedDecoderConfig
from jumok.models.rnn.attention import WholeSource
from jumok.settings import OnlyWith, PositiveInt


@dataclass(frozen=True, kw_only=True)
class HardAttentionBase(AlignedDecoderConfig):
    """The settings of a decoder with hard attention, whatever its source is."""

    kind: Literal["hard"] = "hard"
    """Kind of decoder: "transformer", "rnn", "transducer" (edits its source) or "hard" (attends to one item)."""
    order: Literal[0, 1] = 1
    """1 for monotonic alignments, which never move back in the source; 0 for any alignment."""
    jumps: Annotated[PositiveInt, OnlyWith("order", 1)] = 4
    """Longest jump in the source with a learned score of its own; longer jumps share this score."""


@dataclass(frozen=True, kw_only=True)
class HardAttentionConfig(HardAttentionBase, PretrainedVectors):
    """The section [decoder] of a recipe for translation, with kind = "hard"."""

    copy: bool = False
    """Predict a separate probability of copying the aligned source token; needs a shared vocabulary."""


@dataclass(frozen=True, eq=False)
class HardState(BeamState):
    """The source, once for each sentence; for each hypothesis the recurrent states, and log prior(i) p(word | i)."""

    states: States
    joint: Float[Tensor, "sentence beam source vocabulary"]


class HardAttentionDecoder(Decoder):
    """Attends to one source item for each word, over the states of any encoder; its hidden states are log p(word)."""

    attends_while_writing = True

    def __init__(
        self,
        config: HardAttentionBase,
        *,
        vocabulary: int,
        encoder_width: int,
        embedding: TokenEmbedding | None = None,
    ) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.embedding = token_table(config, vocabulary=vocabulary, scale=False, embedding=embedding)
        self.dropout, self.word_dropout = Dropout(config.dropout), nn.Dropout1d(config.word_dropout)
        self.recurrence = Recurrence(
            cell=config.cell, inputs=config.embedding, width=config.width, layers=config.layers, dropout=config.dropout
        )
        self.to_first = nn.Linear(encoder_width, self.recurrence.state_width)
        self.to_query = nn.Linear(config.width, encoder_width, bias=False)
        self.to_jumps = nn.Linear(config.width, config.jumps + 1) if config.order else None
        self.context = WholeSource(width=config.width, encoder_width=encoder_width) if config.context else None
        features = config.width + config.embedding + (encoder_width if config.context else 0)
        self.from_state = nn.Linear(features, config.width)
        self.from_source = nn.Linear(encoder_width, config.width, bias=False)
        self.to_generate = nn.Linear(config.width, 1) if config.copy else None
        self.output = nn.Linear(config.width, vocabulary)

    def hidden(self, encoding: Encoding, target_in: Int[Tensor, "batch target"]) -> Hidden:
        """log p(word | words so far) at every position; attention is the prior of where that word looks."""
        words, states = self._states(encoding, target_in)
        emissions, moves = self._emissions(encoding, words, states), self._moves(encoding, states)
        priors = self._priors(encoding, _read(emissions, target_in), moves)
        return Hidden(_mixed(priors, emissions), (SingleHeadWeights((priors.exp(),)),))

    def logits(self, hidden: Hidden) -> Float[Tensor, "*position vocabulary"]:
        """The log-probabilities."""
        return hidden.states

    def start(self, encoding: Encoding, *, capacity: int) -> HardState:
        """The state before the first word, which goes on from the first source item."""
        first = self.to_first(encoding.summary).tanh()[:, None]
        states = split_states(first, layers=self.config.layers, parts=self.recurrence.parts)
        belief = _first_belief(encoding)[:, None, :, None]
        return HardState(encoding, states, belief.expand(-1, 1, -1, self.vocabulary))

    def advance(self, state: State, tokens: Int[Tensor, "sentence beam"]) -> tuple[Hidden, HardState]:
        """Append a token to every hypothesis; the attention of the step is [sentence, 1, beam, source]."""
        before = cast(HardState, state)
        belief = _of_word(before.joint, tokens).log_softmax(-1)
        words = self.dropout(self.word_dropout(self.embedding(tokens)))
        stepper = self.recurrence.stepper()
        states = stepper.step(stepper.input_gates(words), before.states)
        priors = _next_prior(belief, self._moves(before.encoding, states[-1][0]))
        emissions = self._emissions(before.encoding, words, states[-1][0])
        hidden = Hidden(_mixed(priors, emissions), (SingleHeadWeights((priors.exp(),)),))
        return hidden, replace(before, states=states, joint=priors[..., None] + emissions)

    def source_attention(self, encoding: Encoding, target_in: Int[Tensor, "batch target"]) -> tuple[HeadWeights, ...]:
        """Where each word looked given all words of the target, p(a(t) | y, x), by the forward-backward algorithm.

        What follows the last word of `target_in` is not known; its row is the prior.
        """
        words, states = self._states(encoding, target_in)
        read, moves = _read(self._emissions(encoding, words, states), target_in), self._moves(encoding, states)
        posterior = self._priors(encoding, read, moves) + read + _futures(read, moves)
        return (SingleHeadWeights((posterior.softmax(-1),)),)

    def _states(self, encoding: Encoding, target_in: Tensor) -> tuple[Tensor, Tensor]:
        """The words before, and s(t), at every position."""
        words = self.dropout(self.word_dropout(self.embedding(target_in)))
        first = self.to_first(encoding.summary).tanh()
        states = split_states(first, layers=self.config.layers, parts=self.recurrence.parts)
        return words, self.recurrence(words, states)

    def _emissions(
        self, encoding: Encoding, words: Tensor, states: Tensor
    ) -> Float[Tensor, "batch position source vocabulary"]:
        """log p(word | looks at i) for every word and i."""
        features = [states, words] if self.context is None else [states, words, self.context(states, encoding)]
        of_state = self.from_state(torch.cat(features, -1))[:, :, None]
        readout = self.dropout((of_state + self.from_source(encoding.states)[:, None]).tanh())
        scores = _precise(self.output(readout))
        if self.to_generate is None:
            return scores.log_softmax(-1)
        tokens = source_tokens(encoding.tokens)[:, None, :, None].expand(*scores.shape[:3], 1)
        generate = _precise(self.to_generate(readout).squeeze(-1))
        return log_mixture(scores, Copied(tokens, torch.ones_like(tokens, dtype=scores.dtype), generate))

    def _moves(self, encoding: Encoding, states: Tensor) -> Float[Tensor, "batch position from to"]:
        """log p(a(t) = to | a(t-1) = from); the same from everywhere, and given once, with order 0."""
        scores = _precise(self.to_query(states) @ encoding.states.mT)[:, :, None]
        allowed = encoding.visible[:, None, None]
        if self.to_jumps is not None:
            places = torch.arange(encoding.visible.shape[1], device=states.device)
            distance = places - places[:, None]
            kinds = torch.arange(self.config.jumps + 1, device=states.device)
            kind = (distance.clamp(0, self.config.jumps)[..., None] == kinds).to(scores.dtype)
            jumps = _precise(self.to_jumps(states))
            scores = scores + (jumps @ kind.flatten(0, 1).mT).view(*jumps.shape[:2], *distance.shape)
            # Padding, which nothing reaches, may stay where it is: a row of -inf would have no gradient.
            allowed = (allowed & (distance >= 0)) | (distance == 0)
        return scores.masked_fill(~allowed, -torch.inf).log_softmax(-1)

    def _priors(
        self, encoding: Encoding, read: Float[Tensor, "batch target source"], moves: Tensor
    ) -> Float[Tensor, "batch target source"]:
        """log prior(t, i) at every position of a known target, of whose words `read` holds log p(word | i)."""
        belief, priors = _first_belief(encoding), []
        for word, move in zip(read.unbind(1), moves.unbind(1), strict=True):
            prior = _next_prior(belief, move)
            priors.append(prior)
            belief = (prior + word).log_softmax(-1)
        return torch.stack(priors, 1)


def _first_belief(encoding: Encoding) -> Float[Tensor, "batch source"]:
    """All on the first source item."""
    belief = _precise(torch.full_like(encoding.states[..., 0], -torch.inf))
    belief[:, 0] = 0
    return belief


def _next_prior(
    belief: Float[Tensor, "*row source"], moves: Float[Tensor, "*row from to"]
) -> Float[Tensor, "*row source"]:
    """log Σⱼ b(j) p(i | j)."""
    return moves.squeeze(-2) if moves.shape[-2] == 1 < moves.shape[-1] else _log_sum(belief[..., None] + moves, -2)


def _log_sum(terms: Tensor, dim: int) -> Tensor:
    """logsumexp whose gradient is 0, not NaN, where all terms are -inf."""
    top = terms.detach().amax(dim, keepdim=True).clamp(min=torch.finfo(terms.dtype).min)
    total = (terms - top).exp().sum(dim)
    none = total == 0
    return total.masked_fill(none, 1).log().masked_fill(none, -torch.inf) + top.squeeze(dim)


def _mixed(priors: Tensor, emissions: Tensor) -> Float[Tensor, "batch position vocabulary"]:
    """log Σᵢ prior(i) p(word | i)."""
    return torch.logsumexp(priors[..., None] + emissions, -2)


def _of_word(
    table: Float[Tensor, "*row source vocabulary"], words: Int[Tensor, "*row"]
) -> Float[Tensor, "*row source"]:
    """The column of a word."""
    index = words[..., None, None].expand(*table.shape[:-1], 1)
    return table.gather(-1, index).squeeze(-1)


def _read(emissions: Tensor, target_in: Int[Tensor, "batch target"]) -> Float[Tensor, "batch target source"]:
    """log p(word | i) of the words that follow each position; 0 after the last, whose successor is not known."""
    following = _of_word(emissions[:, :-1], target_in[:, 1:])
    return torch.cat([following, torch.zeros_like(emissions[:, :1, :, 0])], 1)


def _futures(read: Float[Tensor, "batch target source"], moves: Tensor) -> Float[Tensor, "batch target source"]:
    """log p(the words after t + 1 | a(t) = i), by the backward algorithm."""
    future = torch.zeros_like(read[:, 0])
    futures = [future]
    for word, move in zip(read.unbind(1)[:0:-1], moves.unbind(1)[:0:-1], strict=True):
        future = _log_sum(move + (word + future)[:, None], -1).expand_as(future)
        futures.append(future)
    return torch.stack(futures[::-1], 1)


def _precise(scores: Tensor) -> Tensor:
    """At least in float32: sums over alignments are long."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))
