import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jumok.data import Normaliser

FORMS = ["none", "nfc", "nfkc", "nfd", "jamo"]
TRICKY = st.text(st.sampled_from("가각각한 e\u0301\u0327é\u0344ⓐＡΣßİ﷐  \t\u00a0ﬁ〜が\u3099か")) | st.text()


def test_jamo_splits_hangul_only_and_is_joined_again():
    jamo = Normaliser(form="jamo")
    assert jamo("한 \u00e9") == "\u1112\u1161\u11ab \u00e9"
    assert jamo.restore(jamo("한국어 é")) == "한국어 é"


@given(TRICKY)
def test_restoring_jamo_gives_the_composed_text(text):
    jamo = Normaliser(form="jamo", spaces="keep")
    plain = Normaliser(form="nfc", spaces="keep")
    assert jamo.restore(jamo(text)) == plain(text)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("lowercase", [False, True])
@given(text=TRICKY)
def test_tracing_gives_the_normalised_text_with_ordered_origins(form, lowercase, text):
    for spaces in ("keep", "collapse"):
        normaliser = Normaliser(form=form, spaces=spaces, lowercase=lowercase)
        traced = normaliser.trace(text)
        assert traced.text == normaliser(text)
        assert traced.starts == sorted(traced.starts)
        assert all(0 <= start < end <= len(text) for start, end in zip(traced.starts, traced.ends, strict=True))


def test_each_letter_of_a_syllable_comes_from_that_syllable():
    traced = Normaliser(form="jamo").trace(" 한  글")
    assert (traced.starts, traced.ends) == ([1, 1, 1, 2, 4, 4, 4], [2, 2, 2, 3, 5, 5, 5])


@given(TRICKY)
def test_collapsed_text_has_single_spaces_and_no_control_characters(text):
    for form in FORMS:
        normal = Normaliser(form=form)(text)
        assert "  " not in normal
        assert normal == normal.strip(" ")
        assert not any(unicodedata.category(letter) == "Cc" for letter in normal)


@given(TRICKY)
def test_normalising_twice_changes_nothing(text):
    for form in FORMS:
        normaliser = Normaliser(form=form)
        assert normaliser(normaliser(text)) == normaliser(text)


def test_a_text_is_rewritten_as_a_model_would_write_it():
    decomposed = unicodedata.normalize("NFD", "한국어 É")
    assert Normaliser(form="nfc").rewritten(decomposed) == "한국어 É"
    assert Normaliser(form="jamo", lowercase=True).rewritten(decomposed) == "한국어 é"
