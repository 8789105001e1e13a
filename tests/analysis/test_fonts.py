"""Fonts are found by the letters they have, and where none has them, what to install is said."""

import subprocess
import sys

import pytest

pytest.importorskip("matplotlib")

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font

from jumok.analysis.fonts import fonts_for, letters_of
from jumok.errors import FontError

DEJAVU = ["DejaVu Sans"]


def found_or_skipped(text: str) -> list[str]:
    try:
        return fonts_for([text])
    except FontError as error:
        pytest.skip(str(error))


def test_latin_is_drawn_by_the_font_that_comes_with_matplotlib():
    assert fonts_for(["Friday, December 23", "straße", ""]) == DEJAVU


def test_every_letter_is_in_one_of_the_fonts_found():
    text = "Friday 금요일 뷁"
    families = found_or_skipped(text)
    for letter in text.replace(" ", ""):
        fonts = [FT2Font(font_manager.findfont(family)) for family in families]
        assert any(font.get_char_index(ord(letter)) for font in fonts), letter


def test_one_font_for_everything_is_preferred_to_several():
    assert len(found_or_skipped("1988년 12월")) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("금요일", r"no installed font can draw 금 요 일 \(Hangul\); install .* apt install fonts-nanum;"),
        ("漢字かな", r"\(Chinese characters, Japanese kana\); .* apt install fonts-noto-cjk;"),
        ("🍕👩\u200d👧", r"draw 🍕 👧 👩 \(symbols\); .* apt install fonts-symbola;"),
        ("가나다라마바사", r"draw 가 나 다 라 마 \.\.\. \(Hangul\)"),
        (
            "𒀀",
            r"draw 𒀀 \(Cuneiform\); install one, for example: apt install fonts-noto-core; or save as \.svg or \.html",
        ),
    ],
)
def test_letters_no_font_has_are_one_clear_line(text, said):
    with pytest.raises(FontError, match=said) as raised:
        fonts_for([text], families=DEJAVU)
    assert "\n" not in str(raised.value)


def test_what_leaves_no_ink_needs_no_font():
    assert fonts_for(["a\u200bb\u3000c\u0301\n"], families=DEJAVU) == DEJAVU


def test_a_font_that_is_not_there_has_no_letters():
    assert letters_of("No Such Font At All") == frozenset()


def test_looking_into_every_font_says_nothing():
    code = "from jumok.analysis.fonts import _installed, letters_of; [letters_of(family) for family in _installed()]"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "findfont" not in done.stderr
