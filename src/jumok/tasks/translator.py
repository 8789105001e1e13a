"""A trained translation model: the object behind the command line, evaluation and the server."""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, TypeVar

import torch

from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.model_map import map_of_translation
from jumok.data import BOS, EOS, PAD, pad
from jumok.data.tokenizer import Piece, Tokenizer
from jumok.decoding import DecodingConfig, Hypothesis, Node, Observer, Specials, Survivors, beam_search
from jumok.decoding.beam import nodes_of
from jumok.decoding.config import with_settings
from jumok.decoding.long_lines import Limits, split_text
from jumok.errors import ArgumentError, NoOutputError
from jumok.files import quoted

if TYPE_CHECKING:
    from jumok.models.encoder_decoder import Encoder
    from jumok.tasks.translation import Trained

WORD = re.compile(r"[^\W\d_]+")
SHORTEST = 3
"""Letters of a word that tells something: shorter ones are spelt by any vocabulary."""
SPELT = 0.6
"""Pieces to a letter from which on a word counts as spelt."""
LOOKED_AT = 2000
"""Characters of a text that are looked at, which tell enough."""
MANY = 0.5
"""The share of unknown words above which a text is foreign to a vocabulary."""
ALPHABETS = ("LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "GEORGIAN", "HEBREW", "ARABIC")
"""Scripts in which a single letter is not a word's usual piece, as a syllable of Hangul is."""


class Coverage(NamedTuple):
    """The words of a text that tell something, and those of them that the vocabulary does not know."""

    words: list[str]
    unknown: list[str]

    @property
    def is_foreign(self) -> bool:
        """Whether the vocabulary was learnt from other text."""
        return len(self.unknown) > MANY * len(self.words)


def coverage(text: str, tokenizer: Tokenizer) -> Coverage:
    """What a vocabulary knows of the words at the beginning of a text."""
    text = text[:LOOKED_AT]
    pieces = tokenizer.pieces_with_offsets(text)
    starts, ends = [piece.start for piece in pieces], [piece.end for piece in pieces]
    words, unknown = [], []
    for word in WORD.finditer(text):
        cut = pieces[bisect_right(ends, word.start()) : bisect_left(starts, word.end())]
        is_unknown = not all(tokenizer.knows(piece.piece) for piece in cut) or _is_spelt(word[0], cut, tokenizer)
        if is_unknown:
            unknown.append(word[0])
        if is_unknown or len(word[0]) >= SHORTEST:
            words.append(word[0])
    return Coverage(words, unknown)


def _is_spelt(word: str, cut: list[Piece], tokenizer: Tokenizer) -> bool:
    if tokenizer.kind not in ("unigram", "bpe") or len(word) < SHORTEST:
        return False
    return len(cut) >= SPELT * len(word) and unicodedata.name(word[0], "").startswith(ALPHABETS)


Kind = Literal["length", "words"]
SUBJECTS = {
    "cldr": "dates, times, durations, measures, amounts and names of countries and languages",
    "phrases": "dates, times, durations, measures, amounts and names of countries and languages",
    "dates": "dates",
    "reverse": "digits",
}
"""All that the built-in corpora speak of."""


def translation_warnings(trained: "Trained", parts: Sequence[str], longest: int) -> dict[Kind, str]:
    """What is to be said, by kind, of a text that was translated in these parts by a model trained on `longest`."""
    source = trained.tokenizers.source
    known = coverage(" ".join(parts), source)
    if known.is_foreign:  # which also makes it long: unknown words are spelt
        corpus = trained.recipe.data.corpus
        learnt = f"the model learnt nothing but {SUBJECTS[corpus]}" if corpus else "expect a guess"
        unknown = f"{len(known.unknown)} of {len(known.words)} words are unknown to the model"
        return {"words": f"{unknown}, such as {known.unknown[0][:30]!r}; {learnt}"}
    tokens = max(len(source.encode(part)) - 2 for part in parts)
    if tokens <= longest:
        return {}
    return {
        "length": f"a sentence of {tokens} tokens was translated whole, but the model was trained on at most {longest}"
        f"; --max-source {longest}, in Python max_source={longest}, has it translated in parts"
    }


Output = TypeVar("Output", bound=Any)
SPECIALS = Specials(pad=PAD, bos=BOS, eos=EOS)
STRETCH = 2
"""A single sentence stays whole up to this many times the length a model was trained on, if it has the positions."""

Watch = Callable[[int, int, list[Node]], None]
"""Called after every step of the search with the number of a text, of its part, and the hypotheses kept."""
Tell = Callable[[range, float], None]
"""Called while texts are translated at once with their numbers and the share of their tokens that is done."""
Check = Callable[[], None]
"""Called after every step of the search; the search stops where it raises."""


@dataclass(frozen=True, eq=False)
class Translation:
    """The translation of one text."""

    source: str
    text: str
    score: float
    """Log-probability over length to the length penalty; 0 for an empty text."""
    n_best: tuple["Translation", ...] = ()
    """The best translations, best first, where more than one was asked for."""
    pieces: tuple[tuple[str, tuple[int, ...]], ...] = field(default=(), repr=False)
    """The parts of the source and the token ids found for each; one part unless the source was too long."""
    translator: "Translator | None" = field(default=None, repr=False)

    def attention(self, *, words: bool = True) -> AttentionMap:
        """Where each word of the translation looked, or each token with `words=False`."""
        if len(self.pieces) > 1:
            raise ArgumentError(
                f"there is no one attention map: the text was translated in {len(self.pieces)} parts; "
                "attention_maps() gives one for each"
            )
        return self.attention_maps(words=words)[0]

    def attention_maps(self, *, words: bool = True) -> list[AttentionMap]:
        """The map of every part of the text; there is one part unless the text was too long."""
        if self.translator is None or not self.pieces:
            raise ArgumentError("there is no attention map of an empty text")
        model, _, tokenizers = self.translator.trained
        return [map_of_translation(model, tokenizers, source, ids, words=words) for source, ids in self.pieces]

    def warnings(self) -> dict[Kind, str]:
        """What makes the translation doubtful, by kind: the "length" of a sentence, or its "words"."""
        if self.translator is None or not self.pieces:
            return {}
        longest = self.translator.longest
        return translation_warnings(self.translator.trained, [source for source, _ in self.pieces], longest)


class Job(NamedTuple):
    """A part of a text, to be translated."""

    text: int
    number: int
    """Which part of the text it is."""
    part: str
    ids: list[int]


def longest_source(trained: "Trained") -> int:
    """Most tokens of a source text that a model was trained on, outliers aside."""
    seen = trained.recipe.decoding.max_source or trained.recipe.filter.max_length
    limit = positions(trained.model.encoder)
    return seen if limit is None else min(seen, limit)


def positions(encoder: "Encoder") -> int | None:
    """The number of tokens of a text that an encoder has positions for; None if any number."""
    return None if encoder.limit is None else encoder.limit - 1  # the end of the text takes one


class Translator:
    """Translates texts with one loaded model: batches of like length, outputs in the order of the inputs."""

    def __init__(self, trained: "Trained", *, batch_tokens: int = 4096) -> None:
        self.trained, self.batch_tokens = trained, batch_tokens
        self.trained.model.eval()

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "auto") -> "Translator":
        """Load a model folder, onto a GPU if there is one."""
        from jumok.tasks import TRANSLATION, load  # which use this class

        translator: Translator = load(folder, device=device, task=TRANSLATION)
        return translator

    @property
    def longest(self) -> int:
        """Most tokens of a source text that the model was trained on, outliers aside."""
        return longest_source(self.trained)

    def limits(self, max_source: int | None = None) -> Limits:
        """Where texts are cut: at `max_source` tokens if given, else at `longest`, but sentences stay whole a while."""
        if not max_source:
            most = STRETCH * self.longest
            return Limits(self.longest, most if self._positions is None else min(most, self._positions))
        if self._positions is not None and max_source > self._positions:
            raise ArgumentError(
                f"max_source = {max_source}, but the encoder has learnt positions for {self._positions} tokens only; "
                "give a smaller number"
            )
        return Limits(max_source, max_source)

    @property
    def _positions(self) -> int | None:
        return positions(self.trained.model.encoder)

    def translate(
        self,
        texts: Iterable[str],
        *,
        n_best: int = 1,
        split: bool = True,
        first: int = 1,
        watch: Watch | None = None,
        tell: Tell | None = None,
        check: Check | None = None,
        **settings: Any,
    ) -> list[Translation]:
        """The translation of every text, in their order; `settings` are those of DecodingConfig, such as beam=5.

        Settings that are not given, or None, are those of the recipe; the beam is at least `n_best` wide. An empty text
        stays empty. A text longer than the model ever saw (or than `max_source` tokens) is translated in parts, or
        refused with `split=False`; see `limits`. Messages count texts from `first`. `watch` sees every step of the
        search; `tell` is called with the progress after every batch; `check` is called after every step, and stops the
        search by raising an error.
        """
        texts = list(_checked(texts))
        config = self._config(n_best, **settings)
        limits = self.limits(settings.get("max_source"))
        jobs = [job for number, text in enumerate(texts) for job in self._jobs(number, text, limits, split, first)]
        found: list[list[Hypothesis]] = [[] for _ in jobs]
        numbers, tokens, done = range(first, first + len(texts)), sum(len(job.ids) for job in jobs), 0
        for batch in self._batches(jobs, config.beam):
            searched = self._search([jobs[number] for number in batch], config, watch, check)
            for number, hypotheses in zip(batch, searched, strict=True):
                found[number] = hypotheses or _refuse(jobs[number].text + first, config)
            done += sum(len(jobs[number].ids) for number in batch)
            if tell is not None:
                tell(numbers, done / tokens)
        of_text: list[list[int]] = [[] for _ in texts]
        for number, job in enumerate(jobs):
            of_text[job.text].append(number)
        return [
            self._translation(text, [(jobs[at].part, found[at]) for at in its_own], n_best)
            for text, its_own in zip(texts, of_text, strict=True)
        ]

    def stream(self, texts: Iterable[str], *, chunk: int = 1024, **settings: Any) -> Iterator[Translation]:
        """Like `translate` for any number of texts, `chunk` at a time, each given back as soon as its chunk is done."""
        return self.stream_groups(_groups(texts, chunk), **settings)

    def stream_groups(
        self, groups: Iterable[Sequence[str]], *, tell: Tell | None = None, **settings: Any
    ) -> Iterator[Translation]:
        """The same for texts that come in groups, each translated before the next is asked for."""
        self._config(**{"n_best": 1, **settings})  # what is wrong is said before the first text is waited for
        first = 1
        for group in groups:
            yield from self.translate(group, first=first, tell=tell, **settings)
            first += len(group)

    def attention(self, source: str, target: str, *, words: bool = True, max_source: int | None = None) -> AttentionMap:
        """The attention map of a given translation `target` of `source`."""
        source, target = _checked([source, target])
        ids = self.trained.tokenizers.target.encode(target)[1:-1]
        if not self._tokens(source) or not ids:
            raise ArgumentError("there is no attention map of an empty text")
        self.check_source(source, max_source)
        self.check_target(ids)
        return map_of_translation(self.trained.model, self.trained.tokenizers, source, ids, words=words)

    def check_source(self, text: str, max_source: int | None = None) -> None:
        """Refuse a text that is too long to be read at once."""
        tokens, most = self._tokens(text), self.limits(max_source).sentence
        if tokens > most:
            raise ArgumentError(
                f"the text has {tokens} tokens, more than the {most} the model reads at once; "
                "ask for a shorter part of it, or raise --max-source (in Python max_source)"
            )

    def check_target(self, ids: Sequence[int]) -> None:
        """Refuse a target longer than the model ever writes one."""
        limit, longest = self.trained.model.decoder.limit, self.trained.recipe.decoding.max_length
        most = longest if limit is None else min(longest, limit - 1)
        if len(ids) > most:
            raise ArgumentError(
                f"the target has {len(ids)} tokens, more than the {most} the model writes at most; give a shorter one"
            )

    def _config(self, n_best: int, split: bool = True, **settings: Any) -> DecodingConfig:
        return with_settings(self.trained.recipe.decoding, n_best, **settings)

    def _jobs(self, number: int, text: str, limits: Limits, split: bool, first: int) -> Iterator[Job]:
        parts = self.parts(text, limits)
        if len(parts) > 1 and not split:
            raise ArgumentError(
                f"text {number + first} has {self._tokens(text)} tokens, more than the {limits.part} the model was "
                f"trained on: {text[:40]!r}…; shorten it, raise --max-source (in Python max_source), or have it "
                "translated in parts, as `jumok translate` does without --no-split"
            )
        for at, part in enumerate(parts):
            yield Job(number, at, part, self.trained.tokenizers.source.encode(part)[1:])

    def parts(self, text: str, limits: Limits | None = None) -> list[str]:
        """The parts of a text that are translated at once, in order; parts of spaces only are left out."""
        if not text.strip():
            return []
        pieces = split_text(text, limits or self.limits(), self._tokens)
        return [part for part in pieces if part.strip() and self._tokens(part)]

    def _tokens(self, text: str) -> int:
        return len(self.trained.tokenizers.source.encode(text)) - 2  # without where it begins and ends

    def _batches(self, jobs: Sequence[Job], beam: int) -> Iterator[list[int]]:
        """Numbers of jobs of like length, as many as the token budget allows with every hypothesis counted."""
        batch: list[int] = []
        for number in sorted(range(len(jobs)), key=lambda at: -len(jobs[at].ids)):
            if batch and (len(batch) + 1) * len(jobs[batch[0]].ids) * beam > self.batch_tokens * 5:
                yield batch
                batch = []
            batch.append(number)
        if batch:
            yield batch

    @torch.no_grad()
    def _search(
        self, jobs: Sequence[Job], config: DecodingConfig, watch: Watch | None, check: Check | None
    ) -> list[list[Hypothesis]]:
        model = self.trained.model
        device = next(model.parameters()).device
        source, visible = (tensor.to(device) for tensor in pad([job.ids for job in jobs]))
        observe = _observer(jobs, watch, check)
        return beam_search(model.decoder, model.encoder(source, visible), SPECIALS, config, observe)

    def _translation(self, text: str, parts: list[tuple[str, list[Hypothesis]]], n_best: int) -> Translation:
        if not parts:
            return Translation(text, "", 0.0, translator=self)
        if len(parts) > 1:
            best = [(part, hypotheses[0]) for part, hypotheses in parts]
            return self._joined(text, best)
        ((part, hypotheses),) = parts
        return best_of((self._joined(text, [(part, hypothesis)]) for hypothesis in hypotheses), n_best)

    def _joined(self, text: str, parts: list[tuple[str, Hypothesis]]) -> Translation:
        decode = self.trained.tokenizers.target.decode
        words = " ".join(decode(hypothesis.ids) for _, hypothesis in parts)
        score = sum(hypothesis.score for _, hypothesis in parts) / len(parts)
        pieces = tuple((part, tuple(hypothesis.ids)) for part, hypothesis in parts)
        return Translation(text, words, score, pieces=pieces, translator=self)


