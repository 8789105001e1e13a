"""The Transformer's decoder: a target attends to itself so far and to the source (Vaswani et al. 2017)."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.errors import ArgumentError, ConfigError
from jumok.layers import KeyValueCache, KeyValues, TokenEmbedding
from jumok.layers.transformer import DecoderLayer
from jumok.models.config import Tied, Tying
from jumok.models.encoder_decoder import BeamState, Decoder, Encoding, HeadWeights, Hidden, Prediction, State
from jumok.models.transformer.config import PlacedTokens, TransformerConfig, initialise
from jumok.models.transformer.encoder import keys_seen


@dataclass(frozen=True, kw_only=True)
class TransformerDecoderConfig(Tying, TransformerConfig):
    """The section [decoder] of a recipe, with kind = "transformer"."""

    section: ClassVar[str] = "decoder"

    tied: Tied = "output"
    """Shared weights: target embedding and "output" layer, source and target "embeddings", "all" three, or "none"."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ties_output and self.token_width != self.width:
            raise ConfigError(
                f"{self.shown('tied')} needs embeddings as wide as the states, but {self.shown('positions')} leaves "
                f'them {self.token_width} of {self.shown("width")}; set {self.section}.tied = "none" or "embeddings"'
            )


@dataclass(frozen=True, eq=False)
class TransformerState(BeamState):
    """The source's keys and values once a sentence, the target's so far for each hypothesis.

    The caches are written in place: a state is used up by the step, reorder or keep that makes the next one of it.
    """

    memories: tuple[KeyValues, ...]
    caches: tuple[KeyValueCache, ...]
    visible: Bool[Tensor, "sentence 1 1 source"] | None
    sentences: int
    beam: int = 1

    @property
    def length(self) -> int:
        """How many steps were taken."""
        return self.caches[0].length

    def with_hypotheses(self, numbers: Int[Tensor, "sentence beam"]) -> "TransformerState":
        """The same with these hypotheses."""
        for cache in self.caches:
            cache.select(numbers.flatten())
        return replace(self, sentences=numbers.shape[0], beam=numbers.shape[1])

    def with_sources(self, sentences: Int[Tensor, " kept"]) -> "TransformerState":
        """The same with the sources of these sentences only."""
        memories = tuple(KeyValues(*(part.index_select(0, sentences) for part in memory)) for memory in self.memories)
        visible = None if self.visible is None else self.visible.index_select(0, sentences)
        return replace(self, memories=memories, visible=visible)


class TransformerDecoder(Decoder):
    """Target ids to scores of the next token, over the states of any encoder; `encoder_width` is their width.

    Training needs no scores where the target is padding: `hidden`, then `logits` of the places that count.
    `embedding` is a table to share; it makes its own unless given one.
    """

    def __init__(
        self,
        config: TransformerDecoderConfig,
        *,
        vocabulary: int,
        encoder_width: int,
        embedding: TokenEmbedding | None = None,
    ) -> None:
        super().__init__()
        self.config, self.width, self.limit, self.vocabulary = config, config.width, config.limit, vocabulary
        self.tokens = PlacedTokens(config, vocabulary=vocabulary, embedding=embedding)
        self.layers = nn.ModuleList(
            DecoderLayer(key_width=encoder_width, **config.layer_options()) for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.width) if config.norm == "pre" else None
        self.output = nn.Linear(config.width, vocabulary)
        initialise(self.layers)
        initialise(self.output)
        if config.ties_output:
            self.output.weight = self._table()

    @property
    def embedding(self) -> TokenEmbedding:
        """The table of the target tokens."""
        return self.tokens.embedding

    def forward(self, encoding: Encoding, target_in: Int[Tensor, "batch target"]) -> Prediction:
        """Predict every next token of a known target at once; padding stands after its tokens."""
        hidden = self.hidden(encoding, target_in)
        return Prediction(self.logits(hidden.states), hidden.attention)

    def hidden(self, encoding: Encoding, target_in: Int[Tensor, "batch target"]) -> Hidden:
        """A known target at every place, each having seen only itself, those before it, and the source."""
        x, own, cross = self.tokens(target_in), [], []
        visible = keys_seen(encoding.visible)
        for layer in self._layers:
            x, at_target, at_source = layer(x, layer.memory(encoding.states), visible)
            own.append(at_target)
            cross.append(at_source)
        return Hidden(self._normed(x), tuple(cross), tuple(own))

    def informed_attention(
        self,
        encoding: Encoding,
        target_in: Int[Tensor, "batch target"],
        target_visible: Bool[Tensor, "batch target"],
        *,
        layer: int,
    ) -> HeadWeights:
        """Where each place of a known target looks in the source, in one layer, having seen the whole target.

        For aligning words, not for predicting them (Garg et al. 2019).
        """
        x = self.tokens(target_in)
        visible, own_visible = keys_seen(encoding.visible), keys_seen(target_visible)
        for one in list(self._layers)[: layer + 1]:
            x, _, cross = one(x, one.memory(encoding.states), visible, own_visible=own_visible)
        return cast(HeadWeights, cross)

    def logits(self, states: Float[Tensor, "*place width"]) -> Float[Tensor, "*place vocabulary"]:
        """Scores of every token as the next one, from hidden states of any places."""
        scores: Tensor = self.output(states)
        return scores

    def start(self, encoding: Encoding, *, capacity: int) -> TransformerState:
        """Stand before the first token, with a beam of one hypothesis; at most `capacity` steps will follow."""
        if self.limit is not None and capacity > self.limit:
            raise ArgumentError(f"capacity = {capacity} steps, but the decoder has learned only {self.limit} positions")
        return TransformerState(
            memories=tuple(layer.memory(encoding.states) for layer in self._layers),
            caches=tuple(KeyValueCache(capacity=capacity) for _ in self._layers),
            visible=keys_seen(encoding.visible),
            sentences=len(encoding.states),
        )

    def step(
        self, state: State, tokens: Int[Tensor, "sentence beam"]
    ) -> tuple[Float[Tensor, "sentence beam vocabulary"], TransformerState]:
        """Append one token to every hypothesis: the log-probabilities of what comes next, and where that leaves us."""
        hidden, state = self.advance(state, tokens)
        logits = self.logits(hidden.states)
        return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32)), state

    def advance(self, state: State, tokens: Int[Tensor, "sentence beam"]) -> tuple[Hidden, TransformerState]:
        """A step up to the hidden states [sentence, beam, width]; its attention is [sentence, head, beam, source].

        The weights of self-attention are [sentence · beam, head, 1, length].
        """
        state = TransformerState.checked(state, tokens)
        x = self.tokens(tokens.reshape(-1, 1), start=state.length).view(*tokens.shape, self.width)
        own, cross = [], []
        for layer, cache, memory in zip(self._layers, state.caches, state.memories, strict=True):
            x, at_target, at_source = layer.step(x, cache, memory, state.visible)
            own.append(at_target)
            cross.append(at_source)
        return Hidden(self._normed(x), tuple(cross), tuple(own)), state

    @property
    def _layers(self) -> Iterable[DecoderLayer]:
        return cast(Iterable[DecoderLayer], self.layers)

    def _normed(self, x: Tensor) -> Tensor:
        normed: Tensor = x if self.norm is None else self.norm(x)
        return normed

    def _table(self) -> nn.Parameter:
        embedding = self.tokens.embedding
        if embedding.project is not None:
            raise ConfigError(
                f"the output cannot be tied to vectors {embedding.table.shape[1]} wide when the states are "
                f'{self.width} wide; set {self.config.section}.tied = "none"'
            )
        return embedding.table
