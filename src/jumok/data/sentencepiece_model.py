"""A sentencepiece model of another toolkit, rewritten so that its ids are those of a model's vocabulary.

Other toolkits keep a vocabulary beside the sentencepiece model: the model cuts a text into pieces, and the vocabulary
numbers them. Here one file does both, so every piece of the vocabulary becomes a piece of the sentencepiece model at
the id it has. Pieces that the model cannot cut, such as those of the other language in a joint vocabulary, are
"unused": they can be decoded but are never produced. They are marked, because BPE would merge through them.
"""

import struct
from base64 import b64decode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal, NamedTuple

from jumok.data.normalise import Normaliser
from jumok.data.subwords import SPACE, UNKNOWN, append_settings, fields_of, length_delimited, settings_of
from jumok.data.tokenizer import HIDDEN, MOST_BYTES, UNUSED_MARK, Tokenizer
from jumok.errors import DataError
from jumok.files import read_plain

PIECES, TRAINER = 1, 2
"""Fields of a model: its pieces, and how it was trained."""
NORMAL, UNK_TYPE, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Types of a piece."""
SPECIAL_PIECES = (("<pad>", CONTROL), ("<s>", CONTROL), ("</s>", CONTROL), ("<unk>", UNK_TYPE))
"""The first four ids: PAD, BOS, EOS, UNK."""
CUT = (NORMAL, USER_DEFINED, BYTE)
"""Types of pieces that texts are cut into."""
RESERVED = {name for name, _ in SPECIAL_PIECES}
UNK_SURFACE, MODEL_TYPE, BPE, WORD = 44, 3, 2, 3
NORMALISER, NORMALISER_NAME, CHARSMAP = 3, 1, 2
MOST_MISSING, FEW_MISSING = 0.1, 5
"""Share and number of pieces that a vocabulary may lack: one counted in a corpus lacks the rarest pieces."""
MOST_UNCUT = 0.25
"""Share of a vocabulary that its models may lack: one counted in a corpus has rare characters of its own."""
KINDS: dict[int, Literal["unigram", "bpe"]] = {1: "unigram", 2: "bpe"}


class ScoredPiece(NamedTuple):
    """A piece of a sentencepiece model."""

    text: str
    score: float
    type: int


class SentencePieceModel(NamedTuple):
    """The parts of a sentencepiece model file."""

    pieces: list[ScoredPiece]
    trainer: bytes
    rest: list[tuple[int, bytes]]
    """Its other fields, such as the normalisation, as they are in the file."""
    origin: str = "the tokenizer"
    """The file it was read from."""

    @property
    def kind(self) -> Literal["unigram", "bpe"]:
        """How it cuts a text."""
        types = [value for field, value in fields_of(self.trainer) if field == MODEL_TYPE]
        number = int(types[-1]) if types else 1
        if number not in KINDS:
            raise DataError("only sentencepiece models of type unigram and bpe can be used")
        return KINDS[number]


def read_model(content: bytes, origin: object) -> SentencePieceModel:
    """Parse a model file; raises a DataError for a file that is not a sentencepiece model."""
    try:
        fields = [(field, bytes(value)) for field, value in fields_of(content) if isinstance(value, bytes)]
        pieces = [_piece(value) for field, value in fields if field == PIECES]
    except (ValueError, struct.error):
        fields, pieces = [], []
    # Every model has settings behind its pieces; without them the file was cut off between two pieces.
    if not pieces or not {TRAINER, NORMALISER} <= {field for field, _ in fields}:
        raise DataError(f"{origin} is not a sentencepiece model, or is damaged")
    trainer = b"".join(value for field, value in fields if field == TRAINER)
    rest = [item for item in fields if item[0] not in (PIECES, TRAINER)]
    return SentencePieceModel(pieces, trainer, rest, str(origin))


def from_merges(pieces: Sequence[str], merges: Sequence[Sequence[str]], charsmap: str) -> SentencePieceModel:
    """The model that a BPE tokenizer of the library `tokenizers` was made from; `charsmap` is its normalisation.

    Sentencepiece merges the pair with the highest score, which is the one that comes first in `merges`.
    """
    scores = {"".join(pair): -float(rank) for rank, pair in reversed(list(enumerate(merges)))}
    lowest = -float(len(merges))
    scored_pieces = [ScoredPiece(piece, scores.get(piece, lowest), NORMAL) for piece in pieces if piece not in RESERVED]
    rules = length_delimited(NORMALISER_NAME, b"nmt_nfkc") + length_delimited(CHARSMAP, b64decode(charsmap))
    trainer = bytes([MODEL_TYPE << 3, BPE])
    return SentencePieceModel(scored_pieces, trainer, [(NORMALISER, rules)])


def missing_pieces(model: SentencePieceModel, vocabulary: Iterable[str]) -> list[str]:
    """Pieces that the model cuts but the vocabulary does not number: those that other toolkits read as unknown."""
    known = set(vocabulary)
    return [piece.text for piece in model.pieces if piece.type in (NORMAL, BYTE) and piece.text not in known]


def check_pieces(model: SentencePieceModel, vocabulary: Iterable[str], say: Callable[[str], None]) -> None:
    """Raise a DataError if the vocabulary lacks many pieces of the model; `say` receives a note about a few."""
    missing, count = missing_pieces(model, vocabulary), len(missing_pieces(model, ()))
    if not missing:
        return
    share = f"{len(missing):,} of {count:,} pieces ({len(missing) / count:.1%})"
    lacks = f"{model.origin} has {share} that the vocabulary lacks"
    if len(missing) > max(FEW_MISSING, MOST_MISSING * count):
        raise DataError(f"{lacks}, so it belongs to another model; copy the file that this one was trained with")
    say(f"note: {lacks}; they are read as unknown")


def check_vocabulary(models: Iterable[SentencePieceModel], vocabulary: Iterable[str], origin: object) -> None:
    """Raise a DataError if much of the vocabulary is in none of the models: one is damaged, or belongs to others.

    Special tokens and languages, such as <pad> and >>en<<, count for nothing.
    """
    models = list(models)
    known = {piece.text for model in models for piece in model.pieces}
    pieces = [piece for piece in vocabulary if not (piece.startswith(("<", ">>")) and piece.endswith((">", "<<")))]
    lacking = sum(piece not in known for piece in pieces)
    if lacking > max(FEW_MISSING, MOST_UNCUT * len(pieces)):
        files = " and ".join(dict.fromkeys(model.origin for model in models))
        share = f"{lacking:,} of {len(pieces):,} pieces ({lacking / len(pieces):.1%})"
        raise DataError(f"{origin} has {share} that {files} cannot produce; copy the files that it was trained with")


def make_word_tokenizer(vocabulary: Sequence[str], *, lowercase: bool = False) -> Tokenizer:
    """A tokenizer that cuts texts at spaces, for vocabularies of words and of pieces that another program makes."""
    pieces = [ScoredPiece(name, 0.0, type) for name, type in SPECIAL_PIECES]
    pieces += [ScoredPiece(SPACE + word.replace(SPACE, HIDDEN), 0.0, NORMAL) for word in vocabulary]
    trainer = bytes([MODEL_TYPE << 3, WORD]) + length_delimited(UNK_SURFACE, UNKNOWN.encode())
    rules = length_delimited(NORMALISER_NAME, b"identity")
    body = [(PIECES, _written(piece)) for piece in pieces] + [(TRAINER, trainer), (NORMALISER, rules)]
    normaliser = Normaliser(form="none", spaces="collapse", lowercase=lowercase)
    settings = {"kind": "word", "normaliser": asdict(normaliser), "fingerprint": ""}
    return Tokenizer(append_settings(b"".join(length_delimited(*field) for field in body), settings))


def make_tokenizer(model: SentencePieceModel, vocabulary: Sequence[str], *, lowercase: bool = False) -> Tokenizer:
    """A tokenizer that cuts like `model` and numbers its pieces like `vocabulary`, behind the four special tokens."""
    own = {piece.text: piece for piece in model.pieces if piece.type in CUT}
    pieces = [ScoredPiece(name, 0.0, type) for name, type in SPECIAL_PIECES]
    for text in vocabulary:
        # A vocabulary may number special tokens that no text contains; their names are taken.
        unused = ScoredPiece(UNUSED_MARK + (f"{text}'" if text in RESERVED else text), 0.0, UNUSED)
        pieces.append(own.get(text, unused))
    trainer = model.trainer + length_delimited(UNK_SURFACE, UNKNOWN.encode())
    body = [(PIECES, _written(piece)) for piece in pieces] + [(TRAINER, trainer), *model.rest]
    settings = {
        "kind": model.kind,
        "normaliser": asdict(Normaliser(form="none", spaces="keep", lowercase=lowercase)),
        "fingerprint": "",
        "normalises": True,
    }
    return Tokenizer(append_settings(b"".join(length_delimited(*field) for field in body), settings))


def read_tokenizer(path: str | Path, *, lowercase: bool = False) -> Tokenizer:
    """The tokenizer in a sentencepiece model file of any origin, or in one that jumok wrote.

    Special tokens of the file are left out, whatever their ids: ours come first, then its pieces in their order.
    """
    content = read_plain(path, most=MOST_BYTES)
    if _is_ours(content):
        return Tokenizer(content, origin=str(path))
    model = read_model(content, path)
    names = [piece.text for piece in model.pieces if piece.type in CUT and piece.text not in RESERVED]
    try:
        return make_tokenizer(model, names, lowercase=lowercase)
    except DataError as error:
        raise DataError(f"{path} cannot be used: {error}") from None


def _is_ours(content: bytes) -> bool:
    try:
        settings_of(content)
    except ValueError:
        return False
    return True


def _piece(message: bytes) -> ScoredPiece:
    values = dict(fields_of(message))
    (score,) = struct.unpack("<f", bytes(values[2])) if 2 in values else (0.0,)
    return ScoredPiece(bytes(values[1]).decode(), score, int(values.get(3, NORMAL)))


def _written(piece: ScoredPiece) -> bytes:
    score = bytes([2 << 3 | 5]) + struct.pack("<f", piece.score)
    return length_delimited(1, piece.text.encode()) + score + bytes([3 << 3, piece.type])
