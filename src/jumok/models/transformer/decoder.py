"""The Transformer decoder: a target attends to itself so far and to the source (Vaswani et al. 2017)."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, cast

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from jumok.errors import ConfigError
from jumok.layers import KeyValueCache, KeyValues, MultiHeadAttention, RotaryPositions, TokenEmbedding
from jumok.layers.gpu import stack
from jumok.layers.multi_head import keys_values_of
from jumok.layers.transformer import DecoderLayer
from jumok.models.config import PretrainedVectors, Tied, TiedOutput, Tying, tied_output
from jumok.models.copying import CopyAttention, CopySource, LinearDecoder
from jumok.models.encoder_decoder import Encoding, HeadWeights, Hidden, State, has_own_steps
from jumok.models.transformer.config import PositionedTokens, TransformerConfig, initialise
from jumok.models.transformer.encoder import key_mask
from jumok.models.transformer.static_state import TransformerStaticState


@dataclass(frozen=True, kw_only=True)
class TransformerDecoderBase(Tying, TransformerConfig):
    """The settings of a Transformer decoder, whatever its source is."""

    section: ClassVar[str] = "decoder"

    kind: Literal["transformer"] = "transformer"
    """Kind of decoder: "transformer", "rnn", "transducer" (edits its source) or "hard" (attends to one item)."""
    tied: TiedOutput = "output"
    """Shared weights: those of the embedding and the "output" layer, or "none"."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ties_output and self.token_width != self.width:
            raise ConfigError(
                f"{self.shown('tied')} needs embeddings as wide as the states, but {self.shown('positions')} leaves "
                f'them {self.token_width} of {self.shown("width")}; set {self.section}.tied = "none"'
            )


@dataclass(frozen=True, kw_only=True)
class TransformerDecoderConfig(TransformerDecoderBase, PretrainedVectors):
    """The section [decoder] of a recipe for translation, with kind = "transformer"."""

    copy: bool = False
    """Let the decoder copy source tokens; needs a shared vocabulary."""
    tied: Tied = "output"  # type: ignore[assignment]
    """Shared weights: target embedding and "output" layer, source and target "embeddings", "all" three, or "none"."""


@dataclass(frozen=True, eq=False)
class TransformerState(State):
    """Keys and values of the source, once for each sentence, and those of the target so far, for each hypothesis.

    The caches are written in place: do not use a state again after the step, reorder or keep that made the next one.
    """

    memories: tuple[KeyValues, ...]
    caches: tuple[KeyValueCache, ...]
    visible: Bool[Tensor, "sentence 1 1 source"] | None
    copies: CopySource | None = None
    beam: int = 1

    def reorder(self, parents: Int[Tensor, "sentence beam"]) -> "TransformerState":
        """Hypothesis b of sentence n continues what was hypothesis parents[n, b]; the beam may change its width."""
        sentences = torch.arange(len(parents), device=parents.device)[:, None]
        self._select(sentences * self.beam + parents)
        return replace(self, beam=parents.shape[1])

    def keep(self, sentences: Int[Tensor, " kept"]) -> "TransformerState":
        """Only these sentences continue."""
        self._select(sentences[:, None] * self.beam + torch.arange(self.beam, device=sentences.device))
        memories = tuple(KeyValues(*(part.index_select(0, sentences) for part in memory)) for memory in self.memories)
        visible = None if self.visible is None else self.visible.index_select(0, sentences)
        copies = None if self.copies is None else self.copies.select(sentences)
        return replace(self, memories=memories, visible=visible, copies=copies)

    def _select(self, numbers: Int[Tensor, "sentence beam"]) -> None:
        for cache in self.caches:
            cache.select(numbers.flatten())


