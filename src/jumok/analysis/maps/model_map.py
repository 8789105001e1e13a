"""The attention map of a translation: one teacher-forced pass gives the weights of every layer and head."""

import re
from collections.abc import Sequence
from dataclasses import replace

import torch

from jumok.analysis.maps.attention_map import AttentionMap, word_numbers
from jumok.data import BOS, Tokenizer, TokenizerPair
from jumok.models.encoder_decoder import EncoderDecoder

END = "</s>"
SPACE = "▁"
BYTE = re.compile("<0x([0-9A-F]{2})>")


@torch.no_grad()
def map_of_translation(
    model: EncoderDecoder, tokenizers: TokenizerPair, source: str, target: Sequence[int], *, words: bool = True
) -> AttentionMap:
    """The attention of a model over `source` while it writes the tokens `target` and the end of the sentence."""
    ids = tokenizers.source.encode(source)[1:]
    device = next(model.parameters()).device
    source_ids = torch.tensor([ids], device=device)
    target_in = torch.tensor([[BOS, *target]], device=device)
    encoding = model.encoder(source_ids, torch.ones_like(source_ids, dtype=torch.bool))
    attention = model.decoder.source_attention(encoding, target_in)
    weights = torch.stack([layer()[0] for layer in attention]).float().cpu()
    pieces = tokenizers.source.pieces_with_offsets(source)
    in_tokens = AttentionMap(
        (*(piece.piece for piece in pieces), END),
        (*(tokenizers.target.pieces[id] for id in target), END),
        weights,
    )
    spans = [(piece.start, piece.end) for piece in pieces]
    return _in_words(in_tokens, source, spans, target, tokenizers.target) if words else in_tokens


def _in_words(
    in_tokens: AttentionMap, source: str, spans: list[tuple[int, int]], target: Sequence[int], tokenizer: Tokenizer
) -> AttentionMap:
    columns = word_numbers(source, spans)
    rows, target_words = words_of_tokens(target, tokenizer)
    source_words = [_span(source, spans, columns, word) for word in range(_count(columns))]
    merged = in_tokens.merged([*columns, _count(columns)], [*rows, _count(rows)])
    return replace(merged, source=(*source_words, END), target=(*target_words, END))


def words_of_tokens(target: Sequence[int], tokenizer: Tokenizer) -> tuple[list[int], list[str]]:
    """For every token the number of its word, and the words."""
    rows = _target_words([tokenizer.pieces[id] for id in target])
    if tokenizer.kind == "word":  # an unknown word has no space before it that would tell where it begins
        rows = list(range(len(target)))
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
