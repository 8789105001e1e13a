"""Where the words of given translations look: one teacher-forced pass, in batches of like length, for any model.

A decoder given [BOS, y₁ … yₙ] looks n + 1 times. Row t looks while token t is about to be written; one row further
down ("shifted", Chen et al. 2020) it looks having just read token t, and so knows which word it looks for. Tokens are
joined to words: a word is looked at as much as its tokens together and looks where its tokens look on average. What a
row gave to the end of the source or to spaces is taken away, and the rest made to sum to 1 again, unless the model was
taught that looking at the end means to belong to no word: then what is missing to 1 is how much that is believed.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.data import BatchConfig, Pair, Tokenizer, TokenizerPair, pad
from jumok.data.batches import batch_boundaries
from jumok.data.word_links import Words, spaced_words
from jumok.errors import ArgumentError
from jumok.models.encoder_decoder import Encoding, HeadWeights, Seq2Seq

BATCH_TOKENS = 8192
LONGEST = 4096
"""Tokens of a side beyond which a pair is left out: weights grow with their product."""


class Look(NamedTuple):
    """Which weights of a model are meant."""

    layer: int
    head: int | None
    """None for the mean of the layer's heads."""
    shift: bool
    """Whether the row that has just read a word is that word's, rather than the one about to write it."""
    informed: bool = False
    """Whether every row has seen the whole target, as guided alignment with full context teaches a Transformer."""
    null: bool = False
    """Whether looking at the end of the source was taught to mean that a word belongs to none."""

    def __str__(self) -> str:
        head = "mean of heads" if self.head is None else f"head {self.head}"
        context = ", having seen the whole target" if self.informed else ""
        return f"layer {self.layer}, {head}, {'shifted' if self.shift else 'not shifted'}{context}"


class Tokens(NamedTuple):
    """A text as a model is given it, with the spaced word of each token (-1: of none)."""

    ids: Int[np.ndarray, " token"]
    numbers: Int[np.ndarray, " token"]
    words: Words

    @classmethod
    def of(cls, text: str, tokenizer: Tokenizer) -> "Tokens":
        """Cut a text."""
        ids = np.array(tokenizer.encode(text), np.int64)
        return cls(ids, tokenizer.word_numbers(ids), spaced_words(text, tokenizer.normaliser))


class WordWeights(NamedTuple):
    """The weights of one pair, for each of some looks: [look, target word, source word]."""

    number: int
    weights: Float[np.ndarray, "look target source"]


def all_looks(model: Seq2Seq) -> list[Look]:
    """Every layer and head of a model, and the mean of each layer's heads, both shifted and not."""
    one = torch.ones(1, 1, dtype=torch.long, device=next(model.parameters()).device)
    layers = attention_of(model, one, one.bool(), one)
    heads = [layer().shape[1] for layer in layers]
    return [
        Look(layer, head, shift)
        for layer, count in enumerate(heads)
        for head in ([None, *range(count)] if count > 1 else [0])
        for shift in (True, False)
    ]


@torch.no_grad()
def attention_of(model: Seq2Seq, source: Tensor, visible: Tensor, target_in: Tensor) -> tuple[HeadWeights, ...]:
    """The attention of every layer over known targets, without the words they would write."""
    return _attention_over(model, model.encoder(source, visible), target_in)


def _attention_over(model: Seq2Seq, encoding: Encoding, target_in: Tensor) -> tuple[HeadWeights, ...]:
    decoder: Any = model.decoder  # of every family, `hidden` is all but the output layer
    found: tuple[HeadWeights, ...] = decoder.hidden(encoding, target_in).attention
    if not found:
        raise ArgumentError("this model has no attention to align with: its decoder sees only a fixed context")
    return found


