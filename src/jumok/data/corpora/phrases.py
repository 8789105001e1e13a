"""Short values for the built-in corpus `phrases`: days, months, times, measures, prices and single names.

A form is one way to write one kind of value, such as a day with its short month. A form whose texts another form
already uses for something else is left out, so that every source has one target.
"""

from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from functools import lru_cache
from random import Random
from typing import Any, NamedTuple

from babel import Locale
from babel.numbers import get_currency_precision

from jumok.data.corpora.cldr import NEAR, NUMBER_WORDS, OTHER_NAMES, PERIODS, SECONDS, Value, render

YEARS = (2001, 2002, 2003, 2005, 2006, 2009, 2010)
"""In these a day of the year is once a Monday, once a Tuesday, and so on: such a text belongs to one of them only."""
STYLES = {
    "weekday": "wide short",
    "month": "wide short",
    "month of a year": "yMMMM yMMM yM",
    "day": "MMMMd MMMd Md MMMMEEEEd MMMEd",
    "time": "hm h Hm",
}
UNITS = {
    "duration": "second minute hour day week month year",
    "length": "kilometer meter centimeter millimeter mile foot inch",
    "area": "square-meter",
    "volume": "liter milliliter",
    "mass": "kilogram gram pound",
    "temperature": "celsius fahrenheit",
    "speed": "kilometer-per-hour",
    "power": "watt",
    "digital": "gigabyte megabyte",
    "concentr": "percent",
}
CURRENCIES = "USD EUR KRW JPY GBP CHF INR"
COUNTRIES = (
    "KR US GB JP CN DE FR IT ES CA AU BR IN RU MX AR AT BE BG CH CL CO CU CZ DK EG ET FI GR HK HU ID IE IL IQ IR IS "
    "JO KE KP KZ LB LV MA MN MY NG NL NO NP NZ PE PH PK PL PT RO SA SE SG TH TR TW TZ UA UY UZ VN ZA"
)
LANGUAGES = (
    "ko en ja zh de fr it es pt ru ar nl el hi pl sv th tr vi id cs da fi hu he fa uk ro bg mn bn ta la sw no ms"
)
CLOSED = ("weekday", "month", "near", "countries", "languages")
"""Kinds whose values are a short list, all of which must be in the training data."""


class Form(NamedTuple):
    """One way to write one kind of value; `code` is a unit or a currency."""

    kind: str
    style: str = ""
    code: str = ""


def draw_phrase(draws: Random, source: Locale, target: Locale) -> Value:
    """A short value both languages have words for."""
    forms = forms_of(source, target)
    form = draws.choice(forms[draws.choice(list(forms))])
    return _value(form, _draw_parts(draws, form, _names(form.kind, source, target)))


@lru_cache(maxsize=16)
def forms_of(source: Locale, target: Locale) -> dict[str, list[Form]]:
    """By kind, the forms both languages have, less those that would give one source two targets."""
    chosen: dict[str, list[Form]] = {}
    targets: dict[str, str] = {}
    for form in _all_forms(source):
        values = [_value(form, parts) for parts in _probes(form, _names(form.kind, source, target))]
        pairs = [(_written(value, source), _written(value, target)) for value in values]
        known = all(all(pair) for pair in pairs)
        if pairs and known and all(targets.setdefault(text, other) == other for text, other in pairs):
            chosen.setdefault(form.kind, []).append(form)
    return chosen


def _all_forms(source: Locale) -> Iterator[Form]:
    words = ["words"] if source.language in NUMBER_WORDS else []
    for kind, styles in STYLES.items():
        yield from (Form(kind, style) for style in styles.split())
    for group, units in UNITS.items():
        for unit in units.split():
            written = ["", "short", *(words if group == "duration" else [])]
            yield from (Form("unit", style, f"{group}-{unit}") for style in written)
    yield from (Form("relative", style, unit) for style in ["", *words] for unit in SECONDS)
    yield from (Form("amount", style, code) for style in ("symbol", "whole") for code in CURRENCIES.split())
    yield from (Form(kind) for kind in ("number", "near", "countries", "languages"))
    if source.language in OTHER_NAMES:
        yield Form("countries", "other")


