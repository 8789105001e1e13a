"""The attention maps of a translation: one teacher-forced pass gives the weights of every layer and head."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from operator import ne
from typing import NamedTuple

import torch

from jumok.analysis.maps.attention_map import BEGIN, END, AttentionMap, MapKind, checked_kind, word_numbers
from jumok.data import BOS, EOS, Tokenizer, TokenizerPair
from jumok.data.tokenizer import Piece
from jumok.models.encoder_decoder import EncoderDecoder, HeadWeights

SPACE = "▁"
BYTE = re.compile("<0x([0-9A-F]{2})>")


class MapAxis(NamedTuple):
    """One axis of a map: the tokens of a text, the number of the word that each belongs to, and the words."""

    tokens: tuple[str, ...]
    numbers: list[int]
    words: tuple[str, ...]

    def with_end(self) -> "MapAxis":
        """The same with the end of the sentence, a word of its own."""
        return MapAxis((*self.tokens, END), [*self.numbers, len(self.words)], (*self.words, END))

    def with_beginning(self) -> "MapAxis":
        """The same with the beginning of the sentence, a word of its own."""
        return MapAxis((BEGIN, *self.tokens), [0, *(number + 1 for number in self.numbers)], (BEGIN, *self.words))


@torch.no_grad()
def map_of_translation(
    model: EncoderDecoder,
    tokenizers: TokenizerPair,
    source: str,
    target: Sequence[int],
    *,
    words: bool = True,
    kind: MapKind = "cross",
) -> AttentionMap:
    """The attention of a model that reads `source` and writes the tokens `target` and the end of the sentence.

    In a map of the encoder, source words attend to source words. In one of the decoder, each word that is written
    attends to those written before it, the first of which is the beginning of the sentence.
    """
    pieces = tokenizers.source.pieces_with_offsets(source)
    read = source_side(source, pieces, tokenizers.source).with_end()
    device = next(model.parameters()).device
    source_ids = torch.tensor([[*(piece.id for piece in pieces), EOS]], device=device)
    target_in = torch.tensor([[BOS, *target]], device=device)
    visible = torch.ones_like(source_ids, dtype=torch.bool)
    if checked_kind(kind) == "encoder":
        return map_of_layers(model.encoder.self_attention(source_ids, visible), read, read, kind, words=words)
    encoding = model.encoder(source_ids, visible)
    letters, places = tokenizers.target.written(target)
    written = target_side(letters, tokenizers.target.letters)
    if kind == "decoder":
        attention = model.decoder.self_attention(encoding, target_in)
        return map_of_layers(attention, written.with_beginning(), written.with_end(), kind, words=words)
    attention = model.decoder.source_attention(encoding, target_in)
    if len(places) < len(target):  # edits that write nothing have no row
        attention = tuple(partial(layer, rows=[*places, len(target)]) for layer in attention)
    return map_of_layers(attention, read, written.with_end(), kind, words=words)


def map_of_layers(
    attention: Sequence[HeadWeights], source: MapAxis, target: MapAxis, kind: MapKind, *, words: bool = True
) -> AttentionMap:
    """The map of one sentence between tokens or words; positions beyond the tokens of a side are left out."""
    size = slice(len(target.tokens)), slice(len(source.tokens))
    weights = torch.stack([layer()[0, :, size[0], size[1]] for layer in attention]).float().cpu()
    in_tokens = AttentionMap(source.tokens, target.tokens, weights, kind=kind)
    if not words:
        return in_tokens
    merged = in_tokens.merged(source.numbers, target.numbers)
    return replace(merged, source=source.words, target=target.words)


def source_side(text: str, pieces: Sequence[Piece], tokenizer: Tokenizer) -> MapAxis:
    """The tokens and words of a text that a model reads; tags and the language in front of it are words."""
    spans = [(piece.start, piece.end) for piece in pieces]
    alone = [tokenizer.is_symbol(piece.id) for piece in pieces]
    numbers = _with_words_alone(word_numbers(text, spans), alone)
    named = {number: piece.piece for number, piece, is_alone in zip(numbers, pieces, alone, strict=True) if is_alone}
    words = tuple(named.get(word) or _span(text, spans, numbers, word) for word in range(_count(numbers)))
    return MapAxis(tuple(piece.piece for piece in pieces), numbers, words)


def target_side(ids: Sequence[int], tokenizer: Tokenizer) -> MapAxis:
    """The tokens and words of an output."""
    numbers, words = words_of_tokens(ids, tokenizer)
    return MapAxis(tuple(tokenizer.pieces[id] for id in ids), numbers, tuple(words))


def words_of_tokens(target: Sequence[int], tokenizer: Tokenizer) -> tuple[list[int], list[str]]:
    """For every token the number of its word, and the words."""
    rows = _target_words([tokenizer.pieces[id] for id in target])
    if tokenizer.kind == "word":  # an unknown word has no space before it that would tell where it begins
        rows = list(range(len(target)))
    rows = _with_words_alone(rows, [tokenizer.is_symbol(id) for id in target])
    ids_of = [[id for id, row in zip(target, rows, strict=True) if row == word] for word in range(_count(rows))]
    return rows, [tokenizer.decode(ids) or tokenizer.pieces[ids[0]] for ids in ids_of]


def _target_words(pieces: Sequence[str]) -> list[int]:
    """A piece with a space before it begins a word; a space that is a piece of its own belongs to the word after it.

    In scripts written without spaces, every piece is a word; the bytes of a letter stay together.
    """
    text, spans = "", [(0, 0)]
    for surface in _letters(pieces):
        start = len(text) + surface.startswith(SPACE)
        text += surface.replace(SPACE, " ")
        spans.append((start, len(text)) if surface else spans[-1])
    return word_numbers(text, spans[1:])


def _with_words_alone(numbers: Sequence[int], alone: Sequence[bool]) -> list[int]:
    """The numbers of words again, with each token that stands alone as a word of its own."""
    names = [
        -1 - index if is_alone else number for index, (number, is_alone) in enumerate(zip(numbers, alone, strict=True))
    ]
    return list(accumulate(map(int, map(ne, names[1:], names)), initial=0))[: len(names)]


def _letters(pieces: Sequence[str]) -> list[str]:
    """The text of every piece; of a letter written in bytes, the first byte has the text and the others have none."""
    texts, spelling = list(pieces), bytearray()
    for place in reversed(range(len(pieces))):
        byte = BYTE.fullmatch(pieces[place])
        if byte is None:
            spelling.clear()
            continue
        spelling.insert(0, int(byte[1], 16))
        continues = spelling[0] & 0xC0 == 0x80
        texts[place] = "" if continues else spelling.decode(errors="replace")
        if not continues:
            spelling.clear()
    return texts


def _span(text: str, spans: list[tuple[int, int]], words: list[int], word: int) -> str:
    inside = [span for span, number in zip(spans, words, strict=True) if number == word]
    return text[min(start for start, _ in inside) : max(end for _, end in inside)]


def _count(words: Sequence[int]) -> int:
    return max(words, default=-1) + 1
