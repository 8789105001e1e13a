"""A transducer: a recurrent decoder that walks along its source and edits it letter by letter.

    a(t) = number of edits before t that advance to the next source letter    hard attention: the current letter
    s(t) = f(s(t-1), [e(t-1); h(a(t))])
    p(e(t)) = softmax(W tanh(U [s(t); e(t-1); h(a(t))]))                      [s; e; h; c] with context

Makarov & Clematide (2018), after Aharoni & Goldberg (2017). Its tokens are edits, numbered as in `jumok.data.edits`:
from 4 on, those that advance to the next source letter are even. Its position depends on the edits so far alone, so all
steps of a known target run at once. It cannot move beyond the last source item, the end of the text.
"""

from dataclasses import dataclass, replace
from typing import Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.layers import Recurrence, TokenEmbedding
from jumok.layers.dropout import Dropout
from jumok.layers.recurrent import States, split_states
from jumok.models.config import PretrainedVectors, token_table
from jumok.models.copying import LinearDecoder, source_tokens
from jumok.models.encoder_decoder import (
    BeamState,
    Copied,
    Encoding,
    Hidden,
    SingleHeadWeights,
    State,
)
from jumok.models.rnn.aligned import AlignedDecoderConfig
from jumok.models.rnn.attention import WholeSource

DELETE = 4
"""The first edit that advances, and the only one that writes nothing."""


def edit_vocabulary(pieces: int) -> int:
    """The number of edits that write the pieces of a vocabulary."""
    return 2 * pieces - 3


def advances(edits: Int[Tensor, "*position"]) -> Bool[Tensor, "*position"]:
    """Whether an edit advances to the next source letter."""
    return (edits >= DELETE) & (edits % 2 == 0)


def copying(letters: Int[Tensor, "*position"]) -> Int[Tensor, "*position"]:
    """The edit that copies a source letter, in a shared vocabulary."""
    return torch.where(letters < DELETE, letters, 2 * letters - 2)


@dataclass(frozen=True, kw_only=True)
class TransducerConfig(AlignedDecoderConfig, PretrainedVectors):
    """The section [decoder] of a recipe, with kind = "transducer"."""

    kind: Literal["transducer"] = "transducer"
    """Kind of decoder: "transformer", "rnn", "transducer" (edits its source) or "hard" (attends to one item)."""
    copy: bool = False
    """Predict a separate probability of copying the aligned source token; needs a shared vocabulary."""


@dataclass(frozen=True, eq=False)
class TransducerState(BeamState):
    """The source, once for each sentence; the recurrent states and the place in the source, for each hypothesis."""

    states: States
    places: Int[Tensor, "sentence beam"]