def _value(form: Form, parts: tuple[Any, ...]) -> Value:
    return Value("month" if form.kind == "month of a year" else form.kind, parts, form.style)


def _written(value: Value, locale: Locale) -> str:
    """The text of a form; "" if the language does not have it."""
    try:
        return render(value, locale)
    except KeyError:
        return ""


@lru_cache(maxsize=64)
def _names(kind: str, source: Locale, target: Locale) -> tuple[str, ...]:
    """The countries or languages that both have a name for, each of its own."""
    codes = {"countries": COUNTRIES, "languages": LANGUAGES}.get(kind, "").split()
    by_name: dict[str, str] = {}
    for code in codes:
        names = [render(Value(kind, (code,)), locale) for locale in (source, target)]
        if all(names) and names[0] not in by_name:
            by_name[names[0]] = code
    return tuple(by_name.values())


def _probes(form: Form, names: tuple[str, ...]) -> Iterable[tuple[Any, ...]]:
    """Values that tell the form from others."""
    match form.kind:
        case "weekday":
            return [(day,) for day in range(1, 8)]
        case "month":
            return [(month,) for month in range(1, 13)]
        case "month of a year":
            return [(year, month) for year in (1988, 2007) for month in range(1, 13)]
        case "day":
            return [(2001, month, day) for month in range(1, 13) for day in (3, 7, 28)]
        case "time":
            return [(hour, 0) for hour in range(24)]
        case "relative":
            return [(number, form.code) for number in (1, 7, -1, -7)]
        case "unit":
            return [(number, form.code) for number in (1, 7)]
        case "amount":
            return [(7 * 10 ** get_currency_precision(form.code), get_currency_precision(form.code), form.code)]
        case "near":
            return [(place,) for place in range(len(NEAR["en"].split()) + len(PERIODS["en"].split(",")))]
        case "number":
            return [(number,) for number in (1, 7, 1988)]
    return [(code,) for code in _named(form, names)]


def _named(form: Form, names: tuple[str, ...]) -> list[str]:
    """The codes a form of names is about."""
    return [code for code in names if form.style != "other" or code in OTHER_NAMES["en"]]


def _draw_parts(draws: Random, form: Form, names: tuple[str, ...]) -> tuple[Any, ...]:
    number = draws.randrange(1, 10 ** draws.randint(1, 3))
    small = draws.randint(1, len(NUMBER_WORDS["en"].split()))
    match form.kind:
        case "month of a year":
            return draws.randrange(1950, 2050), draws.randint(1, 12)
        case "day":
            year = draws.choice(YEARS) if "E" in form.style else YEARS[0]
            day = date(year, 1, 1) + timedelta(days=draws.randrange(365))
            return day.year, day.month, day.day
        case "time":
            return draws.randrange(24), 0 if form.style == "h" else draws.randrange(60)
        case "relative":
            away = small if form.style == "words" else draws.randrange(1, 100)
            return draws.choice((-1, 1)) * away, form.code
        case "unit":
            tenths = number + draws.randrange(1, 10) / 10
            return small if form.style == "words" else draws.choice((number, number, number, tenths)), form.code
        case "amount":
            precision = get_currency_precision(form.code)
            cents = 10**precision if form.style == "whole" else draws.choice((1, 10**precision))
            return number * draws.choice((1, 1, 100)) * cents, precision, form.code
        case "number":
            return (draws.randrange(10 ** draws.randint(1, 5)),)
        case "countries" | "languages":
            known = _named(form, names)
            return tuple(draws.sample(known, min(len(known), draws.choice((1, 1, 2, 3)))))
    return draws.choice(list(_probes(form, names)))