def join_parts(text: str, parts: Sequence[Translation]) -> Translation:
    """The translation of a text from those of its parts; a single part also gives its n-best list."""
    if len(parts) == 1:
        (whole,) = parts
        return replace(whole, source=text, n_best=tuple(replace(best, source=text) for best in whole.n_best))
    return Translation(
        text,
        " ".join(part.text for part in parts),
        sum(part.score for part in parts) / len(parts),
        pieces=tuple(piece for part in parts for piece in part.pieces),
        translator=parts[0].translator,
    )


def best_of(found: Iterable[Output], n_best: int) -> Output:
    """The first of some translations or captions, best first; where more are asked for, it holds those that differ."""
    ranked: dict[str, Output] = {}
    for one in found:
        ranked.setdefault(one.text, one)  # the same words can be cut into tokens in several ways
    best = tuple(ranked.values())[:n_best]
    return replace(best[0], n_best=best) if n_best > 1 else best[0]


def _checked(texts: Any) -> Iterator[str]:
    """Texts out of whatever was given for them."""
    if isinstance(texts, str | bytes):
        raise ArgumentError(f"texts must be a list of texts, but it is one: {quoted(texts)}; write [{quoted(texts)}]")
    if not isinstance(texts, Iterable):
        raise ArgumentError(f"texts must be a list of texts, but it is {type(texts).__name__}: {quoted(texts)}")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ArgumentError(f"texts[{number}] must be a text, but it is {type(text).__name__}: {quoted(text)}")
        yield text


def _groups(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    if size < 1:
        raise ArgumentError(f"chunk = {size} texts at a time must be at least 1")
    texts = _checked(texts)
    while group := list(islice(texts, size)):
        yield group


def _observer(jobs: Sequence[Job], watch: Watch | None, check: Check | None) -> Observer | None:
    if watch is None and check is None:
        return None

    def observe(survivors: Survivors) -> None:
        if check is not None:
            check()
        if watch is not None:
            for sentence, nodes in nodes_of(survivors):
                watch(jobs[sentence].text, jobs[sentence].number, nodes)

    return observe


def _refuse(number: int, config: DecodingConfig) -> NoReturn:
    if not config.min_length and not config.no_repeat:
        raise NoOutputError(
            f"the model gives text {number} no output with a finite score: its weights are far too large or not "
            "finite; train it again with a lower training.learning_rate"
        )
    raise ArgumentError(
        f"there is no output for text {number} that has decoding.min_length = {config.min_length} tokens or more "
        f"and keeps to decoding.no_repeat = {config.no_repeat}; lower one of them"
    )
