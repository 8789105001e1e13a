"""The models that are timed: ours, the same in plain PyTorch, and Marian of Hugging Face transformers.

All have random weights, share one table of word vectors where they can, and have the same number of layers.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from jumok.models import EncoderDecoder, build_model
from jumok.models.build import DECODERS, ENCODERS

PAD, BOS, EOS = 0, 1, 2
SPECIALS = 4
"""The first ids are no words."""


@dataclass(frozen=True)
class TransformerShape:
    """A Transformer with as many decoder layers as encoder layers."""

    layers: int
    width: int
    vocabulary: int

    @property
    def heads(self) -> int:
        """Heads of width 64, as in Vaswani et al. (2017)."""
        return self.width // 64

    @property
    def hidden(self) -> int:
        """Width of the feed-forward networks."""
        return 4 * self.width

    def __str__(self) -> str:
        return f"Transformer {self.layers}+{self.layers} × {self.width}, vocabulary {self.vocabulary:,}"


@dataclass(frozen=True)
class RnnShape:
    """A bidirectional GRU encoder of `width` in all, and a GRU decoder with attention."""

    embedding: int
    width: int
    vocabulary: int

    def __str__(self) -> str:
        return f"GRU {self.embedding} → {self.width}, vocabulary {self.vocabulary:,}"


DROPOUT = 0.1


def jumok_transformer(shape: TransformerShape) -> EncoderDecoder:
    """Ours, with the vectors of source, target and output layer tied."""
    settings: dict[str, Any] = {
        "kind": "transformer",
        "layers": shape.layers,
        "width": shape.width,
        "heads": shape.heads,
        "hidden": shape.hidden,
        "dropout": DROPOUT,
    }
    return _jumok("transformer", shape.vocabulary, settings, settings | {"tied": "all"})


def jumok_rnn(shape: RnnShape, attention: str) -> EncoderDecoder:
    """Ours, with the additive score before the step, or Luong's "general" after it with input feeding."""
    settings: dict[str, Any] = {
        "kind": "rnn",
        "width": shape.width,
        "embedding": shape.embedding,
        "dropout": DROPOUT,
    }
    fed = {"readout": shape.width} if attention == "additive" else {"input_feeding": True}
    return _jumok("rnn", shape.vocabulary, settings, settings | {"attention": attention} | fed)


def _jumok(kind: str, vocabulary: int, encoder: dict[str, Any], decoder: dict[str, Any]) -> EncoderDecoder:
    encoder_config, decoder_config = ENCODERS[kind].config(**encoder), DECODERS[kind].config(**decoder)
    return build_model(
        encoder_config,
        decoder_config,
        source_vocabulary=vocabulary,
        target_vocabulary=vocabulary,
        shared_vocabulary=True,
    )


class PlainTransformer(nn.Module):
    """The layers of torch.nn.Transformer with tied word vectors and learned positions."""

    def __init__(self, shape: TransformerShape, *, longest: int = 512) -> None:
        super().__init__()
        self.words = nn.Embedding(shape.vocabulary, shape.width)
        nn.init.normal_(self.words.weight, std=shape.width**-0.5)
        self.places = nn.Embedding(longest, shape.width)
        options: dict[str, Any] = {"dropout": DROPOUT, "batch_first": True, "norm_first": True}
        sizes = (shape.width, shape.heads, shape.hidden)
        # Nested tensors, which are for padding, do not go with norm_first; PyTorch would warn of it.
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(*sizes, **options), shape.layers, enable_nested_tensor=False
        )
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(*sizes, **options), shape.layers)
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.output = nn.Linear(shape.width, shape.vocabulary)
        self.output.weight = self.words.weight
        self.scale = shape.width**0.5

    def forward(
        self, source: Int[Tensor, "batch source"], target_in: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target vocabulary"]:
        """Logits of every next token."""
        later = nn.Transformer.generate_square_subsequent_mask(target_in.shape[1], device=target_in.device)
        memory = self.encoder_norm(self.encoder(self._embed(source)))
        states = self.decoder(self._embed(target_in), memory, tgt_mask=later, tgt_is_causal=True)
        logits: Tensor = self.output(self.decoder_norm(states))
        return logits

    def _embed(self, ids: Tensor) -> Tensor:
        positions: Tensor = self.places(torch.arange(ids.shape[1], device=ids.device))
        return F.dropout(self.scale * self.words(ids) + positions, DROPOUT, self.training)


class PlainRnn(nn.Module):
    """The textbook loop over torch.nn.GRUCell: Bahdanau's attention before each step, or Luong's after it."""

    def __init__(self, shape: RnnShape, attention: str) -> None:
        super().__init__()
        width = shape.width
        self.additive = attention == "additive"
        self.source_words, self.target_words = (nn.Embedding(shape.vocabulary, shape.embedding) for _ in range(2))
        self.encoder = nn.GRU(shape.embedding, width // 2, batch_first=True, bidirectional=True)
        self.to_first = nn.Linear(width, width)
        self.to_key, self.to_query = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.v = nn.Parameter(torch.randn(width) * width**-0.5)
        self.cell = nn.GRUCell(shape.embedding + width, width)
        features = 2 * width + (shape.embedding if self.additive else 0)
        self.to_readout = nn.Linear(features, width)
        self.output = nn.Linear(width, shape.vocabulary)

    def forward(
        self, source: Int[Tensor, "batch source"], target_in: Int[Tensor, "batch target"]
    ) -> Float[Tensor, "batch target vocabulary"]:
        """Logits of every next token."""
        states, _ = self.encoder(F.dropout(self.source_words(source), DROPOUT, self.training))
        keys = self.to_key(states)
        words = F.dropout(self.target_words(target_in), DROPOUT, self.training)
        state = self.to_first(states.mean(1)).tanh()
        steps = self._additive_steps if self.additive else self._luong_steps
        readout = torch.stack(steps(words, state, keys, states), 1)
        logits: Tensor = self.output(F.dropout(readout, DROPOUT, self.training))
        return logits

    def _additive_steps(self, words: Tensor, state: Tensor, keys: Tensor, values: Tensor) -> list[Tensor]:
        outputs = []
        for word in words.unbind(1):
            scores = (keys + self.to_query(state)[:, None]).tanh() @ self.v
            context = (scores.softmax(-1)[:, None] @ values)[:, 0]
            state = self.cell(torch.cat([word, context], -1), state)
            outputs.append(self.to_readout(torch.cat([state, word, context], -1)).tanh())
        return outputs

    def _luong_steps(self, words: Tensor, state: Tensor, keys: Tensor, values: Tensor) -> list[Tensor]:
        outputs, fed = [], torch.zeros_like(state)
        for word in words.unbind(1):
            state = self.cell(torch.cat([word, fed], -1), state)
            context = ((keys @ state[..., None])[..., 0].softmax(-1)[:, None] @ values)[:, 0]
            fed = self.to_readout(torch.cat([context, state], -1)).tanh()
            outputs.append(fed)
        return outputs


def marian(shape: TransformerShape) -> Any:
    """Hugging Face's Marian with the same sizes and random weights."""
    from transformers import MarianConfig, MarianMTModel

    sides: dict[str, Any] = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (
            ("layers", shape.layers),
            ("ffn_dim", shape.hidden),
            ("attention_heads", shape.heads),
        )
    }
    config = MarianConfig(
        vocab_size=shape.vocabulary,
        d_model=shape.width,
        dropout=DROPOUT,
        attention_dropout=0.0,
        activation_dropout=0.0,
        max_position_embeddings=512,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        **sides,
    )
    return MarianMTModel(config)
