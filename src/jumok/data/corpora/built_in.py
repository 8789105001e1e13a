"""Corpora that need no file: one value rendered in two languages by Babel's CLDR, dates in ISO form, digits reversed.

Pair number n is a pure function of (seed, split, n), the number of pairs is unlimited, and the source determines the
target. The hash of a value decides whether it belongs to train, valid or test, so no two splits share one.
"""

import re
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from functools import lru_cache
from hashlib import blake2b
from random import Random
from typing import get_args

from babel import Locale
from babel.numbers import get_currency_precision

from jumok.data.corpora.cldr import SECONDS, Value, find_locale, render, write_date, write_unit
from jumok.data.corpora.phrases import CLOSED, draw_phrase
from jumok.data.pairs import Corpus, Pair, Split
from jumok.errors import ArgumentError

KINDS = ("date", "datetime", "duration", "relative", "unit", "amount", "countries", "languages")
NAMES = {
    "countries": "AR AU BR CA CL EG FR DE GR IN IT JP KE KR MX NL NO PE PL ES SE TH TR VN",
    "languages": "ar zh nl en fr de el hi it ja ko pl pt ru es sv th tr",
    "amount": "USD EUR KRW JPY GBP CHF INR",
    "unit": "length-kilometer length-meter length-centimeter length-mile area-square-meter volume-liter mass-kilogram "
    "mass-gram temperature-celsius speed-kilometer-per-hour power-watt digital-gigabyte",
    "date": "full long yMMMEd yMd medium",
}
SHORT = 0.6
"""Share of short values in the corpus `phrases`."""
DURATIONS = (("day", "hour"), ("hour", "minute"), ("minute", "second"))
SAMPLE, MAX_EXAMPLE = 200, 50
"""Test pairs that examples are chosen from, and characters of an example."""
NUMBER, WORD, LIST = re.compile(r"\d+"), re.compile(r"[^\W\d]+(?: [^\W\d]+)*"), re.compile(r"(a, ?)+")


def corpus_pairs(
    corpus: Corpus,
    count: int,
    *,
    split: Split = "train",
    seed: int = 0,
    source: str = "en",
    target: str = "ko",
    longest: int = 12,
) -> Iterator[Pair]:
    """The first `count` pairs of a built-in corpus; `source` and `target` are locales such as "en" or "pt_BR".

    cldr renders a value in both locales; phrases does so too, with many short ones such as "Monday" or "5 kg"; dates
    turns a date of the source locale into ISO 8601; reverse reverses up to `longest` digits.
    """
    values = corpus_values(corpus, count, split=split, seed=seed, source=source, target=target, longest=longest)
    return (pair for _, pair in values)


def corpus_values(
    corpus: Corpus, count: int, *, split: Split, seed: int = 0, source: str, target: str, longest: int
) -> Iterator[tuple[Value, Pair]]:
    """The same pairs, each with the value it renders."""
    if corpus not in get_args(Corpus):
        raise ArgumentError(f"there is no built-in corpus {corpus!r}; there are {', '.join(get_args(Corpus))}")
    draw, write = _maker(corpus, source, target, longest)
    for n in range(count):
        value = _draw_in_split(draw, split, f"{corpus}/{seed}/{split}/{n}")
        yield value, write(value)


def example_texts(
    corpus: Corpus, count: int, *, locales: tuple[str, str] = ("en", "ko"), longest: int = 12
) -> list[str]:
    """Short test sentences: one of every kind of value in the corpus, then others of different patterns."""
    source, target = locales
    values = corpus_values(corpus, SAMPLE, split="test", source=source, target=target, longest=longest)
    short = [(value.kind, pair.source) for value, pair in values if len(pair.source) < MAX_EXAMPLE]
    of_kinds = dict(reversed(short)).values()  # the first of each kind
    of_patterns = {_pattern(text): text for _, text in reversed(short)}.values()
    return list(dict.fromkeys([*of_kinds, *of_patterns]))[:count]


def _pattern(text: str) -> str:
    """The sequence of words, numbers and punctuation of a text; all lists have the same pattern."""
    return LIST.sub("a, ", WORD.sub("a", NUMBER.sub("0", text)))


def split_of(value: Value) -> Split:
    """Where a value belongs: one in twenty is for validation, one in twenty for the test.

    Days of the week, months and single names are not held out: there are few, and none follows from the others.
    """
    if value.kind in CLOSED and len(value.parts) == 1:
        return "train"
    digest = blake2b(repr((value.kind, value.parts)).encode(), digest_size=8).digest()
    return {0: "test", 1: "valid"}.get(int.from_bytes(digest) % 20, "train")  # type: ignore[return-value]


