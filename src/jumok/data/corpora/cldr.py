"""A value, such as a date or an amount, written the way a language writes it, by Babel's CLDR."""

from datetime import date, time, timedelta
from typing import Any, Literal, NamedTuple

from babel import Locale, UnknownLocaleError
from babel.dates import (
    format_date,
    format_skeleton,
    format_time,
    format_timedelta,
    get_datetime_format,
    get_time_format,
)
from babel.lists import format_list
from babel.numbers import format_currency, format_decimal
from babel.units import format_unit

from jumok.errors import ArgumentError

SECONDS = {"minute": 60, "hour": 3600, "day": 86_400, "week": 604_800, "month": 2_592_000, "year": 31_536_000}
NUMBER_WORDS = {"en": "one two three four five six seven eight nine ten eleven twelve"}
"""Numbers as people write them before a unit of time, where CLDR has digits."""
OTHER_NAMES = {"en": {"KR": "Korea", "US": "USA", "GB": "UK"}}
"""What people call a country, where CLDR has a longer name."""
NEAR = {
    "en": "now yesterday today tomorrow",
    "ko": "지금 어제 오늘 내일",
}
"""CLDR has words for these moments, Babel does not."""
PERIODS = {
    "en": "last week,this week,next week,last month,this month,next month,last year,this year,next year",
    "ko": "지난주,이번 주,다음 주,지난달,이번 달,다음 달,작년,올해,내년",
}


class Value(NamedTuple):
    """What a pair is about, whatever the language; `style` (such as a long or short date) is not part of it."""

    kind: str
    parts: tuple[Any, ...]
    style: str = ""


def find_locale(name: str) -> Locale:
    """The language called en, ko, de or pt_BR."""
    try:
        return Locale.parse(name.replace("-", "_"))
    except (UnknownLocaleError, ValueError):
        raise ArgumentError(f"CLDR has no locale {name!r}; write it like en, ko, de or pt_BR") from None


def render(value: Value, locale: Locale) -> str:
    """Write a value the way `locale` writes it, with plain spaces; "" where it has no words for it."""
    parts, style = value.parts, value.style
    match value.kind:
        case "date":
            text = write_date(date(*parts), style, locale)
        case "day" | "month" | "weekday":
            text = _write_part_of_date(value.kind, parts, style, locale)
        case "datetime":
            text = _write_datetime(date(*parts[:3]), time(*parts[3:]), locale)
        case "time":
            text = _write_time(time(*parts), style, locale)
        case "duration":
            units = [write_unit(parts[index], f"duration-{parts[index + 2]}", locale) for index in (0, 1)]
            text = format_list(units, style="unit", locale=locale)
        case "relative":
            text = _write_relative(parts[0], parts[1], style, locale)
        case "unit":
            text = _in_words(write_unit(parts[0], parts[1], locale, style), parts[0], style, locale)
        case "amount":
            text = _write_amount(parts[0] / 10 ** parts[1], parts[2], style, locale)
        case "number":
            text = format_decimal(parts[0], locale=locale)
        case "near":
            text = [*NEAR[locale.language].split(), *PERIODS[locale.language].split(",")][parts[0]]
        case kind:
            names = [_name(code, kind, style, locale) for code in parts]
            text = format_list(names, locale=locale)
    return _plain(text)


def write_date(day: date, style: str, locale: Locale) -> str:
    """full, long, medium, short, or one of CLDR's skeletons, such as yMMMEd."""
    if style in ("full", "long", "medium", "short"):
        return format_date(day, style, locale=locale)
    return format_skeleton(style, day, locale=locale)


def write_unit(number: float, unit: str, locale: Locale, length: str = "long") -> str:
    """ "" where CLDR has no words for the unit; where it has only short ones, those serve as long."""
    lengths: tuple[Literal["long", "short"], ...] = ("short",) if length == "short" else ("long", "short")
    written = (format_unit(number, unit, style, locale=locale) for style in lengths)
    return next((text for text in written if unit not in text), "")


def _write_part_of_date(kind: str, parts: tuple[int, ...], style: str, locale: Locale) -> str:
    """A day without its year, a month with or without one, a day of the week (1 is Monday)."""
    match kind:
        case "weekday":
            return format_date(date(2001, 1, parts[0]), "EEEE" if style == "wide" else "EEE", locale)
        case "month" if len(parts) == 1:
            return format_date(date(2001, parts[0], 1), "LLLL" if style == "wide" else "LLL", locale)
        case "month":
            return format_skeleton(style, date(parts[0], parts[1], 1), locale=locale)
    if style != "MMMMEEEEd":
        return format_skeleton(style, date(*parts), locale=locale)
    known = locale.datetime_skeletons
    pattern = str(known["MMMEEEEd"].pattern if "MMMEEEEd" in known else known["MMMEd"].pattern.replace("E", "EEEE"))
    return format_date(date(*parts), pattern.replace("MMM", "MMMM"), locale)


def _write_datetime(day: date, hour: time, locale: Locale) -> str:
    clock = str(get_time_format("short", locale=locale).pattern).replace("a", "aaaa")  # 오후, not PM
    frame = str(get_datetime_format("long", locale=locale)).replace("'", "")
    return frame.replace("{1}", format_date(day, "long", locale)).replace(
        "{0}", format_time(hour, clock, locale=locale)
    )


def _write_time(hour: time, style: str, locale: Locale) -> str:
    return format_time(hour, str(locale.datetime_skeletons[style].pattern).replace("a", "aaaa"), locale=locale)


def _write_relative(number: int, unit: str, style: str, locale: Locale) -> str:
    away = timedelta(seconds=number * SECONDS[unit])
    text = format_timedelta(away, granularity=unit, threshold=1e9, add_direction=True, locale=locale)  # type: ignore[arg-type]
    return _in_words(text, abs(number), style, locale)


def _in_words(text: str, number: float, style: str, locale: Locale) -> str:
    """ "2 days ago" as "two days ago", if that is the style and the language has the word."""
    if style != "words" or locale.language not in NUMBER_WORDS:
        return text
    return text.replace(str(number), NUMBER_WORDS[locale.language].split()[int(number) - 1])


def _write_amount(amount: float, currency: str, style: str, locale: Locale) -> str:
    match style:
        case "symbol":
            return format_currency(amount, currency, locale=locale)
        case "whole":
            return format_currency(amount, currency, format_type="name", currency_digits=False, locale=locale)
    return format_currency(amount, currency, format_type="name", locale=locale)


def _name(code: str, kind: str, style: str, locale: Locale) -> str:
    names = locale.territories if kind == "countries" else locale.languages
    other = OTHER_NAMES.get(locale.language, {}) if style == "other" else {}
    return other.get(code) or names.get(code, "")


def _plain(text: str) -> str:
    """One kind of space, and no invisible marks of direction."""
    return " ".join("".join(letter for letter in text if letter not in "\u200e\u200f\u061c").split())