class TransformerDecoder(LinearDecoder):
    """A Transformer decoder over the states of any encoder, `encoder_width` wide.

    `embedding` is a table to share; the decoder makes its own by default.
    """

    def __init__(
        self,
        config: TransformerDecoderBase,
        *,
        vocabulary: int,
        encoder_width: int,
        embedding: TokenEmbedding | None = None,
    ) -> None:
        super().__init__()
        self.config, self.width, self.limit, self.vocabulary = config, config.width, config.limit, vocabulary
        self.tokens = PositionedTokens(config, vocabulary=vocabulary, embedding=embedding)
        self.layers = nn.ModuleList(
            DecoderLayer(key_width=encoder_width, **config.layer_options()) for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.width) if config.norm == "pre" else None
        self.output = nn.Linear(config.width, vocabulary)
        initialise(self.layers)
        initialise(self.output)
        self.copying = CopyAttention(width=config.width, key_width=encoder_width) if config.copy else None
        if self.copying is not None:
            initialise(self.copying)
        if config.ties_output:
            self.output.weight = tied_output(self.embedding, config)

    @property
    def embedding(self) -> TokenEmbedding:  # type: ignore[override]
        """The vectors of the target tokens."""
        return self.tokens.embedding

    def hidden(self, encoding: Encoding, target_in: Int[Tensor, "batch target"]) -> Hidden:
        """The states at every position of a known target; each sees itself, those before it, and the source."""
        x, own, cross = self.tokens(target_in), [], []
        visible = key_mask(encoding.visible)
        for layer in self._layers:
            x, own_weights, cross_weights = layer(x, layer.memory(encoding.states), visible)
            own.append(own_weights)
            cross.append(cross_weights)
        return self._hidden(self._normed(x), self._copy_source(encoding), cross, own)

    def hidden_in_training(self, encoding: Encoding, target_in: Int[Tensor, "batch target"]) -> Hidden:
        """The same states without the attention weights."""
        layers = list(self._layers)
        if not stack.fuses(layers, target_in.device):
            return self.hidden(encoding, target_in)
        memories = keys_values_of([layer.cross for layer in layers], encoding.states)
        visible = key_mask(encoding.visible)
        x = self.tokens(target_in) if self.norm is None else self.tokens.embedded(target_in)
        states = stack.decoder_stack(layers, self.norm, x, memories, visible)
        return self._hidden(states, self._copy_source(encoding))

    def informed_attention(
        self,
        encoding: Encoding,
        target_in: Int[Tensor, "batch target"],
        target_visible: Bool[Tensor, "batch target"],
        *,
        layer: int,
    ) -> HeadWeights:
        """Attention of one layer over the source when every position sees the whole target (Garg et al. 2019)."""
        x = self.tokens(target_in)
        visible, own_visible = key_mask(encoding.visible), key_mask(target_visible)
        for block in list(self._layers)[: layer + 1]:
            x, _, cross = block(x, block.memory(encoding.states), visible, own_visible=own_visible)
        return cast(HeadWeights, cross)

    def start(self, encoding: Encoding, *, capacity: int) -> TransformerState:
        """The state before the first token, with one hypothesis for each sentence; at most `capacity` steps follow."""
        return TransformerState(
            memories=tuple(layer.memory(encoding.states) for layer in self._layers),
            caches=tuple(KeyValueCache(capacity=capacity) for _ in self._layers),
            visible=key_mask(encoding.visible),
            copies=self._copy_source(encoding),
        )

    def advance(self, state: State, tokens: Int[Tensor, "sentence beam"]) -> tuple[Hidden, TransformerState]:
        """Append a token to every hypothesis; the attention of the step is [sentence, head, beam, source].

        The weights of self-attention are [sentence · beam, head, 1, length].
        """
        state = cast(TransformerState, state)
        length = state.caches[0].length
        x = self.tokens(tokens.reshape(-1, 1), start=length).view(*tokens.shape, self.width)
        own, cross = [], []
        for layer, cache, memory in zip(self._layers, state.caches, state.memories, strict=True):
            x, own_weights, cross_weights = layer.step(x, cache, memory, state.visible)
            own.append(own_weights)
            cross.append(cross_weights)
        return self._hidden(self._normed(x), state.copies, cross, own), state

    def has_static_state(self) -> bool:
        """Not in training, and not with overridden steps or replaced modules."""
        parts = [
            part
            for attention in self.modules()
            if isinstance(attention, MultiHeadAttention)
            for part in attention.children()
        ]
        plain = all(type(part) in (nn.Linear, RotaryPositions) for part in parts)
        return plain and not (self.training or has_own_steps(self, TransformerDecoder))

    def static_state(self, encoding: Encoding, *, beam: int, capacity: int) -> TransformerStaticState:
        """The state before the first token."""
        return TransformerStaticState(self, encoding, beam=beam, capacity=capacity)

    @property
    def _layers(self) -> Iterable[DecoderLayer]:
        return cast(Iterable[DecoderLayer], self.layers)

    def _copy_source(self, encoding: Encoding) -> CopySource | None:
        source: CopySource | None = None if self.copying is None else self.copying.source(encoding)
        return source

    def _hidden(
        self,
        states: Tensor,
        source: CopySource | None,
        cross: Iterable[HeadWeights] = (),
        own: Iterable[HeadWeights] = (),
    ) -> Hidden:
        """The normed states of the last layer, the attention of all, and what is copied."""
        copied = None if self.copying is None else self.copying(states, source)
        return Hidden(states, tuple(cross), tuple(own), copied=copied)

    def _normed(self, x: Tensor) -> Tensor:
        normed: Tensor = x if self.norm is None else self.norm(x)
        return normed
