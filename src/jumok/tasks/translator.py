"""A trained translation model: the object behind the command line, evaluation and the server."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from jumok.analysis.maps.attention_map import AttentionMap, MapKind
from jumok.analysis.maps.model_map import map_of_translation
from jumok.analysis.scores.word_probabilities import OutputProbabilities, output_probabilities
from jumok.data import EOS, Pair, Tokenizer, TokenizerPair, pad
from jumok.data.terms import Terms, as_terms
from jumok.data.tokenizer import known_tags
from jumok.decoding import DecodingConfig, Hypothesis
from jumok.decoding.config import with_settings
from jumok.decoding.long_lines import PartLimits, split_text
from jumok.errors import ArgumentError, NoOutputError
from jumok.files import quoted
from jumok.models.encoder_decoder import EncoderDecoder, Encoding
from jumok.progress import TellProgress
from jumok.tasks.alternatives import MORE, NextWords, next_word
from jumok.tasks.cpu_engine import CpuEngines
from jumok.tasks.part_search import CheckCancelled, PartSearch, WatchSteps
from jumok.tasks.recipes import TranslationRecipe
from jumok.tasks.required_text import SourcePart
from jumok.tasks.text_generator import TextGenerator, best_outputs
from jumok.tasks.translated_text import TranslatedPart, Translation

STRETCH = 2
"""A single sentence is not split up to this many times the length a model was trained on, if it has the positions."""


class EncodedText(NamedTuple):
    """A text, or a part of one, and its source tokens with the end."""

    text: str
    ids: list[int]


class TrainedTranslator(NamedTuple):
    """A translation model and what is needed to use it."""

    model: EncoderDecoder
    recipe: TranslationRecipe
    tokenizers: TokenizerPair
    voters: "tuple[TrainedTranslator, ...]" = ()
    """Models that write the same texts in other tokens, and vote with this one."""

    @property
    def assets(self) -> TokenizerPair:
        """The tokenizers."""
        return self.tokenizers

    @property
    def positions(self) -> int | None:
        """The number of tokens of a text that the encoder has positions for; None if any number."""
        limit = self.model.encoder.limit
        return None if limit is None else limit - 1  # the end of the text takes one

    @property
    def longest_source(self) -> int:
        """Most tokens of a source text that the model was trained on, outliers aside."""
        limit = self.recipe.decoding.max_source or self.recipe.filter.max_length
        return limit if self.positions is None else min(limit, self.positions)

    @property
    def longest_sentence(self) -> int:
        """Most tokens of a single sentence that is translated whole."""
        most = STRETCH * self.longest_source
        return most if self.positions is None else min(most, self.positions)


class Translator(TextGenerator[TrainedTranslator]):
    """Translates texts with one model, in batches of similar length; outputs keep the order of the inputs."""

    reads = "text"

    def __init__(
        self, trained: TrainedTranslator, *, batch_tokens: int = 4096, folder: str | Path | None = None
    ) -> None:
        super().__init__(trained)
        self.batch_tokens = batch_tokens
        path = None if folder is None else Path(folder)
        self.engines = CpuEngines(trained.model, trained.tokenizers, trained.recipe, path)
        self.voters = [Translator(voter, batch_tokens=batch_tokens) for voter in trained.voters]
        searches = [voter.search for voter in self.voters]
        self.search: PartSearch = PartSearch(trained.model, trained.tokenizers, self.decoding, self.engines, searches)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the target."""
        return self.trained.tokenizers.target

    @property
    def longest(self) -> int:
        """Most tokens of a source text that the model was trained on, outliers aside."""
        return self.trained.longest_source

    def limits(self, max_source: int | None = None) -> PartLimits:
        """The most tokens of a part: `max_source`, or by default `longest`, with more for a single sentence."""
        positions = self.trained.positions
        if not max_source:
            return PartLimits(self.longest, self.trained.longest_sentence)
        if positions is not None and max_source > positions:
            raise ArgumentError(
                f"max_source = {max_source}, but the encoder has learned positions for {positions} tokens only; "
                "give a smaller number"
            )
        return PartLimits(max_source, max_source)

    def translate(
        self,
        texts: Iterable[str],
        *,
        n_best: int = 1,
        split: bool = True,
        first: int = 1,
        watch_steps: WatchSteps | None = None,
        tell: TellProgress | None = None,
        check: CheckCancelled | None = None,
        tag: str | None = None,
        prefix: str | Sequence[str] | None = None,
        terms: Mapping[str, str] | Terms | None = None,
        encoded: Sequence[Sequence[EncodedText]] | None = None,
        **settings: Any,
    ) -> list[Translation]:
        """The translation of every text, in their order; `settings` are those of DecodingConfig, such as beam=5.

        Settings that are not given, or None, are those of the recipe; the beam is at least `n_best` wide. An empty text
        stays empty. `tag`, one of `tags`, is put in front of every text. Every translation begins with `prefix`, or
        each with its own of a list, and contains the target term of every source term of `terms` that its text has,
        unless the vocabulary cannot write it: `Translation.warnings` names such terms. A text longer than the model
        ever saw (or than `max_source` tokens) is translated in parts, or refused with `split=False`; see `limits`.
        Messages count texts from `first`. `watch_steps` sees every step of the search; `tell` is called with the
        progress after every batch; `check` is called while it goes on, and stops the search by raising an error.
        `encoded` is what `parts` returned for every text with its tag, if that is known already; otherwise the texts
        are tokenised.
        """
        texts = list(_checked(texts))
        prefixes, terms = _prefixes(prefix, len(texts)), as_terms(terms)
        config = self._config(n_best, prefix=prefix, terms=terms, **settings)
        limits = self.limits(settings.get("max_source"))
        tagged = [self.tagged(text, tag) for text in texts]
        encoded = encoded or [self._encoded_parts(text, limits) for text in tagged]
        parts = [
            self.search.required.constrained(part, self.search.text_of(part), prefixes[number], terms, config)
            for number, text in enumerate(tagged)
            for part in self._source_parts(number, text, encoded[number], limits, split, first)
        ]
        candidates: list[list[Hypothesis]] = [[] for _ in parts]
        numbers, tokens, done = range(first, first + len(texts)), sum(len(part.ids) for part in parts), 0
        for batch, rows in self.search.batches(parts, config, watch_steps, tokens=self.batch_tokens):
            chosen = [parts[number] for number in batch]
            searched = self.search.candidates(chosen, config, n_best, watch_steps, check, first, rows)
            for number, hypotheses in zip(batch, searched, strict=True):
                candidates[number] = hypotheses or _refuse(parts[number].text_number + first, config)
            done += sum(len(parts[number].ids) for number in batch)
            if tell is not None:
                tell(numbers, done / tokens)
        of_text: list[list[tuple[SourcePart, list[Hypothesis]]]] = [[] for _ in texts]
        for part, hypotheses in zip(parts, candidates, strict=True):
            of_text[part.text_number].append((part, hypotheses))
        return [
            self._translation(text, its_parts, n_best, config) for text, its_parts in zip(texts, of_text, strict=True)
        ]

    def stream(self, texts: Iterable[str], *, chunk: int = 1024, **settings: Any) -> Iterator[Translation]:
        """Like `translate` for any number of texts, `chunk` at a time, and yields each as soon as it is done."""
        return self.stream_groups(_groups(texts, chunk), **settings)

    def stream_groups(
        self,
        groups: Iterable[Sequence[str]],
        *,
        tell: TellProgress | None = None,
        prefix: str | Sequence[str] | None = None,
        **settings: Any,
    ) -> Iterator[Translation]:
        """The same for texts that come in groups; each group is translated before the next one is read."""
        # wrong settings are refused before the first text is read
        self._config(**{"n_best": 1, "prefix": prefix, **settings})
        each = None if prefix is None or isinstance(prefix, str) else list(_checked(prefix, "prefix"))
        first = 1
        for group in groups:
            own = prefix if each is None else each[first - 1 : first - 1 + len(group)]
            yield from self.translate(group, first=first, tell=tell, prefix=own, **settings)
            first += len(group)

    def alternatives(
        self,
        text: str,
        prefix: str = "",
        *,
        count: int = 5,
        tag: str | None = None,
        check: CheckCancelled | None = None,
        **settings: Any,
    ) -> list[Translation]:
        """Up to `count` translations that begin with `prefix` and go on with different words, best first.

        A prefix that ends with a space, or is empty, is followed by new words; any other one is continued. `tag`,
        `check` and `settings` are those of `translate`. A text that would be translated in parts is refused.
        """
        texts = list(_checked([text, prefix]))
        if count < 1:
            raise ArgumentError(f"count = {count} alternatives must be at least 1")
        if self.tokenizer.letters is not self.tokenizer:
            raise ArgumentError("a transducer writes edits instead of words, so it has no alternatives for a word")
        config = self._config(1, tag=tag, prefix=prefix, **settings)
        source = self._only_part(texts[0], tag, settings.get("max_source"))._replace(prefix=prefix)
        self.search.required.patterns(source, config)  # which refuses a prefix that the model cannot write
        written = self.tokenizer.encode(prefix)[:-1]
        begun, after_space = self.tokenizer.decode(written), not prefix or prefix[-1].isspace()
        next_words, encoding = NextWords(self.tokenizer, after_space=after_space), self._encoding(source.ids)
        words = next_words.likeliest(self.trained.model.decoder, encoding, written, MORE * count)
        start = f"{begun} " if begun and after_space else begun
        starts = [start + word for word in words]
        encoded = [[EncodedText(source.text, source.ids)]] * len(words)
        continued = self.translate(
            [text] * len(words), prefix=starts, tag=tag, check=check, encoded=encoded, **settings
        )
        best = sorted(continued, key=lambda translation: -translation.score)
        return list({next_word(each.text, begun): each for each in reversed(best)}.values())[::-1][:count]

    def _only_part(self, text: str, tag: str | None, max_source: int | None) -> SourcePart:
        """A text that is translated in one part."""
        parts = self._encoded_parts(self.tagged(text, tag), self.limits(max_source))
        if len(parts) != 1:
            what = f"the text would be translated in {len(parts)} parts" if parts else "the text is empty"
            raise ArgumentError(f"there are no alternatives, because {what}; give one sentence")
        return SourcePart(parts[0].text, 0, 0, parts[0].ids)

    @property
    def tags(self) -> list[str]:
        """The tags of languages or domains that the model knows."""
        return self.trained.tokenizers.tags

    def tagged(self, text: str, tag: str | None) -> str:
        """The text with a tag in front, which may be named without its brackets; an empty text stays empty."""
        named = "" if tag is None else self.tag_named(tag)
        return f"{named} {text}" if named and text.strip() else text

    def tag_named(self, tag: str) -> str:
        """The tag with its brackets; an ArgumentError if the model does not have it."""
        tokenizer = self.trained.tokenizers.source
        names = {*self.tags, *tokenizer.symbols.all}
        known = next((name for name in (tag, f"<{tag}>", f">>{tag}<<") if name in names), None)
        if known is None:
            chosen = "; --from and --to choose its languages" if tag in tokenizer.languages else ""
            known_ones = known_tags(self.tags or tokenizer.symbols.features)
            unknown = f"no tag {quoted(tag)}" if names or chosen else "no tags"
            raise ArgumentError(f"the model has {unknown}{chosen or known_ones}")
        return known

    def attention(
        self,
        source: str,
        target: str,
        *,
        words: bool | None = None,
        kind: MapKind = "cross",
        max_source: int | None = None,
        tag: str | None = None,
    ) -> AttentionMap:
        """The map of a given translation `target` of `source`; `words` and `kind` as in `Translation.attention`."""
        source, target = _checked([source, target])
        source = self.tagged(source, tag)
        source_ids, target_ids = self.trained.tokenizers.encode(Pair(source, target))
        ids = target_ids[1:-1]
        if not self.tokenizer.written(ids)[0]:
            raise ArgumentError("there is no attention map of an empty text")
        self._check_size(len(source_ids) - 2, max_source)
        self.check_target(ids)
        return self.map_of(source, ids, words=words, kind=kind)

    def size(self, source: str) -> int:
        """The number of tokens of a text."""
        return len(self.trained.tokenizers.source.encode(source)) - 2  # without its beginning and end

    def check_source(self, source: str) -> None:
        """Raise an ArgumentError for an empty text, and for one that the model does not read at once."""
        self._check_size(self.size(source))

    def _check_size(self, tokens: int, max_source: int | None = None) -> None:
        most = self.limits(max_source).sentence
        if not tokens:
            raise ArgumentError("there is no attention map of an empty text")
        if tokens > most:
            raise ArgumentError(
                f"the text has {tokens} tokens, more than the {most} the model reads at once; "
                "ask for a shorter part of it, or raise --max-source (in Python max_source)"
            )

    def map_of(
        self, source: str, ids: Sequence[int], *, words: bool | None = None, kind: MapKind = "cross"
    ) -> AttentionMap:
        """The attention of the model while it writes the given tokens; `words` as in `Translation.attention`."""
        words = not self.is_character_level if words is None else words
        return map_of_translation(self.trained.model, self.trained.tokenizers, source, ids, words=words, kind=kind)

    @torch.no_grad()
    def probabilities_of(self, source: str, ids: Sequence[int]) -> OutputProbabilities:
        """The probability of every word and token of an output, and of its end."""
        encoding = self._encoding(self.trained.tokenizers.source.encode(source)[1:])
        return output_probabilities(self.trained.model.decoder, encoding, ids, self.tokenizer)

    @torch.no_grad()
    def _encoding(self, ids: Sequence[int]) -> Encoding:
        """The encoding of one source, given by its tokens with the end."""
        source, visible = (tensor.to(self.device) for tensor in pad([ids]))
        encoding: Encoding = self.trained.model.encoder(source, visible)
        return encoding

    @property
    def is_character_level(self) -> bool:
        """Whether a side is cut into letters."""
        return self.trained.tokenizers.is_character_level

    def smallest_source(self) -> tuple[Tensor, Tensor]:
        """A source of one token, the end of a text."""
        ids = torch.tensor([[EOS]], device=self.device)
        return ids, torch.ones_like(ids, dtype=torch.bool)

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """By the locales of a built-in corpus, the names of the files, or the languages chosen."""
        source, target = self.trained.tokenizers
        if target.language:
            return source.language, target.language
        if source.language:
            return None, source.language
        return self.trained.recipe.data.languages

    @property
    def language_choices(self) -> tuple[list[str], list[str]]:
        """The languages of source and target to choose from, with `between`."""
        return self.trained.tokenizers.language_choices

    def between(self, source: str | None = None, target: str | None = None) -> "Translator":
        """A translator between two languages of the same multilingual model."""
        if source is None and target is None:
            return self
        voters = tuple(voter.between(source, target).trained for voter in self.voters)
        trained = self.trained._replace(tokenizers=self.trained.tokenizers.between(source, target), voters=voters)
        return Translator(trained, batch_tokens=self.batch_tokens, folder=self.engines.folder)

    @property
    def decoding(self) -> DecodingConfig:
        """The model's own settings of beam search and sampling."""
        return self.trained.recipe.decoding

    @property
    def corpus(self) -> str:
        """The built-in corpus that the model was trained on, "" for other data."""
        return self.trained.recipe.data.corpus

    def examples(self, count: int) -> list[str]:
        """Short test sentences of the built-in corpus that the model was trained on."""
        return self.trained.recipe.data.examples(count)

    def _config(
        self,
        n_best: int,
        split: bool = True,
        tag: str | None = None,
        prefix: str | Sequence[str] | None = None,
        terms: Mapping[str, str] | Terms | None = None,
        **settings: Any,
    ) -> DecodingConfig:
        self.tagged("", tag)
        config = with_settings(self.decoding, n_best, **settings)
        terms = as_terms(terms)
        if config.engine == "ctranslate2" and (terms or prefix):
            raise ArgumentError(
                'engine = "ctranslate2", but prefixes and terms need jumok\'s own search; use engine = "auto"'
            )
        if terms and config.samples:
            raise ArgumentError("terms need beam search, but outputs are sampled; leave out `samples=` or `terms=`")
        if self.voters and (config.samples or config.mbr):
            raise ArgumentError(
                "these models write in different tokens and vote on what beam search finds; leave out `samples=` "
                "and `mbr=`, or use models with the same vocabulary"
            )
        return config

    def _source_parts(
        self, number: int, text: str, parts: Sequence[EncodedText], limits: PartLimits, split: bool, first: int
    ) -> Iterator[SourcePart]:
        if len(parts) > 1 and not split:
            raise ArgumentError(
                f"text {number + first} has {self.size(text)} tokens, more than the {limits.part} the model was "
                f"trained on: {text[:40]!r}…; shorten it, raise --max-source (in Python max_source), or have it "
                "translated in parts, as `jumok translate` does without --no-split"
            )
        for part_number, (part, ids) in enumerate(parts):
            yield SourcePart(part, number, part_number, ids)

    def encode(self, text: str) -> EncodedText:
        """A text with its tokens."""
        return EncodedText(text, self.trained.tokenizers.source.encode(text)[1:])

    def parts(self, text: EncodedText) -> list[EncodedText]:
        """The parts of a text that are translated at once, in order; a text that is short enough is its own part.

        Parts of spaces only are left out. Every part begins with the tags and other symbols that the text begins with.
        """
        return self._encoded_parts(text.text, self.limits(), text)

    def _encoded_parts(self, text: str, limits: PartLimits, known: EncodedText | None = None) -> list[EncodedText]:
        """The parts; `known` is the whole text with its tokens, if it has been tokenised."""
        if not text.strip():
            return []
        first = self.trained.tokenizers.source.leading_symbols(text)

        @cache
        def encode(part: str) -> EncodedText:
            return known if known is not None and part == text[len(first) :] else self.encode(first + part)

        pieces = split_text(text[len(first) :], limits, lambda part: len(encode(part).ids) - 1)
        parts = [encode(part) for part in pieces if part.strip()]
        return [part for part in parts if len(part.ids) > len(encode("").ids)]

    def _translation(
        self, text: str, parts: list[tuple[SourcePart, list[Hypothesis]]], n_best: int, config: DecodingConfig
    ) -> Translation:
        """The translation joined from those of its parts; of several parts there is one, or as many as were drawn."""
        if not parts:
            return Translation(text, "", 0.0, translator=self)
        texts, hypotheses = zip(*parts, strict=True)
        joined = [
            self._joined(text, list(zip(texts, of_parts, strict=True))) for of_parts in zip(*hypotheses, strict=False)
        ]
        if config.samples and not config.mbr:  # what is drawn twice is likely, and counts twice
            return replace(joined[0], n_best=tuple(joined[:n_best])) if n_best > 1 else joined[0]
        return joined[0] if len(parts) > 1 else best_outputs(joined, n_best)

    def _joined(self, text: str, parts: list[tuple[SourcePart, Hypothesis]]) -> Translation:
        decode = self.tokenizer.decode
        words = " ".join(decode(hypothesis.ids) for _, hypothesis in parts)
        score = sum(hypothesis.score for _, hypothesis in parts) / len(parts)
        expected = [hypothesis.expected_chrf for _, hypothesis in parts if hypothesis.expected_chrf is not None]
        pieces = tuple(
            TranslatedPart(part.text, tuple(output.ids), tuple(part.ids[:-1]), part.left_out) for part, output in parts
        )
        chrf = sum(expected) / len(expected) if expected else None
        return Translation(text, words, score, chrf, pieces=pieces, translator=self)


def _checked(texts: Any, name: str = "texts") -> Iterator[str]:
    """The texts, each checked to be one."""
    if isinstance(texts, str | bytes):
        raise ArgumentError(f"{name} must be a list of texts, but it is one: {quoted(texts)}; write [{quoted(texts)}]")
    if not isinstance(texts, Iterable):
        raise ArgumentError(f"{name} must be a list of texts, but it is {type(texts).__name__}: {quoted(texts)}")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ArgumentError(f"{name}[{number}] must be a text, but it is {type(text).__name__}: {quoted(text)}")
        yield text


def _prefixes(prefix: Any, texts: int) -> list[str]:
    """The prefix of every text."""
    if prefix is None or isinstance(prefix, str):
        return [prefix or ""] * texts
    prefixes = list(_checked(prefix, "prefix"))
    if len(prefixes) != texts:
        raise ArgumentError(f"prefix has {len(prefixes)} texts for {texts}; give one for all, or one for each")
    return prefixes


def _groups(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    if size < 1:
        raise ArgumentError(f"chunk = {size} texts at a time must be at least 1")
    texts = _checked(texts)
    while group := list(islice(texts, size)):
        yield group


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
