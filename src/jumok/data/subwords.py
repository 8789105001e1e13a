"""Training, reading and sampling from sentencepiece models.

A model file is an ordinary sentencepiece model. It also holds our own settings, such as the normalisation, in an extra
protobuf field that sentencepiece skips, so that one file is enough to encode and decode texts.
"""

import io
import json
import math
import re
import struct
import subprocess
import sys
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from random import Random
from typing import Any

import sentencepiece

from jumok.errors import DataError
from jumok.files import parse_json

FAILED = 3
SHORT = 200_000
"""Characters below which training takes a second at most, and runs in this process."""


def train_sentencepiece(sentences: list[str], options: dict[str, Any]) -> bytes:
    """The bytes of the model file; a RuntimeError with sentencepiece's message if training fails."""
    if not sys.executable or sum(map(len, sentences)) < SHORT:
        return _train(sentences, options)
    done = subprocess.run(
        [sys.executable, "-P", __file__], input=json.dumps([sentences, options]).encode(), capture_output=True
    )
    if done.returncode == 0:
        return done.stdout
    message = done.stderr.decode("utf-8", "replace")
    raise RuntimeError(
        message if done.returncode == FAILED else f"its process ended with code {done.returncode}\n{message}"
    )


def _train(sentences: list[str], options: dict[str, Any]) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sentences), model_writer=model, **options)
    return model.getvalue()


PAD, BOS, EOS, UNK = range(4)
SPECIALS = 4
UNKNOWN = "⁇"
SETTINGS_FIELD = 200  # the first number sentencepiece's model format leaves to others
PIECES, CONTROL = 1, 3
"""The field of a sentencepiece model that holds a piece, and the type of a piece that no text is cut into."""
FIXED = {1: 8, 5: 4}
"""Bytes of a protobuf number of fixed size, by its wire type."""
THREADS = 4  # part of the result (the order of float sums), so it must not follow the machine


def train_model(
    sentences: list[str],
    *,
    kind: str,
    size: int,
    coverage: float,
    byte_fallback: bool,
    split_digits: bool,
    unsplit: Sequence[str] = (),
    text_name: str,
    say: Callable[[str], None],
) -> bytes:
    """A sentencepiece model with fixed special ids and at most `size` pieces; `sentences` are already normalised."""
    if not any(sentences):
        raise DataError(f"the {text_name} text is empty, so there is nothing to train a tokenizer on")
    options = {
        "model_type": kind,
        "vocab_size": size,
        "hard_vocab_limit": kind in ("unigram", "bpe"),  # characters and words: as many as there are, up to `size`
        "character_coverage": coverage,
        "byte_fallback": byte_fallback,
        "split_digits": split_digits,
        "user_defined_symbols": list(unsplit),
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "max_sentence_length": 1 << 24,
        "pad_id": PAD,
        "bos_id": BOS,
        "eos_id": EOS,
        "unk_id": UNK,
        "unk_surface": UNKNOWN,
        "num_threads": THREADS,
        "minloglevel": 5,
    }
    try:
        try:
            return train_sentencepiece(sentences, options)
        except RuntimeError as error:
            if not (most := re.search(r"set it to a value <= (\d+)", str(error))):
                raise
            say(
                f"tokenizer.size = {size} is more than the {text_name} text allows; the vocabulary has {most[1]} tokens"
            )
            return train_sentencepiece(sentences, options | {"vocab_size": int(most[1])})
    except RuntimeError as error:
        raise DataError(_explained(str(error), size, text_name)) from None


LONGEST = 4000


def sample_sentences(sentences: Iterable[str], limit: int, seed: int = 0) -> list[str]:
    """At most `limit` non-empty sentences, each equally likely, in one pass (reservoir sampling).

    Only the beginning of a very long line counts: learning from it takes time that grows with its square.
    """
    draws, kept = Random(seed), []
    for count, sentence in enumerate((sentence[:LONGEST] for sentence in sentences if sentence), start=1):
        if count <= limit:
            kept.append(sentence)
        elif (slot := int(draws.random() * count)) < limit:
            kept[slot] = sentence
    return kept


def append_settings(model: bytes, settings: dict[str, Any]) -> bytes:
    """Append `settings` to a sentencepiece model file."""
    return model + length_delimited(SETTINGS_FIELD, json.dumps(settings, sort_keys=True).encode())


def settings_of(model: bytes) -> dict[str, Any]:
    """The settings that `append_settings` appended; a ValueError if there are none."""
    bodies = [body for field, body in fields_of(model) if field == SETTINGS_FIELD and isinstance(body, bytes)]
    settings = parse_json(bodies[-1]) if bodies else None
    if not isinstance(settings, dict):
        raise ValueError("no settings in the file")
    return settings


