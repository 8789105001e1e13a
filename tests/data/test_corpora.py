from datetime import date, timedelta
from itertools import islice

import pytest

from jumok.data import corpus_pairs
from jumok.data.corpora import built_in as corpora
from jumok.data.corpora.built_in import corpus_values, split_of
from jumok.data.corpora.cldr import Value, find_locale, render
from jumok.data.corpora.phrases import CLOSED, forms_of

EN_KO = {"source": "en", "target": "ko", "longest": 12}
LOCALES = [("en", "ko"), ("ko", "en"), ("zh", "en"), ("fa", "de"), ("ja", "fr"), ("ar", "ru"), ("pt_BR", "th")]


def test_pairs_are_real_sentences_of_both_languages():
    known = {
        Value("date", (1988, 12, 23), "full"): ("Friday, December 23, 1988", "1988년 12월 23일 금요일"),
        Value("datetime", (1988, 12, 23, 15, 5)): ("December 23, 1988, 3:05 PM", "1988년 12월 23일 오후 3:05"),
        Value("duration", (2, 30, "hour", "minute")): ("2 hours, 30 minutes", "2시간 30분"),
        Value("relative", (-5, "hour")): ("5 hours ago", "5시간 전"),
        Value("relative", (1, "month")): ("in 1 month", "1개월 후"),
        Value("unit", (7, "speed-kilometer-per-hour")): ("7 kilometers per hour", "시속 7킬로미터"),
        Value("amount", (123450, 2, "USD")): ("1,234.50 US dollars", "1,234.50 미국 달러"),
        Value("countries", ("FR", "KR", "IT")): ("France, South Korea, and Italy", "프랑스, 대한민국 및 이탈리아"),
    }
    for value, (english, korean) in known.items():
        assert render(value, find_locale("en")) == english
        assert render(value, find_locale("ko")) == korean


@pytest.mark.parametrize("corpus", ["cldr", "phrases", "dates", "reverse"])
def test_pair_n_depends_on_seed_split_and_n_alone(corpus):
    first = list(corpus_pairs(corpus, 50))
    assert list(islice(corpus_pairs(corpus, 500), 50)) == first
    assert list(corpus_pairs(corpus, 50, seed=1)) != first
    assert list(corpus_pairs(corpus, 50, split="valid")) != first


@pytest.mark.slow
@pytest.mark.parametrize("corpus", ["cldr", "phrases", "dates", "reverse"])
def test_splits_share_no_source(corpus):
    train, valid, test = (
        {pair.source for pair in corpus_pairs(corpus, 600, split=split)} for split in corpora.get_args(corpora.Split)
    )
    assert not train & valid
    assert not train & test
    assert not valid & test


def test_a_date_stays_in_its_split_whatever_its_style():
    assert len({split_of(Value("date", (1988, 5, 3), style)) for style in ("full", "long", "yMd")}) == 1


@pytest.mark.parametrize(("source", "target"), LOCALES)
def test_one_source_has_one_target(source, target):
    here, there = find_locale(source), find_locale(target)
    targets = {}
    for style in corpora._choices(here, there)["date"]:
        for day in range(0, 730):
            at = date(1988, 1, 1) + timedelta(days=day)
            value = Value("date", (at.year, at.month, at.day), style)
            written = render(value, there)
            assert targets.setdefault(render(value, here), written) == written
    for pair in corpus_pairs("cldr", 1500, source=source, target=target):
        assert targets.setdefault(pair.source, pair.target) == pair.target


@pytest.mark.parametrize("locale", ["en", "ko", "de", "ja", "hi"])
def test_a_date_of_any_locale_and_style_has_one_iso_form(locale):
    targets = {}
    for pair in corpus_pairs("dates", 2000, source=locale):
        assert date.fromisoformat(pair.target)
        assert targets.setdefault(pair.source, pair.target) == pair.target


@pytest.mark.parametrize(("source", "target"), LOCALES)
def test_one_short_source_has_one_target_and_is_never_empty(source, target):
    targets = {}
    for pair in corpus_pairs("phrases", 1500, source=source, target=target):
        assert pair.source
        assert pair.target
        assert targets.setdefault(pair.source, pair.target) == pair.target


def test_phrases_hold_what_people_type_first():
    known = {
        Value("weekday", (1,), "wide"): ("Monday", "월요일"),
        Value("month", (5,), "short"): ("May", "5월"),
        Value("month", (1988, 12), "yMMMM"): ("December 1988", "1988년 12월"),
        Value("day", (2001, 5, 5), "MMMMd"): ("May 5", "5월 5일"),
        Value("day", (2002, 12, 20), "MMMMEEEEd"): ("Friday, December 20", "12월 20일 금요일"),
        Value("time", (10, 30), "hm"): ("10:30 AM", "오전 10:30"),
        Value("time", (15, 0), "h"): ("3 PM", "오후 3시"),
        Value("unit", (3, "duration-hour")): ("3 hours", "3시간"),
        Value("unit", (3, "duration-hour"), "words"): ("three hours", "3시간"),
        Value("unit", (2.5, "mass-kilogram"), "short"): ("2.5 kg", "2.5kg"),
        Value("relative", (-2, "day"), "words"): ("two days ago", "2일 전"),
        Value("amount", (350, 2, "USD"), "symbol"): ("$3.50", "US$3.50"),
        Value("amount", (300, 2, "USD"), "whole"): ("3 US dollars", "3 미국 달러"),
        Value("countries", ("KR",), "other"): ("Korea", "대한민국"),
        Value("languages", ("ko",)): ("Korean", "한국어"),
        Value("near", (1,)): ("yesterday", "어제"),
    }
    english, korean = find_locale("en"), find_locale("ko")
    assert {value: (render(value, english), render(value, korean)) for value in known} == known
    forms = {form for of_kind in forms_of(english, korean).values() for form in of_kind}
    assert {(value.kind, value.style) for value in known if len(value.parts) == 1} <= {
        (form.kind, form.style) for form in forms
    }


@pytest.mark.slow
def test_days_months_and_single_names_are_all_learned_and_none_is_held_out():
    train = {pair.source for pair in corpus_pairs("phrases", 8000)}
    assert {"Monday", "Sunday", "May", "December", "yesterday", "Korea", "Korean"} <= train
    held_out = [value for value, _ in corpus_values("phrases", 1000, split="test", **EN_KO)]
    assert not [value for value in held_out if value.kind in CLOSED and len(value.parts) == 1]
    assert {"day", "time", "unit", "relative", "amount", "month"} <= {value.kind for value in held_out}


def test_a_weekday_without_a_year_names_one_value_only():
    values = {}
    for value, pair in corpus_values("phrases", 8000, split="train", **EN_KO):
        if value.kind == "day":
            assert values.setdefault(pair.source, value.parts) == value.parts


def test_reverse_reverses():
    for pair in corpus_pairs("reverse", 100, longest=5):
        assert pair.source.isdigit()
        assert 1 <= len(pair.source) <= 5
        assert pair.target == pair.source[::-1]


def test_all_kinds_of_values_come_up():
    texts = " ".join(pair.source for pair in corpus_pairs("cldr", 400))
    for part in ("AM", "ago", "in ", " and ", "liters", "Swiss francs", "Thursday", "minutes"):
        assert part in texts
