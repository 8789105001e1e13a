"""Fonts are chosen by the letters they have; Hangul is always drawn, other letters need a font, and a hint names it."""

import subprocess
import sys
import unicodedata
from dataclasses import replace

import pytest

pytest.importorskip("matplotlib")

from matplotlib import font_manager, ft2font
from matplotlib.ft2font import FT2Font

from jumok.analysis.draw import fonts
from jumok.analysis.draw.fonts import SHIPPED, SHIPPED_FILE, fonts_for, letters_of
from jumok.errors import FontError

DEJAVU = ["DejaVu Sans"]
SYLLABLES = [chr(code) for code in range(0xAC00, 0xD7A4)]
JAMO = [chr(code) for first, last in ((0x1100, 0x11FF), (0x3131, 0x318E)) for code in range(first, last + 1)]


def test_latin_is_drawn_by_the_font_that_comes_with_matplotlib():
    assert fonts_for(["Friday, December 23", "straße", ""]) == DEJAVU


def test_every_letter_is_in_one_of_the_fonts_found():
    text = "Friday 금요일 뷁"
    families = fonts_for([text])
    for letter in text.replace(" ", ""):
        fonts = [FT2Font(font_manager.findfont(family)) for family in families]
        assert any(font.get_char_index(ord(letter)) for font in fonts), letter


def test_one_font_for_everything_is_preferred_to_several():
    assert len(fonts_for(["1988년 12월"])) == 1


def test_every_syllable_and_jamo_is_drawn_where_no_font_is_installed(bundled_fonts):
    assert fonts_for(["".join(SYLLABLES), "".join(JAMO), "Friday 1988, 23 % “…” → ₩5,000 ▁"]) == [SHIPPED]


def test_hangul_is_drawn_where_the_fonts_that_matplotlib_remembers_are_gone(bundled_fonts, monkeypatch, tmp_path):
    manager = font_manager.fontManager
    gone = replace(manager.ttflist[0], name="NanumGothic", fname=str(tmp_path / "NanumGothic.ttf"))
    monkeypatch.setattr(manager, "ttflist", [gone, *(entry for entry in manager.ttflist if entry.name != SHIPPED)])
    monkeypatch.setattr(font_manager, "_load_fontmanager", lambda **_: pytest.fail("matplotlib searches anew"))
    fonts._installed.cache_clear()
    letters_of.cache_clear()
    assert fonts_for(["금요일"]) == [SHIPPED]


def test_jamo_of_a_decomposed_text_are_joined_into_syllables(bundled_fonts):
    if not hasattr(ft2font, "__libraqm_version__"):
        pytest.skip("this matplotlib does not join letters")
    font = FT2Font(str(SHIPPED_FILE))
    widths = []
    for text in ("한글", unicodedata.normalize("NFD", "한글")):
        font.set_text(text)
        widths.append(font.get_width_height()[0])
    assert widths[0] == pytest.approx(widths[1], rel=0.02)


def test_hangul_among_letters_of_other_fonts_is_drawn_by_ours(bundled_fonts):
    families = fonts_for(["Ω금Ѣ"])
    assert families[0] == "DejaVu Sans"
    assert families[-1] == SHIPPED


def test_an_installed_korean_font_comes_before_ours(monkeypatch):
    letters = {"DejaVu Sans": "123", "Nobody's Gothic": "가나다", SHIPPED: "가나다123"}
    monkeypatch.setattr(fonts, "_installed", lambda: frozenset(letters))
    monkeypatch.setattr(fonts, "letters_of", lambda family: frozenset(letters[family]))
    assert fonts_for(["가1"]) == ["DejaVu Sans", "Nobody's Gothic"]


def test_the_font_comes_with_its_licence():
    licence = SHIPPED_FILE.with_name("OFL.txt").read_text()
    assert licence.startswith("Copyright 2014-2021 Adobe")
    assert "SIL OPEN FONT LICENSE Version 1.1" in licence
    assert SHIPPED_FILE.stat().st_size < 2.5e6


@pytest.mark.parametrize("text", ["漢字", "かな", "بت"])
def test_other_scripts_still_need_an_installed_font(text, bundled_fonts):
    if text == "بت":
        assert fonts_for([text]) == DEJAVU
    else:
        with pytest.raises(FontError, match="apt install fonts-noto-cjk"):
            fonts_for([text])


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


@pytest.mark.slow
def test_looking_into_every_font_says_nothing():
    code = (
        "from jumok.analysis.draw.fonts import _installed, letters_of; [letters_of(family) for family in _installed()]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "findfont" not in done.stderr