def word_weights(
    model: Seq2Seq,
    tokenizers: TokenizerPair,
    pairs: Sequence[Pair],
    looks: Sequence[Look],
    *,
    batch_tokens: int = BATCH_TOKENS,
) -> Iterator[WordWeights]:
    """The weights between the words of every pair, in no particular order; pairs the model cannot take have none.

    A pair with an empty side, or one longer than the model's positions or than LONGEST, is left out.
    """
    sides = [(Tokens.of(one, tokenizers.source), Tokens.of(other, tokenizers.target)) for one, other in pairs]
    fits = [number for number, pair in enumerate(sides) if _fits(model, *pair)]
    if not fits:
        return
    longer = np.array([max(len(sides[number][0].ids), len(sides[number][1].ids)) for number in fits])
    order = np.argsort(longer, kind="stable")
    batches = batch_boundaries(longer[order], np.ones_like(order), BatchConfig(tokens=batch_tokens))
    for start, end in map(batches.batch, range(batches.batches)):
        numbers = [fits[at] for at in order[start:end]]
        found = _batch_weights(model, [sides[number] for number in numbers], looks)
        for row, number in enumerate(numbers):
            yield WordWeights(number, _given_words(found[row], *sides[number]))


def _fits(model: Seq2Seq, source: Tokens, target: Tokens) -> bool:
    limits = ((model.encoder.limit, source), (model.decoder.limit, target))
    return all(side.words.size and len(side.ids) - 1 <= min(limit or LONGEST, LONGEST) for limit, side in limits)


@torch.no_grad()
def _batch_weights(
    model: Seq2Seq, rows: Sequence[tuple[Tokens, Tokens]], looks: Sequence[Look]
) -> Float[np.ndarray, "batch look target source"]:
    device = next(model.parameters()).device
    source, visible = pad([one.ids[1:] for one, _ in rows])
    target_in, known = pad([other.ids[:-1] for _, other in rows])
    encoding = model.encoder(source.to(device), visible.to(device))
    attention = _looked_at(model, encoding, target_in.to(device), known.to(device), looks)
    columns = _membership([one.numbers[1:] for one, _ in rows], device)
    of_words = _membership([other.numbers[1:-1] for _, other in rows], device)
    of_words = of_words / of_words.sum(1, keepdim=True).clamp(min=1)
    found = []
    for look, layer in zip(looks, attention, strict=True):
        weights = (layer().mean(1) if look.head is None else layer(heads=[look.head]).squeeze(1)).float()
        weights = weights[:, 1:] if look.shift else weights[:, :-1]
        joined = of_words.mT @ (weights @ columns)
        found.append(joined if look.null else joined / joined.sum(-1, keepdim=True).clamp(min=1e-9))
    return torch.stack(found, 1).cpu().numpy()


def _looked_at(
    model: Seq2Seq, encoding: Encoding, target_in: Tensor, target_visible: Tensor, looks: Sequence[Look]
) -> list[HeadWeights]:
    """The layer of each look; one pass serves all that see only the words so far."""
    decoder: Any = model.decoder
    uninformed = any(not look.informed for look in looks)
    layers = _attention_over(model, encoding, target_in) if uninformed else ()
    return [
        decoder.informed_attention(encoding, target_in, target_visible, layer=look.layer)
        if look.informed
        else layers[look.layer]
        for look in looks
    ]


def _membership(numbers: Sequence[Int[np.ndarray, "_"]], device: torch.device) -> Float[Tensor, "batch token word"]:
    """1 where a token is part of a word."""
    longest = max(len(row) for row in numbers)
    padded = np.full((len(numbers), longest), -1, np.int64)
    for at, row in enumerate(numbers):
        padded[at, : len(row)] = row
    table = torch.from_numpy(padded).to(device)
    words = torch.arange(int(padded.max(initial=0)) + 1, device=device)
    return (table[..., None] == words).float()


def _given_words(
    weights: Float[np.ndarray, "look spaced_target spaced_source"], source: Tokens, target: Tokens
) -> Float[np.ndarray, "look target source"]:
    """From the words of the normalised texts to those of the texts as given, which are nearly always the same."""
    if source.words.of_spaced is None and target.words.of_spaced is None:
        return weights[:, : target.words.size, : source.words.size]
    columns = _given(source.words, weights.shape[2])
    rows = _given(target.words, weights.shape[1])
    rows = rows / np.maximum(rows.sum(1, keepdims=True), 1)
    found: np.ndarray = rows @ weights @ columns.T
    return found


def _given(words: Words, spaced: int) -> Float[np.ndarray, "word spaced"]:
    table = np.zeros((words.size, spaced), np.float32)
    for number in range(spaced):
        table[words.given(number), number] = 1
    return table
