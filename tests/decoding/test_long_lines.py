"""A text too long for a model is cut, never dropped."""

from hypothesis import given
from hypothesis import strategies as st

from jumok.decoding.long_lines import PartLimits, split_text


def words(text: str) -> int:
    return len(text.split())


def test_a_short_text_stays_whole():
    assert split_text("One. Two.", PartLimits(5, 5), words) == ["One. Two."]


def test_sentences_stay_whole_and_together_where_they_fit():
    text = "One two three. Four five! 여섯 일곱 여덟? Nine ten."
    assert split_text(text, PartLimits(5, 5), words) == ["One two three. Four five! ", "여섯 일곱 여덟? Nine ten."]


def test_a_sentence_too_long_by_itself_is_cut_at_spaces():
    assert split_text("a b c d e f g.", PartLimits(3, 6), words) == ["a b c ", "d e f ", "g."]


def test_a_word_too_long_by_itself_is_cut_anywhere():
    assert split_text("가나다라마바사아", PartLimits(3, 3), len) == ["가나", "다라", "마바", "사아"]


def test_a_single_sentence_stays_whole_up_to_its_own_limit():
    assert split_text("a b c d e f.", PartLimits(3, 6), words) == ["a b c d e f."]
    assert split_text("a b c d. e f", PartLimits(3, 6), words) == ["a b c d. ", "e f"]


@given(st.text(alphabet="ab .!?다。", max_size=60), st.integers(1, 10), st.integers(0, 10))
def test_nothing_is_lost_and_every_piece_fits(text, limit, more):
    pieces = split_text(text, PartLimits(limit, limit + more), len)
    assert "".join(pieces) == text
    assert all(len(piece) <= limit + more for piece in pieces) or len(text) <= limit
