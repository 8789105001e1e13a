"""Text <-> token ids: unigram, BPE, character or word pieces; decode(encode(text)) is the normalised text.

Every encoded text is [BOS, ..., EOS], and nothing else in jumok adds special tokens; batches only slice them off.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from functools import cached_property
from itertools import chain, groupby, takewhile
from pathlib import Path
from random import Random
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
import sentencepiece
from annotated_types import Ge, Le
from jaxtyping import Int, Integer

from jumok.data.normalise import Form, Normaliser, Spaces
from jumok.data.subwords import (
    BOS,
    EOS,
    PAD,
    SPACE,
    SPECIALS,
    UNK,
    UNKNOWN,
    WORDS,
    BpeSampler,
    UnigramSampler,
    append_settings,
    fields_of,
    sample_sentences,
    settings_of,
    train_model,
)
from jumok.data.symbols import SYMBOL, TextSegment, split_symbols, symbol_pieces, without_symbols
from jumok.errors import ArgumentError, ConfigError, DataError, first_line
from jumok.files import atomic_write, read_plain
from jumok.settings import FilePath, NonNegativeFloat, PositiveInt, Settings

Side = Literal["source", "target"]
TokenizerKind = Literal["unigram", "bpe", "char", "word"]
MOST_BYTES = 64 * 2**20  # of a model file: some million pieces
HIDDEN = "\ufdd0"  # stands for a ▁ of the text itself while sentencepiece writes spaces as ▁

LEADING_TAG = re.compile(">>[^<>]*<<")
"""A tag at the beginning of a text for an imported model, such as >>kor<< for a language."""
TYPED_TAG = re.compile(r">>[\w-]+<<")
"""The same as a user may write it; anything else between such brackets is text."""
SHOWN_TAGS = 20
SHOWN_LANGUAGES = 8
OF_OWN_MODEL = ("model", "kind", "size", "lowercase", "sampling")
"""Settings that a tokenizer of the user's own leaves; kind and size become those of the file."""
TRAINER, SPLIT_DIGITS = 2, 25
"""The field of a sentencepiece model that says how it was trained, and the field of that for numbers."""
UNUSED_MARK = "\ufdd1"  # in front of pieces of an imported vocabulary that no text is cut into