def fields_of(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """The fields of a protobuf message: numbers as int, everything else as bytes."""
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        if tag & 7 == 0:
            value, position = _read_varint(message, position)
            yield tag >> 3, value
            continue
        length, position = _read_varint(message, position) if tag & 7 == 2 else (FIXED.get(tag & 7, 0), position)
        if (not length and tag & 7 != 2) or position + length > len(message):
            raise ValueError("not a protobuf message")
        yield tag >> 3, message[position : position + length]
        position += length


def length_delimited(field: int, value: bytes) -> bytes:
    """A field of a protobuf message that holds text or a message."""
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def piece_field(text: str, score: float, type: int) -> bytes:
    """A piece of a sentencepiece model."""
    numbers = bytes([2 << 3 | 5]) + struct.pack("<f", score) + bytes([3 << 3, type])
    return length_delimited(PIECES, length_delimited(1, text.encode()) + numbers)


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 64, 7):
        if position >= len(message):
            break
        number |= (message[position] & 0x7F) << shift
        position += 1
        if message[position - 1] < 0x80:
            return number, position
    raise ValueError("a number runs past the end of the message")


def _explained(message: str, size: int, text_name: str) -> str:
    if match := re.search(r"(\d+) vs (\d+)", message):
        return (
            f"tokenizer.size = {size} is too small for the {text_name} text, whose characters alone need {match[2]}; "
            f"set tokenizer.size = {match[2]} or more, or lower tokenizer.coverage with tokenizer.byte_fallback = true"
        )
    return f"sentencepiece could not train a tokenizer on the {text_name} text: {message.splitlines()[0]}"


SPACE = "▁"
WORDS = re.compile(f"{SPACE}[^{SPACE}]*|[^{SPACE}]+")
UNKNOWN_SCORE = -100.0  # of a letter that has no piece

Arcs = tuple[list[int], list[float]]  # where the pieces ending here begin, and their cumulative weights


class UnigramSampler:
    """Samples segmentations under a unigram model with these piece scores (log probabilities)."""

    def __init__(self, scores: Mapping[str, float], *, temperature: float) -> None:
        self.scores, self.temperature = scores, temperature
        self._longest = max(map(len, scores), default=1)
        self._lattice = lru_cache(maxsize=50_000)(self.arcs)

    def sample(self, text: str, draws: Random) -> list[str]:
        """The pieces of a random segmentation of `text`, whose spaces are written ▁."""
        return [piece for word in WORDS.findall(text) for piece in self._backward(word, draws)]

    def arcs(self, word: str) -> list[Arcs]:
        """The pieces that end after each letter, and the sums of their weights, which are the terms of sum[j].

        sum[j] = Σᵢ sum[i] · p(word[i:j])^(1/temperature), in logarithms.
        """
        total, arcs = [0.0], []
        for end in range(1, len(word) + 1):
            starts, terms = [], []
            for start in range(max(0, end - self._longest), end):
                score = self.scores.get(word[start:end], UNKNOWN_SCORE if end - start == 1 else None)
                if score is not None:
                    starts.append(start)
                    terms.append(total[start] + score / self.temperature)
            top = max(terms)
            weights = list(accumulate(math.exp(term - top) for term in terms))
            total.append(top + math.log(weights[-1]))
            arcs.append((starts, weights))
        return arcs

    def _backward(self, word: str, draws: Random) -> list[str]:
        arcs, pieces, end = self._lattice(word), [], len(word)
        while end:
            starts, weights = arcs[end - 1]
            start = starts[min(bisect(weights, draws.random() * weights[-1]), len(starts) - 1)]
            pieces.append(word[start:end])
            end = start
        return pieces[::-1]


class BpeSampler:
    """Merges pieces in the order of a BPE model, skipping each merge with probability `dropout` (BPE-dropout)."""

    def __init__(self, scores: Mapping[str, float], *, dropout: float) -> None:
        self.scores, self.dropout = scores, dropout

    def sample(self, text: str, draws: Random) -> list[str]:
        """The pieces of a random segmentation of `text`, whose spaces are written ▁."""
        return [piece for word in WORDS.findall(text) for piece in self._merge(list(word), draws)]

    def _merge(self, pieces: list[str], draws: Random) -> list[str]:
        score, draw = self.scores.get, draws.random
        merged = [score(left + right) for left, right in pairwise(pieces)]
        while True:
            best, place = None, 0
            for position, candidate in enumerate(merged):
                if candidate is not None and draw() >= self.dropout and (best is None or candidate > best):
                    best, place = candidate, position
            if best is None:
                return pieces
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
            del merged[place]
            for position in (place - 1, place):  # only the neighbours of the new piece have changed
                if 0 <= position < len(merged):
                    merged[position] = score(pieces[position] + pieces[position + 1])


def _main() -> None:
    sentences, options = json.load(sys.stdin.buffer)
    try:
        sys.stdout.buffer.write(_train(sentences, options))
    except RuntimeError as error:
        sys.stderr.buffer.write(str(error).encode())
        sys.exit(FAILED)


if __name__ == "__main__":
    _main()