class TransducerDecoder(LinearDecoder):
    """Edits the source letter by letter, over the states of any encoder, `encoder_width` wide."""

    attends_while_writing = True

    def __init__(
        self, config: TransducerConfig, *, vocabulary: int, encoder_width: int, embedding: TokenEmbedding | None = None
    ) -> None:
        super().__init__()
        self.config, self.vocabulary = config, vocabulary
        self.embedding = token_table(config, vocabulary=vocabulary, scale=False, embedding=embedding)
        self.dropout, self.word_dropout = Dropout(config.dropout), nn.Dropout1d(config.word_dropout)
        inputs = config.embedding + encoder_width
        self.recurrence = Recurrence(
            cell=config.cell, inputs=inputs, width=config.width, layers=config.layers, dropout=config.dropout
        )
        self.to_first = nn.Linear(encoder_width, self.recurrence.state_width)
        self.context = WholeSource(width=config.width, encoder_width=encoder_width) if config.context else None
        context = encoder_width if config.context else 0
        self.to_readout = nn.Linear(config.width + inputs + context, config.width)
        self.to_generate = nn.Linear(config.width, 1) if config.copy else None
        self.output = nn.Linear(config.width, vocabulary)

    def hidden(self, encoding: Encoding, target_in: Int[Tensor, "batch target"]) -> Hidden:
        """The states at every position of known edits; attention is all on the current letter."""
        places = self._clamped(encoding, advances(target_in).cumsum(1))
        attention = SingleHeadWeights((self._weights(encoding, places),))
        return self._along(encoding, target_in, places)._replace(attention=(attention,))

    def hidden_in_training(self, encoding: Encoding, target_in: Int[Tensor, "batch target"]) -> Hidden:
        """The same without attention."""
        return self._along(encoding, target_in, self._clamped(encoding, advances(target_in).cumsum(1)))

    def start(self, encoding: Encoding, *, capacity: int) -> TransducerState:
        """The state before the first edit, at the first letter."""
        first = self.to_first(encoding.summary).tanh()[:, None]
        states = split_states(first, layers=self.config.layers, parts=self.recurrence.parts)
        places = torch.zeros(len(encoding.states), 1, dtype=torch.long, device=encoding.states.device)
        return TransducerState(encoding, states, places)

    def advance(self, state: State, tokens: Int[Tensor, "sentence beam"]) -> tuple[Hidden, TransducerState]:
        """Append an edit to every hypothesis; the attention of the step is [sentence, 1, beam, source]."""
        before = cast(TransducerState, state)
        encoding, places = before.encoding, self._clamped(before.encoding, before.places + advances(tokens))
        inputs = self._inputs(encoding, tokens, places)
        stepper = self.recurrence.stepper()
        states = stepper.step(stepper.input_gates(inputs), before.states)
        hidden = self._hidden(encoding, states[-1][0], inputs, places)
        attention = SingleHeadWeights((self._weights(encoding, places),))
        return hidden._replace(attention=(attention,)), replace(before, states=states, places=places)

    def _along(self, encoding: Encoding, edits: Tensor, places: Tensor) -> Hidden:
        inputs = self._inputs(encoding, edits, places)
        first = self.to_first(encoding.summary).tanh()
        states = split_states(first, layers=self.config.layers, parts=self.recurrence.parts)
        return self._hidden(encoding, self.recurrence(inputs, states), inputs, places)

    def _clamped(self, encoding: Encoding, places: Int[Tensor, "batch position"]) -> Int[Tensor, "batch position"]:
        """Positions, at most that of the last source item."""
        return torch.minimum(places, encoding.visible.sum(1, keepdim=True) - 1).clamp(min=0)

    def _weights(self, encoding: Encoding, places: Tensor) -> Float[Tensor, "batch position source"]:
        """1 at the current letter."""
        source = torch.arange(encoding.states.shape[1], device=places.device)
        return (source == places[..., None]).to(encoding.states.dtype)

    def _inputs(self, encoding: Encoding, edits: Tensor, places: Tensor) -> Float[Tensor, "batch position inputs"]:
        """[e; h]: the edit before, and the state of the current letter."""
        index = places[..., None].expand(-1, -1, encoding.states.shape[-1])
        words = self.word_dropout(self.embedding(edits))
        inputs: Tensor = self.dropout(torch.cat([words, encoding.states.gather(1, index).to(words.dtype)], -1))
        return inputs

    def _hidden(self, encoding: Encoding, states: Tensor, inputs: Tensor, places: Tensor) -> Hidden:
        """The readout tanh(U [s; e; h]), with a context tanh(U [s; e; h; c]), and what is copied."""
        features = [states, inputs]
        if self.context is not None:
            features.append(self.context(states, encoding))
        readout = self.dropout(self.to_readout(torch.cat(features, -1)).tanh())
        if self.to_generate is None:
            return Hidden(readout)
        edits = copying(source_tokens(encoding.tokens).gather(1, places))[..., None]
        generate = self.to_generate(readout).squeeze(-1)
        return Hidden(readout, copied=Copied(edits, torch.ones_like(edits, dtype=generate.dtype), generate))