@dataclass(frozen=True, kw_only=True)
class OneSidedTokenizer(Settings):
    """How text is split into tokens, where only the target is text."""

    section: ClassVar[str] = "tokenizer"

    kind: TokenizerKind = "unigram"
    """Kind of tokenizer: "unigram", "bpe", "char" or "word"."""
    size: Annotated[int, Ge(5), Le(10_000_000)] = 8000
    """Maximum size of the vocabulary, including the four special tokens; a small text gives fewer."""
    coverage: Annotated[float, Ge(0.98), Le(1)] = 1.0
    """Character coverage; below 1, the rarest characters become unknown (or bytes)."""
    byte_fallback: bool = False
    """Encode unknown characters as UTF-8 bytes (256 more pieces), so that nothing is unknown."""
    target_form: Form = "nfc"
    """Unicode normalisation: "nfc", "nfkc", "nfd", "jamo" (Hangul as letters) or "none"; outputs are composed to
    syllables again.
    """
    spaces: Spaces = "collapse"
    """"collapse" leaves one space between words; "keep" leaves spaces unchanged."""
    lowercase: bool = False
    """Lower-case the text."""
    split_digits: bool = True
    """Split numbers into digits, so that the model can copy any number."""
    unsplit: tuple[str, ...] = ()
    """Strings that are always a single token, such as ["%s", "<b>"]; needs a subword tokenizer."""
    sentences: PositiveInt = 1_000_000
    """Maximum number of sentences to learn the vocabulary from; larger corpora are sampled."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.byte_fallback and self.size < SPECIALS + 1 + 256:
            raise ConfigError(f"{self.shown('size')} must be at least {SPECIALS + 1 + 256} with byte_fallback = true")
        if self.byte_fallback and "word" in self.kinds:
            raise ConfigError(
                'tokenizer.byte_fallback = true works with tokenizer.kind = "unigram", "bpe" or "char", not "word"'
            )
        if self.spaces == "keep" and "word" in self.kinds:
            raise ConfigError(
                'tokenizer.spaces = "keep" works with tokenizer.kind = "unigram", "bpe" or "char", not "word"'
            )
        self._check_subwords("unsplit")
        if wrong := [text for text in self.unsplit if not text or " " in text or SPACE in text]:
            raise ConfigError(f"tokenizer.unsplit holds {wrong[0]!r}; give texts without spaces")

    def _check_subwords(self, name: str) -> None:
        """Refuse a setting of subwords with a tokenizer of letters or words."""
        if getattr(self, name) and (other := self.kinds - {"unigram", "bpe"}):
            raise ConfigError(f"tokenizer.{name} needs tokenizer.kind unigram or bpe, not {min(other)}")

    @property
    def kinds(self) -> set[TokenizerKind]:
        """The kinds of tokenizer of both sides."""
        return {self.kind_of("source"), self.kind_of("target")}

    def kind_of(self, side: Side) -> TokenizerKind:
        """The kind of tokenizer of this side."""
        return self.kind

    def normaliser(self, side: Side) -> Normaliser:
        """The normalisation of a text of this side."""
        return Normaliser(form=self.target_form, spaces=self.spaces, lowercase=self.lowercase)

    def text_name(self, side: Side) -> str:
        """What messages call the text that the vocabulary of this side is learned from."""
        return "training"


@dataclass(frozen=True, kw_only=True)
class TokenizerConfig(OneSidedTokenizer):
    """How the texts of both sides are split into tokens."""

    model: FilePath = ""
    """SentencePiece model (unigram or BPE) for both sides, instead of learning a vocabulary. It determines kind, size
    and normalisation.
    """
    source_kind: TokenizerKind | None = None
    """Kind of tokenizer of the source alone; defaults to `kind`."""
    target_kind: TokenizerKind | None = None
    """Kind of tokenizer of the target alone; defaults to `kind`."""
    shared: bool = True
    """One vocabulary for both sides; false trains one for each."""
    sampling: NonNegativeFloat = 0.0
    """Subword regularisation while training, 0 for none. With "bpe" the share of merges to skip (BPE-dropout, usually
    0.1); with "unigram" the sampling temperature (usually 5)."""
    source_form: Form = "nfc"
    """Unicode normalisation of the source: "nfc", "nfkc", "nfd", "jamo" (Hangul as letters) or "none"."""
    target_form: Form = "nfc"
    """Unicode normalisation of the target; outputs are composed to syllables again."""
    edits: bool = False
    """Represent targets as edits of their sources (delete, insert, substitute); needed by decoder.kind = "transducer".
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model:
            self._check_own_model()
        if "bpe" in self.kinds and self.sampling >= 1:
            raise ConfigError(f"{self.shown('sampling')} must be below 1 with {self.shown('kind')}")
        self._check_subwords("sampling")
        if self.edits and self.sampling:
            raise ConfigError(
                f"{self.shown('sampling')} cannot be combined with tokenizer.edits = true; set "
                "tokenizer.sampling = 0 or tokenizer.edits = false"
            )
        if self.shared and len(self.kinds) > 1:
            raise ConfigError(
                f'the source has a "{self.kind_of("source")}" tokenizer and the target "{self.kind_of("target")}", '
                "which needs tokenizer.shared = false"
            )
        if self.shared and self.source_form != self.target_form:
            raise ConfigError(
                f"{self.shown('source_form')} and {self.shown('target_form')} differ, which needs "
                "tokenizer.shared = false"
            )

    def _check_own_model(self) -> None:
        """Refuse settings of a vocabulary that is learned."""
        for field in fields(self):
            if field.name not in OF_OWN_MODEL and getattr(self, field.name) != field.default:
                raise ConfigError(f"{self.shown(field.name)} has no effect with tokenizer.model; leave out one of them")

    def kind_of(self, side: Side) -> TokenizerKind:
        """The kind of tokenizer of this side."""
        return (self.source_kind if side == "source" else self.target_kind) or self.kind

    def normaliser(self, side: Side) -> Normaliser:
        """The normalisation of a text of this side."""
        form = self.source_form if side == "source" else self.target_form
        return Normaliser(form=form, spaces=self.spaces, lowercase=self.lowercase)

    def text_name(self, side: Side) -> str:
        """What messages call the text that the vocabulary of this side is learned from."""
        return "training" if self.shared else side


