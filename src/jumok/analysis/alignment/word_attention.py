"""Attention between the words of given translations: one teacher-forced pass, in batches of like length, for any model.

A decoder given [BOS, y₁ … yₙ] has n + 1 rows of attention. Row t attends while it predicts token t; the row after it
("shifted", Chen et al. 2020) has just read token t, and so knows which word to look for. Token weights become word
weights by summing over the tokens of a source word and averaging over those of a target word. Weight on the end of the
source and on spaces is removed, and the rest renormalised to sum to 1, unless the model was trained to attend to the
end for words without a link: then what is missing to 1 is the weight of having none.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.data import BatchConfig, Pair, Tokenizer, TokenizerPair, pad
from jumok.data.batches import batch_boundaries
from jumok.data.subwords import SPACE
from jumok.data.word_links import WordMap, spaced_words
from jumok.models.encoder_decoder import EncoderDecoder, Encoding, HeadWeights

BATCH_TOKENS = 8192
LONGEST = 4096
"""Tokens of a side beyond which a pair is left out, because the size of its weights grows with their product."""
RECENT = 2048
"""Pairs whose tokens are kept."""


class AlignmentHead(NamedTuple):
    """The attention of a model that is used to align: a layer, a head, and how its rows are read."""

    layer: int
    head: int | None
    """None for the mean of the layer's heads."""
    shift: bool
    """Whether the row of a word is the one that has just read it, rather than the one that predicts it."""
    informed: bool = False
    """Whether every row sees the whole target, as guided alignment with full context trains a Transformer."""
    null: bool = False
    """Whether the model was trained to attend to the end of the source for words without a link."""

    def __str__(self) -> str:
        head = "mean of heads" if self.head is None else f"head {self.head}"
        context = ", having seen the whole target" if self.informed else ""
        return f"layer {self.layer}, {head}, {'shifted' if self.shift else 'not shifted'}{context}"


class Tokens(NamedTuple):
    """A text as a model is given it, with the spaced word of each token; -1 for a token of no word."""

    ids: Int[np.ndarray, " token"]
    numbers: Int[np.ndarray, " token"]
    words: WordMap

    @classmethod
    def of(cls, text: str, tokenizer: Tokenizer, ids: Sequence[int], *, alone: bool = False) -> "Tokens":
        """A text and its token ids; `alone` makes each token a word of its own."""
        if alone:
            counted = count_tokens(ids, tokenizer)
            return cls(np.array(ids, np.int64), counted.numbers, WordMap(len(counted.names), None))
        tokens = np.array(ids, np.int64)
        return cls(tokens, tokenizer.word_numbers(tokens), spaced_words(text, tokenizer.normaliser))

    @classmethod
    def of_pair(
        cls, pair: Pair, tokenizers: TokenizerPair, *, alone: bool = False, tag: str = ""
    ) -> "tuple[Tokens, Tokens]":
        """Tokenise both sides of a pair, with a tag in front of the source that is no word."""
        source, target = _encode(Pair(f"{tag} {pair.source}", pair.target) if tag else pair, tokenizers)
        translation = cls.of(pair.target, tokenizers.target, target, alone=alone)
        if not tag:
            return cls.of(pair.source, tokenizers.source, source, alone=alone), translation
        place = [tokenizers.source.pieces[id] for id in source].index(tag)
        text = cls.of(pair.source, tokenizers.source, source[:place] + source[place + 1 :], alone=alone)
        return cls(np.array(source, np.int64), np.insert(text.numbers, place, -1), text.words), translation


class CountedTokens(NamedTuple):
    """The tokens of a text that links can name."""

    numbers: Int[np.ndarray, " token"]
    """The number of each id of the text among them; -1 for an id that is none."""
    names: list[str]


def count_tokens(ids: Sequence[int], tokenizer: Tokenizer) -> CountedTokens:
    """Number the tokens of [BOS, …, EOS] that write something, from 0.

    A character-level tokenizer begins every text with a space, ▁, which is none of its letters: it counts as part of
    the first one, so that the numbers are those of the letters.
    """
    letters, names = tokenizer.letters, list[str]()
    numbers, begins = np.full(len(ids), -1, np.int64), True
    for id, place in zip(*tokenizer.written(ids[1:-1]), strict=True):
        if id in letters.language_ids:
            continue
        numbers[place + 1] = len(names)
        if not (begins and letters.kind == "char" and letters.pieces[id] == SPACE):
            names.append(letters.pieces[id])
        begins = letters.is_symbol(id)
    return CountedTokens(numbers, names)


def units_of(pair: Pair, tokenizers: TokenizerPair, *, tokens: bool = False) -> tuple[list[str], list[str]]:
    """What the links of a pair connect: the words of both sides, or their tokens."""
    if not tokens:
        return pair.source.split(), pair.target.split()
    source, target = _encode(pair, tokenizers)
    return count_tokens(source, tokenizers.source).names, count_tokens(target, tokenizers.target).names


@lru_cache(maxsize=RECENT)
def _encode(pair: Pair, tokenizers: TokenizerPair) -> tuple[list[int], list[int]]:
    """The ids of both sides; a pair on which the head is chosen is aligned later, and its tokens are named."""
    return tokenizers.encode(pair)


class WordWeights(NamedTuple):
    """The weights between the words of one pair, for each alignment head."""

    number: int
    """Which pair it is."""
    weights: Float[np.ndarray, "head target source"]


