"""Choose fonts that have all letters of a text, by their character maps, so that no letter becomes an empty box."""

import logging
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jumok.errors import FontError, MissingExtraError

FIRST = "DejaVu Sans"  # comes with matplotlib
PREFERRED = (
    "Pretendard",
    "Noto Sans KR",
    "Noto Sans CJK KR",
    "NanumGothic",
    "NanumBarunGothic",
    "Apple SD Gothic Neo",
    "Malgun Gothic",
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Noto Sans JP",
    "Noto Sans SC",
    "Hiragino Sans",
    "PingFang SC",
    "Yu Gothic",
    "Microsoft YaHei",
    "IPAexGothic",
    "WenQuanYi Zen Hei",
    "Noto Sans Arabic",
    "Noto Naskh Arabic",
    "Noto Sans",
)
"""Tried before all others, because they are easy to read."""
SHIPPED = "Jumok Sans KR"
"""A part of Noto Sans CJK KR with all Hangul, for machines without Korean fonts; docs/make_font.py builds it."""
SHIPPED_FILE = Path(__file__).parent / "hangul_font" / "JumokSansKR-Regular.ttf"
PACKAGES = {
    "HANGUL": ("Hangul", "fonts-nanum"),
    "CJK": ("Chinese characters", "fonts-noto-cjk"),
    "HIRAGANA": ("Japanese kana", "fonts-noto-cjk"),
    "KATAKANA": ("Japanese kana", "fonts-noto-cjk"),
    "ARABIC": ("Arabic", "fonts-noto-core"),
}
SYMBOLS = ("symbols", "fonts-symbola")
"""This includes emoji: matplotlib cannot draw coloured fonts."""


def fonts_for(texts: Iterable[str], families: Sequence[str] = ()) -> list[str]:
    """Return families that together have every letter; a FontError names what to install if there are none.

    One family for everything looks better than several. `families` to choose from default to all installed fonts and,
    for letters they lack, the Hangul font that comes with jumok.
    """
    letters = {letter for text in texts for letter in text if _drawn(letter)}
    installed = _installed() & frozenset(families) if families else _installed()
    readable = [family for family in (FIRST, *PREFERRED) if family in installed]
    for family in readable:
        if letters <= letters_of(family):
            return [family]
    own = (*readable, *_others(installed - {*readable, SHIPPED}))
    shipped = (SHIPPED,) if SHIPPED in installed else ()
    lacking = letters
    for candidates in (own, shipped, (*own, *shipped)):
        chosen, lacking = _covering(letters, candidates)
        if not lacking:
            return chosen
    raise FontError(_what_to_install(lacking))


def _covering(letters: set[str], families: Iterable[str]) -> tuple[list[str], set[str]]:
    """Return the first families that together have the letters, and the letters that no family has."""
    chosen: list[str] = []
    lacking = set(letters)
    for family in families:
        drawn = lacking & letters_of(family)
        if drawn or not chosen:
            chosen.append(family)
        lacking -= drawn
        if not lacking:
            break
    return chosen, lacking


def _others(families: Iterable[str]) -> list[str]:
    """Sort families by their number of letters, largest first."""
    return sorted(families, key=lambda family: (-len(letters_of(family)), family))


@cache
def letters_of(family: str) -> frozenset[str]:
    """Return the letters that a family has."""
    from matplotlib import font_manager
    from matplotlib.ft2font import FT2Font

    try:
        path = font_manager.findfont(font_manager.FontProperties(family=family), fallback_to_default=False)
        return frozenset(map(chr, FT2Font(path).get_charmap()))
    except (ValueError, RuntimeError, OSError):  # a damaged file, or a bitmap font: nothing that can be drawn with
        return frozenset()


@cache
def _installed() -> frozenset[str]:
    """Return the names of all families: those that matplotlib knows and that exist, those installed since, and ours."""
    manager = _manager()
    from matplotlib import font_manager

    # matplotlib searches anew when it meets a font that has been removed, and forgets those that were added.
    manager.ttflist = [entry for entry in manager.ttflist if Path(entry.fname).is_file()]
    known = {entry.fname for entry in manager.ttflist}
    for path in (str(SHIPPED_FILE), *font_manager.findSystemFonts()):
        if path not in known:
            try:
                manager.addfont(path)
            except (RuntimeError, OSError, ValueError):
                continue
    return frozenset(entry.name for entry in manager.ttflist if not entry.name.startswith((".", "LastResort")))


def _manager() -> Any:
    try:
        from matplotlib.font_manager import fontManager
    except ImportError as missing:
        raise MissingExtraError("matplotlib", "plot", "drawing") from missing
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # it reports every weight a family lacks
    return fontManager


def _drawn(letter: str) -> bool:
    """Whether a letter is visible, unlike spaces, control characters and joiners."""
    return unicodedata.category(letter) not in ("Zs", "Zl", "Zp", "Cc", "Cf", "Mn")


def _script(letter: str) -> tuple[str, str]:
    """Return the script of a letter and a Debian package that has it."""
    if unicodedata.category(letter).startswith("S"):
        return SYMBOLS
    script = unicodedata.name(letter, "UNKNOWN").split()[0].split("-")[0]
    return PACKAGES.get(script, (script.capitalize(), "fonts-noto-core"))


def _what_to_install(letters: set[str]) -> str:
    examples = " ".join(sorted(letters)[:5]) + (" ..." if len(letters) > 5 else "")
    known = {_script(letter) for letter in letters}
    names = ", ".join(sorted({name for name, _ in known}))
    packages = " ".join(sorted({package for _, package in known}))
    return (
        f"no installed font can draw {examples} ({names}); install one, for example: "
        f"apt install {packages}; or save as .svg or .html, whose letters the browser draws"
    )