class Symbols(NamedTuple):
    """Words in angle brackets that are single tokens (see `jumok.data.symbols`)."""

    tags: tuple[str, ...] = ()
    """Tags of a language or domain, which a user may choose from."""
    features: tuple[str, ...] = ()
    """Features of a word, such as <PST>."""

    @property
    def all(self) -> frozenset[str]:
        """Both."""
        return frozenset((*self.tags, *self.features))


NO_SYMBOLS = Symbols()


class Piece(NamedTuple):
    """A piece of a text, and the span [start, end) of the original text it stands for, without the space before it."""

    piece: str
    start: int
    end: int
    id: int


class Tokenizer:
    """Encodes texts as token ids and decodes them; made from the bytes of a model file alone."""

    def __init__(self, model: bytes, *, origin: str = "the tokenizer") -> None:
        try:
            settings = settings_of(model)
            self.kind: TokenizerKind = settings["kind"]
            self.fingerprint: str = settings["fingerprint"]
            self.normaliser = Normaliser(**settings["normaliser"])
            self._normalises = bool(settings.get("normalises"))  # whether sentencepiece changes letters as well
            self.symbols = Symbols(tuple(settings.get("tags", ())), tuple(settings.get("features", ())))
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            size = self._processor.get_piece_size()
            self.pieces: list[str] = [self._processor.id_to_piece(id).removeprefix(UNUSED_MARK) for id in range(size)]
            self._bytes = {id: int(self.pieces[id][3:5], 16) for id in range(size) if self._processor.is_byte(id)}
            self._ids = {piece: id for id, piece in enumerate(self.pieces) if id >= SPECIALS}
            self._symbol_ids = {symbol: self._ids[symbol] for symbol in self.symbols.all}
        except (RuntimeError, ValueError, TypeError, KeyError, RecursionError) as error:  # a piece may be no UTF-8
            raise DataError(f"{origin} is not a jumok tokenizer, or is damaged ({first_line(error)})") from None
        self.model = model
        self._samplers: dict[float, UnigramSampler | BpeSampler] = {}
        self._leading = {piece: id for piece, id in self._ids.items() if LEADING_TAG.fullmatch(piece)}
        self.language = str(settings.get("language", ""))  # what every text begins with; "" for none
        self.language_ids = [id for tag, id in self._leading.items() if tag == f">>{self.language}<<"]
        self._spaces = self._spaces_before()

    @classmethod
    def train(
        cls,
        sentences: Iterable[str],
        config: OneSidedTokenizer,
        *,
        side: Side = "source",
        symbols: Symbols = NO_SYMBOLS,
        fingerprint: str = "",
        say: Callable[[str], None] = lambda message: None,
    ) -> "Tokenizer":
        """Train a vocabulary; the same sentences and config give the same bytes.

        The vocabulary does not learn from `symbols` in the sentences and ends with them. `say` receives a message if
        the text is too small for a vocabulary of `config.size`.
        """
        normaliser, kind = config.normaliser(side), config.kind_of(side)
        texts = (without_symbols(sentence, symbols.all) for sentence in sentences)
        model = train_model(
            sample_sentences((_hidden(normaliser(text)) for text in texts), config.sentences),
            kind=kind,
            size=config.size,
            coverage=config.coverage,
            byte_fallback=config.byte_fallback,
            split_digits=config.split_digits,
            unsplit=config.unsplit,
            text_name=config.text_name(side),
            say=say,
        )
        settings = {"kind": kind, "normaliser": asdict(normaliser), "fingerprint": fingerprint}
        return cls(append_settings(model, settings)).with_symbols(symbols)

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Read a model file, which cannot run code."""
        return cls(read_plain(path, most=MOST_BYTES), origin=str(path))

    def save(self, path: str | Path) -> None:
        """Write the model file."""
        with atomic_write(path) as file:
            file.write(self.model)

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[bytes]]:
        return type(self), (self.model,)

    @property
    def size(self) -> int:
        """The number of ids, which run from 0 to size - 1."""
        return len(self.pieces)

    @property
    def tags(self) -> list[str]:
        """The tags of a language or domain that a text may begin with."""
        return [*self.symbols.tags, *self._leading]

    def with_symbols(self, symbols: Symbols) -> "Tokenizer":
        """The same tokenizer with more symbols: those it does not know become its last ids."""
        tags = [tag for tag in symbols.tags if tag not in self.tags]
        if wrong := [tag for tag in tags if LEADING_TAG.fullmatch(tag)]:
            named = known_tags(self.tags or self.symbols.features)
            raise DataError(f"the vocabulary has no tag {wrong[0]}{named}; write a new tag as <medical>")
        features = [symbol for symbol in symbols.features if symbol not in self.symbols.all]
        if not tags and not features:
            return self
        known = Symbols(self.symbols.tags + tuple(tags), self.symbols.features + tuple(features))
        new = symbol_pieces(dict.fromkeys(symbol for symbol in (*tags, *features) if symbol not in self._ids))
        settings = settings_of(self.model) | {"tags": known.tags, "features": known.features}
        return type(self)(append_settings(self.model + new, settings))

    @property
    def languages(self) -> list[str]:
        """The languages of an imported vocabulary: "de" if it has a tag >>de<<."""
        return sorted(tag[2:-2] for tag in self._leading)

    def with_language(self, language: str) -> "Tokenizer":
        """The same tokenizer that begins every text with the tag of a language, unless the text itself has one."""
        if language not in self.languages:
            known, count = self.languages, len(self.languages)
            near = get_close_matches(language, known, n=5, cutoff=0.5)
            if count <= SHOWN_LANGUAGES:
                knows = f"it knows {', '.join(known)}"
            else:
                meant = f"did you mean {' or '.join(near)}? " if near else ""
                knows = f"{meant}the model knows {count} languages" + ("" if near else f", such as {known[0]}")
            raise ArgumentError(f"{language!r} is not a language of this model; {knows}")
        return type(self)(append_settings(self.model, settings_of(self.model) | {"language": language}))

    def encode(self, text: str) -> list[int]:
        """The token ids of a text: [BOS, ids of the pieces, EOS]."""
        return [BOS, *(id for part in self._parts(text) for id in self._ids_of_part(part)), EOS]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of every text; sentencepiece cuts many texts faster than each by itself."""
        if self.kind not in ("unigram", "bpe"):
            return [self.encode(text) for text in texts]
        parts = [list(self._parts(text)) for text in texts]
        plain = [_hidden(self.normaliser(part.text)) for its_own in parts for part in its_own if part.id is None]
        cut = iter(self._processor.encode(plain, num_threads=1))
        return [
            [BOS, *chain.from_iterable(next(cut) if part.id is None else (part.id,) for part in its_own), EOS]
            for its_own in parts
        ]

    def encode_after(self, source: Sequence[int], text: str) -> list[int]:
        """The token ids of the target of a source; only tokenizers of edits depend on the source."""
        return self.encode(text)

    def encode_all_after(self, sources: Sequence[Sequence[int]], texts: Sequence[str]) -> list[list[int]]:
        """`encode_after` of every source and text."""
        return self.encode_all(texts)

    @property
    def letters(self) -> "Tokenizer":
        """The tokenizer of the written text: this one, unless its tokens are edits."""
        return self

    def written(self, ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """The ids, as `letters` knows them, of the tokens that write something, and their places: here all."""
        return list(ids), list(range(len(ids)))

    def _ids_of_part(self, part: TextSegment) -> list[int]:
        if part.id is not None:
            return [part.id]
        text = _hidden(self.normaliser(part.text))
        if self.kind in ("unigram", "bpe"):
            ids: list[int] = self._processor.encode(text)
            return ids
        return [id for surface in self._surfaces(text) for id in self.ids_of(surface)]

    def sample(self, text: str, amount: float, draws: Random) -> list[int]:
        """Like `encode`, with a random segmentation (see `sampling`); the same draws give the same ids."""
        if not amount:
            return self.encode(text)
        ids: list[int] = []
        for part in self._parts(text):
            hidden = "" if part.id is not None else _hidden(self.normaliser(part.text))
            ids += self.cut(_marked(hidden), amount, draws) if hidden else self._ids_of_part(part)
        return [BOS, *ids, EOS]

    def leading_symbols(self, text: str) -> str:
        """The beginning of a text up to its first part that is no symbol; "" for a text of symbols alone."""
        start = next((part.start for part in self._parts(text) if part.id is None and part.text.strip()), 0)
        return text[:start]

    def unknown_tag(self, text: str) -> str | None:
        """A tag or feature that a text begins with and that is read as text, because the vocabulary does not have it.

        Words such as <medical> count only where the vocabulary has symbols; >>kor<< is a tag everywhere, but it is also
        read as text where white space comes before it.
        """
        typed, words = TYPED_TAG.match(text.lstrip()), text.split() if self._symbol_ids else []
        if typed is not None:
            return None if typed[0] in self._leading and text.startswith(typed[0]) else typed[0]
        return next((word for word in takewhile(SYMBOL.fullmatch, words) if word not in self._ids), None)

    def needs_language(self, text: str = "") -> bool:
        """Whether a model of several target languages is not told by the text, nor otherwise, which one to write."""
        return len(self._leading) > 1 and not self.language and not text.startswith(tuple(self._leading))

    def is_symbol(self, id: int) -> bool:
        """Whether a token is a symbol or tag, which stands alone in a text."""
        return self.pieces[id] in self._symbol_ids or self.pieces[id] in self._leading

    def cut(self, surface: str, amount: float, draws: Random) -> list[int]:
        """The ids of a random segmentation of a text whose spaces are written ▁."""
        ids: list[int] = []
        for piece in self.sampler(amount).sample(surface, draws):
            piece_ids = self.ids_of(piece)
            ids += piece_ids if piece_ids != [UNK] or ids[-1:] != [UNK] else []  # a run of unknown letters is one token
        return ids

    def surface(self, ids: Sequence[int]) -> str:
        """The text of tokens that are not special, with spaces written ▁ and unknown tokens as "⁇"."""
        spelt = [UNKNOWN if id == UNK else self.pieces[id] for id in ids]
        return "".join(_letters_from_bytes(spelt, [self._bytes.get(id) for id in ids]))

    @cached_property
    def spellings(self) -> list[str]:
        """What every token writes, with spaces as ▁: nothing for special tokens and languages, NUL for a byte."""
        spelt = ["" if id in (PAD, BOS, EOS) else UNKNOWN if id == UNK else self.pieces[id] for id in range(self.size)]
        if self.kind == "word":
            spelt[SPECIALS:] = [SPACE + piece.removeprefix(SPACE) for piece in spelt[SPECIALS:]]
        for id in self._bytes:
            spelt[id] = "\0"
        for id in self._symbol_ids.values():
            spelt[id] = SPACE + self.pieces[id]
        for id in self._leading.values() if self.language else ():
            spelt[id] = ""
        return spelt

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids up to the first EOS; unknown tokens become "⁇", and BOS, PAD and languages nothing."""
        left_out = {PAD, BOS, *(self._leading.values() if self.language else ())}
        kept = [id for id in takewhile(lambda id: id != EOS, map(int, ids)) if id not in left_out]
        if kept and not 0 <= min(kept) <= max(kept) < self.size:
            raise ArgumentError(f"ids must lie between 0 and {self.size - 1}, but run from {min(kept)} to {max(kept)}")
        if not self._symbol_ids:
            return self._decode_text(kept)
        texts: list[str] = []
        for is_symbol, ids in groupby(kept, key=lambda id: self.pieces[id] in self._symbol_ids):
            group = list(ids)
            texts += [self.pieces[id] for id in group] if is_symbol else [self._decode_text(group)]
        return " ".join(texts)

    def _decode_text(self, ids: list[int]) -> str:
        if self.kind == "word":
            text = " ".join(UNKNOWN if id == UNK else self.pieces[id].removeprefix(SPACE) for id in ids)
        else:
            text = (self._processor.decode(ids) if ids else "").replace(UNUSED_MARK, "")
        if self._trims:  # sentencepiece keeps the space of a first piece that texts are not cut into
            text = text.strip(" ")
        return self.normaliser.restore(text.replace(HIDDEN, SPACE))

    def pieces_with_offsets(self, text: str) -> list[Piece]:
        """The pieces of `encode` (without BOS and EOS), each with its span of `text`.

        The bytes of a character written in bytes all stand for that character; so do the letters of a syllable.
        """
        pieces: list[Piece] = []
        for part in self._parts(text):
            start = part.start
            if part.id is not None:
                pieces.append(Piece(self.pieces[part.id], start, start + len(part.text), part.id))
                continue
            part_pieces = self._sentencepiece_offsets(part.text) if self._normalises else self._text_offsets(part.text)
            pieces += [Piece(piece, start + first, start + after, id) for piece, first, after, id in part_pieces]
        return pieces

    def _parts(self, text: str) -> Iterator[TextSegment]:
        """The text cut at its symbols; it may begin with a tag of an imported model, such as >>kor<<."""
        start, leading = 0, LEADING_TAG.match(text) if self._leading else None
        if leading and leading[0] in self._leading:
            start = leading.end()
            yield TextSegment(leading[0], 0, self._leading[leading[0]])
        elif self.language_ids:
            yield TextSegment("", 0, self.language_ids[0])
        yield from split_symbols(text, self._symbol_ids, start)

    def _text_offsets(self, text: str) -> list[Piece]:
        normalised, starts, ends = self.normaliser.trace(text)
        pieces, position = [], -1  # one mark for a space comes before the text
        for surface in self._surfaces(_hidden(normalised)):
            first, last = position + surface.startswith(SPACE), position + len(surface)
            start = starts[first] if first < len(starts) else len(text)
            end = ends[last - 1] if first < last else start
            pieces += [Piece(name, start, end, id) for name, id in self._named_ids_of(surface)]
            position = last
        return pieces

    def _sentencepiece_offsets(self, text: str) -> list[Piece]:
        normalised, starts, ends = self.normaliser.trace(text)
        pieces = []
        for id, first, after in self._cut_with_offsets(_hidden(normalised)):
            while first < after and normalised[first] == " ":
                first += 1
            begin = starts[first] if first < len(starts) else len(text)
            end = ends[after - 1] if first < after else begin
            pieces.append(Piece(self.pieces[id], begin, end, id))
        return pieces

    def _cut_with_offsets(self, text: str) -> Iterator[tuple[int, int, int]]:
        """The id of each piece, and the span [start, end) of the text that it stands for."""
        message = self._processor.encode(text, out_type="serialized_proto")
        pieces = [dict(fields_of(bytes(value))) for field, value in fields_of(message) if field == 2]
        letters, place = {0: 0}, 0  # by the byte where they begin: sentencepiece counts bytes
        for number, letter in enumerate(text, start=1):
            place += len(letter.encode())
            letters[place] = number
        for piece in pieces:  # fields of a piece: 2 its id, 4 and 5 its span; 0 is left out
            yield int(piece.get(2, 0)), letters[int(piece.get(4, 0))], letters[int(piece.get(5, 0))]

    def knows(self, piece: str) -> bool:
        """Whether a piece is in the vocabulary."""
        return piece in self._ids

    def are_pieces(self, ids: Iterable[int]) -> bool:
        """Whether all tokens stand for pieces of text, and none for an unknown letter or one of its bytes."""
        return not any(id == UNK or id in self._bytes for id in ids)

    @property
    def has_bytes(self) -> bool:
        """Whether unknown letters are written in bytes."""
        return bool(self._bytes)

    @property
    def splits_digits(self) -> bool:
        """Whether the model was trained to cut numbers into digits."""
        trainer = b"".join(bytes(value) for field, value in fields_of(self.model) if field == TRAINER)
        return bool(dict(fields_of(trainer)).get(SPLIT_DIGITS))

    def word_numbers(self, ids: Sequence[int] | Integer[np.ndarray, "*texts ids"]) -> Int[np.ndarray, "*texts ids"]:
        """For each id the number of the word it is part of; words are what single spaces divide in the normalised text.

        A space belongs to the word after it; BOS, EOS, PAD and the language belong to no word: -1.
        """
        array = np.asarray(ids, np.int64)
        words = np.maximum(np.cumsum(self._spaces[array], -1) - 1, 0)
        return np.where(np.isin(array, [BOS, EOS, PAD, *self.language_ids]), -1, words)

    @cached_property
    def _trims(self) -> bool:
        """Whether an imported model drops the spaces around a text, so that its outputs have none there either."""
        return self._normalises and self._processor.encode(" a ") == self._processor.encode("a")

    def _spaces_before(self) -> Int[np.ndarray, " pieces"]:
        """How many spaces each piece begins with; where pieces are words, one each."""
        count = [len(piece) - len(piece.lstrip(SPACE)) for piece in self.pieces]
        if self.kind == "word":
            count = [int(id >= SPECIALS or id == UNK) for id in range(self.size)]
        for id in (*self._symbol_ids.values(), *self._leading.values()):
            count[id] = int(id not in self.language_ids)
        return np.array(count, np.int64)

    def _surfaces(self, text: str) -> list[str]:
        """Cut the text, its spaces written ▁; joined, the surfaces are the text again with one ▁ before it."""
        if not text:
            return []
        if self.kind == "char":
            return list(_marked(text))
        if self.kind == "word":
            return WORDS.findall(_marked(text))
        surfaces: list[str] = self._processor.encode(text, out_type=str)
        if not self._bytes:
            return surfaces
        ids = self._processor.encode(text)
        return list(_letters_from_bytes(surfaces, [self._bytes.get(id) for id in ids]))

    def ids_of(self, surface: str) -> list[int]:
        """The ids of a piece, or of a letter, which may have no piece."""
        if surface in self._ids:
            return [self._ids[surface]]
        if not self._bytes:
            return [UNK]
        return [self._ids[f"<0x{byte:02X}>"] for byte in surface.encode()]

    def _named_ids_of(self, surface: str) -> list[tuple[str, int]]:
        ids = self.ids_of(surface)
        return [(surface.replace(HIDDEN, SPACE) if len(ids) == 1 else self.pieces[id], id) for id in ids]

    def _is_cut(self, id: int) -> bool:
        """Whether texts are cut into this piece, rather than spelt in bytes or never."""
        return id not in self._bytes and not self._processor.is_unused(id)

    def _scores(self) -> dict[str, float]:
        """The score of every piece that texts are cut into."""
        return {piece: self._processor.get_score(id) for piece, id in self._ids.items() if self._is_cut(id)}

    def sampler(self, amount: float) -> UnigramSampler | BpeSampler:
        """What draws the random cuts of `sample`."""
        if amount not in self._samplers:
            self._samplers[amount] = self._new_sampler(amount)
        return self._samplers[amount]

    def _new_sampler(self, amount: float) -> UnigramSampler | BpeSampler:
        if self.kind == "unigram":
            return UnigramSampler(self._scores(), temperature=amount)
        if self.kind == "bpe":
            return BpeSampler(self._scores(), dropout=amount)
        raise ArgumentError(f"only unigram and bpe tokenizers can sample, not {self.kind}")


def known_tags(tags: Sequence[str], noun: str = "tag") -> str:
    """The end of a message about an unknown tag or feature."""
    shown = ", ".join(tags[:SHOWN_TAGS]) + ", …" * (len(tags) > SHOWN_TAGS)
    return f"; its {noun}s are {shown}" if tags else ""


def _hidden(text: str) -> str:
    return text.replace(SPACE, HIDDEN)


def _marked(text: str) -> str:
    return SPACE + text.replace(" ", SPACE)


def _letters_from_bytes(surfaces: list[str], values: list[int | None]) -> Iterator[str]:
    """Join the surfaces that are single bytes (`values` not None) to the letters they spell."""
    spelling = bytearray()
    for surface, value in zip(surfaces, values, strict=True):
        if value is None:
            yield surface
            continue
        spelling.append(value)
        try:
            letter = spelling.decode()
        except UnicodeDecodeError:
            continue
        yield letter
        spelling.clear()