@torch.no_grad()
def alignment_heads(model: EncoderDecoder) -> list[AlignmentHead]:
    """Every layer and head of a model, and the mean of each layer's heads, shifted and not."""
    token = torch.ones(1, 1, dtype=torch.long, device=next(model.parameters()).device)
    layers = model.decoder.source_attention(model.encoder(token, token.bool()), token)
    heads = [layer().shape[1] for layer in layers]
    return [
        AlignmentHead(layer, head, shift)
        for layer, count in enumerate(heads)
        for head in ([None, *range(count)] if count > 1 else [0])
        for shift in ((False,) if model.decoder.attends_while_writing else (True, False))
    ]


def word_weights(
    model: EncoderDecoder,
    tokenizers: TokenizerPair,
    pairs: Sequence[Pair],
    heads: Sequence[AlignmentHead],
    *,
    tokens: bool = False,
    tag: str = "",
    batch_tokens: int = BATCH_TOKENS,
) -> Iterator[WordWeights]:
    """The weights between the words of every pair, or between their `tokens`, in no particular order.

    The model reads every source with a `tag` in front, if there is one, which is no word of the pair.
    A pair with an empty side, or one longer than the model's positions or than LONGEST, is left out.
    """
    sides = [Tokens.of_pair(Pair(*pair), tokenizers, alone=tokens, tag=tag) for pair in pairs]
    fits = [number for number, pair in enumerate(sides) if _fits(model, *pair)]
    if not fits:
        return
    longer = np.array([max(len(sides[number][0].ids), len(sides[number][1].ids)) for number in fits])
    order = np.argsort(longer, kind="stable")
    batches = batch_boundaries(longer[order], np.ones_like(order), BatchConfig(tokens=batch_tokens))
    for start, end in map(batches.batch, range(batches.batches)):
        numbers = [fits[index] for index in order[start:end]]
        weights = _batch_weights(model, [sides[number] for number in numbers], heads)
        for row, number in enumerate(numbers):
            yield WordWeights(number, _given_words(weights[row], *sides[number]))


def _fits(model: EncoderDecoder, source: Tokens, target: Tokens) -> bool:
    limits = ((model.encoder.limit, source), (model.decoder.limit, target))
    return all(side.words.size and len(side.ids) - 1 <= min(limit or LONGEST, LONGEST) for limit, side in limits)


@torch.no_grad()
def _batch_weights(
    model: EncoderDecoder, rows: Sequence[tuple[Tokens, Tokens]], heads: Sequence[AlignmentHead]
) -> Float[np.ndarray, "batch head target source"]:
    device = next(model.parameters()).device
    source, visible = pad([source.ids[1:] for source, _ in rows])
    target_in, target_visible = pad([target.ids[:-1] for _, target in rows])
    encoding = model.encoder(source.to(device), visible.to(device))
    layers = _layers(model, encoding, target_in.to(device), target_visible.to(device), heads)
    columns = _membership([source.numbers[1:] for source, _ in rows], device)
    of_words = _membership([target.numbers[1:-1] for _, target in rows], device)
    of_words = of_words / of_words.sum(1, keepdim=True).clamp(min=1)
    by_head = []
    for head, layer in zip(heads, layers, strict=True):
        weights = (layer().mean(1) if head.head is None else layer(heads=[head.head]).squeeze(1)).float()
        weights = weights[:, 1:] if head.shift else weights[:, :-1]
        joined = of_words.mT @ (weights @ columns)
        by_head.append(joined if head.null else joined / joined.sum(-1, keepdim=True).clamp(min=1e-9))
    return torch.stack(by_head, 1).cpu().numpy()


def _layers(
    model: EncoderDecoder, encoding: Encoding, target_in: Tensor, target_visible: Tensor, heads: Sequence[AlignmentHead]
) -> list[HeadWeights]:
    """The layer of each alignment head; one pass serves all that see only the words so far."""
    decoder = model.decoder
    uninformed = any(not head.informed for head in heads)
    layers = decoder.source_attention(encoding, target_in) if uninformed else ()
    return [
        decoder.informed_attention(encoding, target_in, target_visible, layer=head.layer)
        if head.informed
        else layers[head.layer]
        for head in heads
    ]


def _membership(numbers: Sequence[Int[np.ndarray, "_"]], device: torch.device) -> Float[Tensor, "batch token word"]:
    """1 where a token is part of a word."""
    longest = max(len(row) for row in numbers)
    padded = np.full((len(numbers), longest), -1, np.int64)
    for line, row in zip(padded, numbers, strict=True):
        line[: len(row)] = row
    table = torch.from_numpy(padded).to(device)
    words = torch.arange(int(padded.max(initial=0)) + 1, device=device)
    return (table[..., None] == words).float()


def _given_words(
    weights: Float[np.ndarray, "head spaced_target spaced_source"], source: Tokens, target: Tokens
) -> Float[np.ndarray, "head target source"]:
    """From the words of the normalised texts to those of the texts as given, which are nearly always the same."""
    if source.words.of_spaced is None and target.words.of_spaced is None:
        return weights[:, : target.words.size, : source.words.size]
    columns = _word_sums(source.words, weights.shape[2])
    rows = _word_sums(target.words, weights.shape[1])
    rows = rows / np.maximum(rows.sum(1, keepdims=True), 1)
    given: np.ndarray = rows @ weights @ columns.T
    return given


def _word_sums(words: WordMap, spaced: int) -> Float[np.ndarray, "word spaced"]:
    table = np.zeros((words.size, spaced), np.float32)
    for number in range(spaced):
        table[words.given(number), number] = 1
    return table
