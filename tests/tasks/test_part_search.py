"""The batches of a translator whose finished parts make room for others in the middle of a search, as on a GPU."""

import pytest

from jumok.decoding import DecodingConfig, static_search
from jumok.tasks import TRANSLATION
from jumok.tasks.part_search import MOST_JOINED, PartSearch, joined_batches, part_batches
from jumok.tasks.required_text import SourcePart
from jumok.tasks.translator import Translator

TEXTS = ["12", "", "987654", "3", "   ", "00", "41414", "2718", "12", "55555555", "918273", "6", "1234567"] * 3


def parts_of(*lengths, constrained=()):
    return [
        SourcePart("", number, 0, [7] * length, prefix="so" if number in constrained else "")
        for number, length in enumerate(lengths)
    ]


@pytest.fixture
def refills(monkeypatch):
    """Searches run as on a GPU, and the host hears at once which sentences have finished."""
    monkeypatch.setattr(PartSearch, "_refills", True)
    monkeypatch.setattr("jumok.decoding.beam._is_static", lambda *_: True)


@pytest.fixture(params=["reverser", "transformer"])
def translator(request):
    return Translator(TRANSLATION.load(request.getfixturevalue(request.param), device="cpu").trained, batch_tokens=12)


def outcome(found):
    return [(each.text, pytest.approx(each.score, abs=1e-4)) for each in found]


def test_batches_are_joined_as_long_as_no_part_is_half_as_long_as_the_longest():
    parts = parts_of(3, 9, 10, 4, 8, 5, 6, 2)
    batches = list(part_batches(parts, 5, tokens=20))
    assert batches == [[2, 1], [4, 6], [5, 3, 0, 7]]
    assert list(joined_batches(parts, iter(batches))) == [([2, 1, 4, 6, 5, 3, 0, 7], 3)]
    parts = parts_of(3, 9, 10, 4, 8, 4, 6, 2)
    assert list(joined_batches(parts, part_batches(parts, 5, tokens=20))) == [([2, 1, 4, 6], 2), ([3, 5, 0, 7], 4)]
    assert list(joined_batches([], iter([]))) == []


def test_no_more_than_some_batches_are_joined_and_none_with_a_prefix():
    parts = parts_of(*[8] * (MOST_JOINED + 4), constrained=(2, 5))
    batches = list(joined_batches(parts, part_batches(parts, 5, tokens=8)))
    assert [rows for _, rows in batches] == [1] * len(batches)
    assert [len(batch) for batch, _ in batches] == [MOST_JOINED, 2, 1, 1]
    assert [batch for batch, _ in batches[2:]] == [[2], [5]]


@pytest.mark.parametrize("settings", [{}, {"beam": 1}, {"n_best": 3}, {"mbr": True}, {"min_length": 3}], ids=str)
def test_translations_are_the_same_when_batches_are_searched_as_one(translator, monkeypatch, request, settings):
    expected = translator.translate(TEXTS, engine="jumok", **settings)
    request.getfixturevalue("refills")
    puts, put = [], static_search.StaticSearch.put
    monkeypatch.setattr(static_search.StaticSearch, "put", lambda self, *rest: puts.append(1) or put(self, *rest))
    assert outcome(translator.translate(TEXTS, engine="jumok", **settings)) == outcome(expected)
    assert puts


def test_progress_is_reported_after_every_search_and_a_search_can_be_stopped(translator, refills):
    heard, checks = [], []
    translator.translate(TEXTS, engine="jumok", tell=lambda _, share: heard.append(share))
    assert len(heard) > 1
    assert heard == sorted(set(heard))
    assert heard[-1] == 1.0

    def check():
        checks.append(1)
        if len(checks) == 20:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        translator.translate(TEXTS, engine="jumok", check=check)


def test_batches_stay_apart_where_every_step_is_watched_or_outputs_are_drawn(translator, refills):
    parts, config = parts_of(5, 5, 5, 5), DecodingConfig(beam=5)
    batches = translator.search.batches
    assert list(batches(parts, config, None, tokens=10)) == [([0, 1, 2, 3], 2)]
    apart = [([0, 1], 2), ([2, 3], 2)]
    assert list(batches(parts, config, lambda *_: None, tokens=10)) == apart
    assert list(batches(parts, DecodingConfig(samples=5), None, tokens=10)) == apart
