"""The tiny model that comes with the package."""

from dataclasses import replace

import pytest

from jumok.data import corpus_pairs
from jumok.model_folder import BUNDLED
from jumok.tasks import TRANSLATION, read_recipe
from support.commands import well


def test_the_bundled_model_is_small_enough_to_ship():
    assert sum(path.stat().st_size for path in BUNDLED.iterdir()) <= 1.5e6


def test_the_bundled_model_was_trained_by_the_committed_recipe():
    saved, committed = read_recipe(BUNDLED / "recipe.toml"), read_recipe("recipes/bundled-en-ko.toml")
    longest = saved.decoding.max_source  # which training finds out
    assert saved == replace(committed, decoding=replace(committed.decoding, max_source=longest))


@pytest.mark.slow
def test_the_bundled_model_translates_values_it_never_saw():
    pairs = list(corpus_pairs("phrases", 200, split="test"))
    found = TRANSLATION.load(BUNDLED, device="cpu").translate([pair.source for pair in pairs])
    right = sum(one.text == pair.target for one, pair in zip(found, pairs, strict=True))
    assert right >= 0.95 * len(pairs)


def test_the_bundled_model_translates_the_short_texts_that_people_type_first():
    known = {
        "3 hours": "3시간",
        "Monday": "월요일",
        "May": "5월",
        "May 5": "5월 5일",
        "10:30 AM": "오전 10:30",
        "Korea": "대한민국",
        "Korean": "한국어",
        "two days ago": "2일 전",
        "yesterday": "어제",
        "70 kg": "70kg",
        "$5.00": "US$5.00",
        "50%": "50%",
    }
    found = TRANSLATION.load(BUNDLED, device="cpu").translate(known)
    assert {one.source: one.text for one in found} == known


def test_its_attention_crosses_as_dates_do():
    shown = TRANSLATION.load(BUNDLED, device="cpu").translate(["Friday, December 23, 1988"])[0].attention()
    weights = shown.weights[-1].mean(0)
    looked = {target: shown.source[int(row.argmax())] for target, row in zip(shown.target, weights, strict=True)}
    assert looked["1988년"] == "1988"
    assert looked["23일"] == "23,"
    assert looked["금요일"] == "Friday,"


def test_translate_and_look_use_it_when_no_model_is_named():
    found = well("translate", stdin="Friday, December 23, 1988\n")
    assert found.out == "1988년 12월 23일 금요일\n"
    assert "comes with jumok" in found.err
    shown = well("look", "3 hours, 25 minutes")
    assert shown.out.startswith("3시간 25분\n")
    assert "25분" in shown.out.splitlines()[3]


def test_look_reads_its_text_from_standard_input_with_and_without_a_model():
    for model in ([], [str(BUNDLED)]):
        assert well("look", *model, stdin="March 3, 2001\n").out.startswith("2001년 3월 3일\n")