def _draw_in_split(draw: Callable[[Random], Value], split: Split, key: str) -> Value:
    draws = Random(key)
    while True:
        value = draw(draws)
        if split_of(value) == split:
            return value


def _maker(
    corpus: Corpus, source: str, target: str, longest: int
) -> tuple[Callable[[Random], Value], Callable[[Value], Pair]]:
    """How the corpus draws a value, and how it writes one as a pair."""
    if corpus == "reverse":
        return (lambda draws: _number(draws, longest)), (lambda value: Pair(value.parts[0], value.parts[0][::-1]))
    source_locale = find_locale(source)
    if corpus == "dates":
        styles = _date_styles(source_locale)
        return (lambda draws: _date(draws, styles)), (
            lambda value: Pair(render(value, source_locale), date(*value.parts).isoformat())
        )
    target_locale = find_locale(target)
    choices = _choices(source_locale, target_locale)

    def draw(draws: Random) -> Value:
        short = corpus == "phrases" and draws.random() < SHORT
        return draw_phrase(draws, source_locale, target_locale) if short else _anything(draws, choices)

    return draw, lambda value: Pair(render(value, source_locale), render(value, target_locale))


def _number(draws: Random, longest: int) -> Value:
    return Value("number", ("".join(draws.choice("0123456789") for _ in range(draws.randint(1, longest))),))


def _date(draws: Random, styles: list[str]) -> Value:
    day = date(1950, 1, 1) + timedelta(days=draws.randrange(36_525))  # to 2049: two digits of a year are enough
    return Value("date", (day.year, day.month, day.day), draws.choice(styles))


def _anything(draws: Random, choices: dict[str, list[str]]) -> Value:
    kind = draws.choice([kind for kind in KINDS if len(choices.get(kind, KINDS)) >= 4])
    number = draws.randrange(1, 10 ** draws.randint(1, 3))
    match kind:
        case "date":
            return _date(draws, choices[kind])
        case "datetime":
            return Value(kind, (*_date(draws, ["long"]).parts, draws.randrange(24), draws.randrange(60)))
        case "duration":
            return Value(kind, (draws.randrange(1, 60), draws.randrange(1, 60), *draws.choice(DURATIONS)))
        case "relative":
            return Value(kind, (draws.choice((-1, 1)) * draws.randrange(1, 100), draws.choice(list(SECONDS))))
        case "unit":
            return Value(kind, (number, draws.choice(choices[kind])))
        case "amount":
            currency = draws.choice(choices[kind])
            return Value(kind, (number * draws.choice((1, 100)), get_currency_precision(currency), currency))
        case _:
            return Value(kind, tuple(draws.sample(choices[kind], min(len(choices[kind]), draws.randint(2, 8)))))


def _date_styles(locale: Locale) -> list[str]:
    return ["full", "long", "medium", "short", *(s for s in ("yMMMEd", "yMMMd") if s in locale.datetime_skeletons)]


@lru_cache(maxsize=16)
def _choices(source: Locale, target: Locale) -> dict[str, list[str]]:
    """The names and styles both locales have, less those that would give one source two targets."""
    chosen: dict[str, list[str]] = {}
    targets: dict[str, str] = {}
    for kind, codes in NAMES.items():
        chosen[kind] = []
        for code in codes.split():
            probes = list(_probes(kind, code, source, target))
            if probes and all(targets.get(text, meaning) == meaning for text, meaning in probes):
                targets |= dict(probes)
                chosen[kind].append(code)
    return chosen


def _probes(kind: str, code: str, source: Locale, target: Locale) -> Iterator[tuple[str, str]]:
    """What a name or a style looks like in both locales; nothing where one of them does not have it."""
    both = (source, target)
    match kind:
        case "countries" | "languages":
            names = [(locale.territories if kind == "countries" else locale.languages).get(code) for locale in both]
        case "amount":
            names = [locale.currencies.get(code) for locale in both]
        case "unit":
            names = [write_unit(7, code, locale) for locale in both]
        case _:
            if code[0] != "y" or all(code in locale.datetime_skeletons for locale in both):
                for month in range(1, 13):  # in English, "May" is long and short at once
                    yield (
                        write_date(date(1988, month, 28), code, source),
                        write_date(date(1988, month, 28), code, target),
                    )
            return
    if all(names):
        yield str(names[0]), str(names[1])
