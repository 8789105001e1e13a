"""Prefixes, terms and alternatives over the REST interface are those of the translator."""

import pytest

from jumok.model_folder import BUNDLED
from support.serving import events, serving

FRIDAY = "Friday, December 23, 1988"


@pytest.fixture(scope="module")
def dates():
    with serving({"en-ko": BUNDLED}) as running:
        yield running


@pytest.fixture(scope="module")
def translator(dates):
    return dates.service.models["en-ko"].generator


def test_translations_begin_with_the_prefix(dates, translator):
    asked = {"text": [FRIDAY, "May 5, 2001"], "prefix": "1988년 12월 23일 오", "n_best": 2, "beam": 4}
    answers = dates.post("/api/translate", asked).json["translations"]
    expected = translator.translate(asked["text"], prefix=asked["prefix"], n_best=2, beam=4)
    assert [one["text"] for one in answers] == [one.text for one in expected]
    assert all(one["text"].startswith("1988년 12월 23일 오") for answer in answers for one in answer["n_best"])


def test_translations_contain_the_terms(dates, translator):
    asked = {"text": FRIDAY, "terms": {"Friday": "(금)", "Monday": "(월)"}}
    (answer,) = dates.post("/api/translate", asked).json["translations"]
    (expected,) = translator.translate([FRIDAY], terms=asked["terms"])
    assert answer["text"] == expected.text
    assert "(금)" in answer["text"]


def test_a_term_that_the_vocabulary_cannot_write_is_a_warning(dates):
    (answer,) = dates.post("/api/translate", {"text": FRIDAY, "terms": {"Friday": "金曜日"}}).json["translations"]
    assert [one["kind"] for one in answer["warnings"]] == ["terms"]


def test_the_stream_and_the_tree_are_those_of_the_same_search(dates):
    asked = {"text": FRIDAY, "prefix": "1988년 12월 23일 오"}
    (answer,) = dates.post("/api/translate", asked).json["translations"]
    *partial, (name, done) = events(dates.post("/api/stream", asked).text)
    assert (name, done["text"]) == ("done", answer["text"])
    assert partial
    steps = dates.post("/api/beam", asked).json["steps"]
    (best,) = [node for step in steps for node in step if node["rank"] == 0]
    assert best["text"] == answer["text"]


def test_only_the_first_part_of_a_long_text_begins_with_the_prefix(dates):
    asked = {"text": "May 5, 2001. " * 12, "prefix": "5월"}
    (answer,) = dates.post("/api/translate", asked).json["translations"]
    first, *others = (piece["text"] for piece in answer["pieces"])
    assert others
    assert first.startswith("5월")
    assert not all(text.startswith("5월") for text in others)


def test_alternatives_are_those_of_the_translator(dates, translator):
    asked = {"text": FRIDAY, "prefix": "1988년 12월 23일 ", "count": 3, "beam": 2}
    answer = dates.post("/api/alternatives", asked).json
    expected = translator.alternatives(FRIDAY, asked["prefix"], count=3, beam=2)
    assert (answer["model"], answer["prefix"]) == ("en-ko", "1988년 12월 23일")
    assert [one["text"] for one in answer["alternatives"]] == [one.text for one in expected]
    assert answer["alternatives"][0]["word"] == "금요일"
    ids = answer["alternatives"][0]["ids"]
    shown = dates.post("/api/attention", {"text": FRIDAY, "target_ids": ids}).json
    assert shown["text"] == answer["alternatives"][0]["text"]


@pytest.mark.parametrize(
    ("path", "fields", "named"),
    [
        ("translate", {"prefix": "x" * 1001}, "1000"),
        ("translate", {"terms": {"Friday": "가" * 1001}}, "1000"),
        ("translate", {"terms": {"Friday": ""}}, "Friday"),
        ("translate", {"terms": {"friday": "금", "Friday": "토"}}, "twice"),
        ("translate", {"terms": {f"term {number}": "x" for number in range(1001)}}, "terms"),
        ("translate", {"terms": ["Friday"]}, "terms"),
        ("translate", {"prefix": "漢字"}, "漢字"),
        ("alternatives", {"count": 0}, "count"),
        ("alternatives", {"count": 99}, "count = 99"),
        ("alternatives", {"prefix": 3}, "prefix"),
        ("alternatives", {"text": ""}, "empty"),
        ("alternatives", {"text": "May 5, 2001. " * 12}, "parts"),
    ],
)
def test_wrong_requirements_are_refused_in_one_line(dates, path, fields, named):
    answer = dates.post(f"/api/{path}", {"text": FRIDAY, **fields})
    assert answer.status == 422
    assert named in answer.json["error"]
    assert "\n" not in answer.json["error"]
