"""Copying source tokens: a mixture of the vocabulary and the source, as a pointer-generator has it (See et al. 2017).

    p(y) = p_gen · softmax(logits)[y] + (1 − p_gen) · Σ αᵢ over the places i where the source has y

A recurrent decoder copies by its own attention. A Transformer decoder has many heads in many layers, none of which is
made to point at one token; it gets an attention of its own for copying, over the states that its output layer reads.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.errors import ArgumentError
from jumok.models.encoder_decoder import Copied, Decoder, Encoding, Hidden, LinearOutput


class LinearDecoder(Decoder):
    """A decoder whose output layer is linear; its prediction is mixed with what it copies, if it copies."""

    output: nn.Linear

    def logits(self, hidden: Hidden) -> Float[Tensor, "*position vocabulary"]:
        """Scores of the next token at any positions; log-probabilities if the decoder copies."""
        scores: Tensor = self.output(hidden.states)
        return scores if hidden.copied is None else log_mixture(scores, hidden.copied)

    def linear_output(self, hidden: Hidden) -> LinearOutput | None:
        """What the logits are computed from; None if the decoder copies, which mixes probabilities."""
        if hidden.copied is not None:
            return None
        return LinearOutput(hidden.states, self.output.weight, self.output.bias)


class Copying(nn.Module):
    """p_gen = σ(w · features + b) of See et al. (2017), and attention as what is copied."""

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.to_generate = nn.Linear(width, 1)

    def forward(
        self,
        features: Float[Tensor, "batch position width"],
        weights: Float[Tensor, "batch position source"],
        tokens: Int[Tensor, "batch source"],
    ) -> Copied:
        """`features` are those of the position, such as its context, its state and the word before, [c; s; y]."""
        generate = self.to_generate(features).squeeze(-1)
        everywhere = tokens[:, None].expand(-1, weights.shape[1], -1)
        return Copied(everywhere, merged(weights, tokens), generate)


class CopySource(NamedTuple):
    """What `CopyAttention` needs of a batch of sources."""

    keys: Float[Tensor, "sentence source width"]
    visible: Bool[Tensor, "sentence source"]
    tokens: Int[Tensor, "sentence source"]

    def select(self, sentences: Int[Tensor, " row"]) -> "CopySource":
        """The sources of some sentences, in this order."""
        return CopySource(*(part.index_select(0, sentences) for part in self))

    def clone(self) -> "CopySource":
        """A copy in new tensors."""
        return CopySource(*(part.detach().clone() for part in self))

    def become(self, other: "CopySource") -> None:
        """Copy the values of another source of the same shape in place."""
        for buffer, part in zip(self, other, strict=True):
            buffer.copy_(part)

    def put(self, other: "CopySource", rows: Int[Tensor, " row"]) -> None:
        """Replace these sources by the first ones of `other`."""
        for buffer, part in zip(self, other, strict=True):
            buffer.index_copy_(0, rows, part[: len(rows)])


class CopyAttention(nn.Module):
    """The attention of a decoder with states s over encoder states h, for copying alone.

    α = softmax(W_q s · W_k h / √width), c = Σ αᵢ W_k hᵢ, p_gen = σ(w · [s; c] + b).
    """

    def __init__(self, *, width: int, key_width: int) -> None:
        super().__init__()
        self.to_query, self.to_key = nn.Linear(width, width), nn.Linear(key_width, width)
        self.gate = Copying(width=2 * width)

    def source(self, encoding: Encoding) -> CopySource:
        """The keys, which are the same at every step, and the tokens they stand for."""
        return CopySource(self.to_key(encoding.states), encoding.visible, source_tokens(encoding.tokens))

    def forward(self, states: Float[Tensor, "sentence position width"], source: CopySource) -> Copied:
        """What is copied at each position of a target, or by each hypothesis of a sentence."""
        query = self.to_query(states) * states.shape[-1] ** -0.5
        scores = query @ source.keys.mT
        hidden = ~source.visible[:, None]
        # Not -inf: a source without tokens would get NaN.
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        weights = scores.softmax(-1, dtype=_at_least_single(scores)).masked_fill(hidden, 0)
        context = weights.to(source.keys.dtype) @ source.keys
        copied: Copied = self.gate(torch.cat([states, context], -1), weights, source.tokens)
        return copied


def source_tokens(tokens: Int[Tensor, "batch source"] | None) -> Int[Tensor, "batch source"]:
    """The tokens to copy; an ArgumentError if an encoder of the user's own gives none."""
    if tokens is None:
        raise ArgumentError("this decoder copies source tokens, but the encoding has none; set copy = false")
    return tokens


def merged(
    weights: Float[Tensor, "batch position source"], tokens: Int[Tensor, "batch source"]
) -> Float[Tensor, "batch position source"]:
    """The weights of equal tokens added up at the first of them, and zero at the others."""
    same = tokens[:, :, None] == tokens[:, None, :]
    first = same.to(torch.uint8).argmax(-1)  # the first of equal maxima
    return weights @ F.one_hot(first, tokens.shape[1]).to(weights.dtype)


def log_mixture(logits: Float[Tensor, "*position vocabulary"], copied: Copied) -> Float[Tensor, "*position vocabulary"]:
    """log(p_gen · softmax(logits) + (1 − p_gen) · copies) of every token (See et al. 2017, equation 9).

    Weights that sum to less than 1, as those of a Gaussian window do, leave the rest to the vocabulary.
    """
    dtype = _at_least_single(logits)
    tiny = torch.finfo(dtype).tiny
    weights, generate = copied.weights.to(dtype), copied.generate.to(dtype)
    log_copy = F.logsigmoid(-generate)
    rest = (1 - weights.sum(-1)).clamp(min=tiny).log()
    log_own = torch.logaddexp(F.logsigmoid(generate), log_copy + rest)
    own = logits.log_softmax(-1, dtype=dtype) + log_own[..., None]
    copies = weights.clamp(min=tiny).log() + log_copy[..., None]
    # Only the tokens of the source change: each by log(own + copy) − log(own).
    there = own.gather(-1, copied.tokens)
    return own.scatter_add(-1, copied.tokens, torch.logaddexp(there, copies) - there)


def _at_least_single(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
