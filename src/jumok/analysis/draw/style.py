"""What all drawings share: colours, the width of texts, and labels that can be read."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from rich.cells import cell_len, set_cell_size

LIGHT = ("#f3f6fb", "#cfe1f3", "#82b4de", "#2f78bc", "#0a3a78")
DARK = ("#1d2534", "#1f4570", "#2a74b8", "#67b7f0", "#dcf1ff")
"""Colours of weights from none to the largest, on a light and on a dark background; the same as in web/parts.js."""

# The series begin with the deep blue of the maps; colour-blind readers can tell them apart.
LIGHT_COLOURS = {"ink": "#1f2933", "quiet": "#5b6472", "line": "#dde2ea", "paper": "#ffffff"}
DARK_COLOURS = {"ink": "#e6eaf0", "quiet": "#9aa5b4", "line": "#2f3947", "paper": "#161b22"}
LIGHT_SERIES = ("#084081", "#d55e00", "#00806a", "#a3508b", "#8a6d00", "#3b8ec2")
DARK_SERIES = ("#7fb2ea", "#f0924f", "#43c3a5", "#d893c4", "#d5b54a", "#9fd4f5")
LIGHT_COLOURS |= {f"series{number}": colour for number, colour in enumerate(LIGHT_SERIES)}
DARK_COLOURS |= {f"series{number}": colour for number, colour in enumerate(DARK_SERIES)}


class Shade(NamedTuple):
    """The colour of a weight, given as its share of the largest one."""

    share: float


Colour = str | Shade
"""A name from LIGHT_COLOURS, #rrggbb, or the shade of a weight."""


def light_hex(colour: Colour) -> str:
    """Return a colour on a light background as #rrggbb."""
    return weight_colour(colour.share) if isinstance(colour, Shade) else LIGHT_COLOURS.get(colour, colour)


def css_colour(colour: Colour) -> str:
    """Return a colour as CSS that follows the variables of `css_variables`, light or dark."""
    if isinstance(colour, str):
        return f"var(--{colour})" if colour in LIGHT_COLOURS else colour
    position = min(max(float(colour.share), 0.0), 1.0) * (len(LIGHT) - 1)
    low = min(int(position), len(LIGHT) - 2)
    return f"color-mix(in srgb, var(--w{low}), var(--w{low + 1}) {100 * (position - low):.0f}%)"


def css_variables(selector: str) -> str:
    """Return a style sheet that sets the colours for a selector, on light and on dark screens."""
    light, dark = _variables(LIGHT_COLOURS, LIGHT), _variables(DARK_COLOURS, DARK)
    return f"{selector}{{{light}}}@media (prefers-color-scheme:dark){{{selector}{{{dark}}}}}"


LIGHT_NOTEBOOKS = ('[data-jp-theme-light="true"]', ".vscode-light", 'html[theme="light"]')
DARK_NOTEBOOKS = ('[data-jp-theme-light="false"]', ".vscode-dark", 'html[theme="dark"]')
"""How JupyterLab, VS Code and Colab mark their themes."""


def notebook_variables(selector: str) -> str:
    """Return the same, where the theme of a notebook, if it names one, has the last word; and images for each."""
    rules = [css_variables(selector), f"{selector} .on-dark{{display:none}}"]
    swap = f"{selector} .on-light{{display:none}}{selector} .on-dark{{display:inline}}"
    rules.append(f"@media (prefers-color-scheme:dark){{{swap}}}")
    for theme in LIGHT_NOTEBOOKS:
        rules.append(f"{theme} {selector}{{{_variables(LIGHT_COLOURS, LIGHT)}}}")
        rules.append(f"{theme} {selector} .on-light{{display:inline}}{theme} {selector} .on-dark{{display:none}}")
    for theme in DARK_NOTEBOOKS:
        rules.append(f"{theme} {selector}{{{_variables(DARK_COLOURS, DARK)}}}")
        rules.append(f"{theme} {selector} .on-light{{display:none}}{theme} {selector} .on-dark{{display:inline}}")
    return "".join(rules)


def _variables(named: Mapping[str, str], stops: Sequence[str]) -> str:
    colours = "".join(f"--{name}:{value};" for name, value in named.items())
    return colours + "".join(f"--w{number}:{stop};" for number, stop in enumerate(stops))


def weight_colour(share: float, stops: Sequence[str] = LIGHT) -> str:
    """Return the colour of a weight from the first stop (0) to the last (1) as #rrggbb."""
    return "#" + "".join(f"{part:02x}" for part in weight_pixels(np.array(float(share)), stops).tolist())


def weight_pixels(shares: Float[np.ndarray, "*place"], stops: Sequence[str] = LIGHT) -> np.ndarray:
    """Return red, green and blue of every weight as bytes along a new last axis."""
    known = np.array([[int(stop[start : start + 2], 16) for start in (1, 3, 5)] for stop in stops], float)
    positions = np.linspace(0, 1, len(stops))
    parts = [np.interp(shares.clip(0, 1), positions, known[:, part]) for part in range(3)]
    return np.stack(parts, -1).round().astype(np.uint8)


def largest_weight(weights: Float[np.ndarray, "*place"]) -> float:
    """Return the weight with the darkest colour: the largest, or 1 if there is none."""
    return float(weights.max(initial=0.0)) or 1.0


def cell_width(text: str) -> int:
    """Return the width of a text in terminal cells; Hangul and Chinese characters have two."""
    return cell_len(text)


def fitted(text: str, width: int) -> str:
    """Cut a text or pad it with spaces to exactly `width` cells."""
    return set_cell_size(text, width)


def shortened(text: str, width: int) -> str:
    """Cut a text to at most `width` cells, with an ellipsis where it was cut."""
    return text if cell_width(text) <= width else fitted(text, max(0, width - 1)).rstrip() + "…"


def wrapped(text: str, width: int) -> list[str]:
    """Break a text at spaces into lines of at most `width` cells; longer words are cut."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and cell_width(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return [shortened(line, max(2, width)) for line in lines]


INITIALS = "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"
VOWELS = "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"
FINALS = "ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ"
LETTERS = {
    chr(start + number): letter
    for start, letters in ((0x1100, INITIALS), (0x1161, VOWELS), (0x11A8, FINALS))
    for number, letter in enumerate(letters)
}
"""The standalone letter of each modern jamo; the same as in web/parts.js."""
INITIAL, VOWEL, FINAL = "[\u1100-\u115f\ua960-\ua97c]", "[\u1160-\u11a7\ud7b0-\ud7c6]", "[\u11a8-\u11ff\ud7cb-\ud7fb]"
JAMO = re.compile(f"{INITIAL}+{VOWEL}+{FINAL}*|[가-힣]{FINAL}*|{INITIAL}|{VOWEL}|{FINAL}")
"""A syllable, or a part of one."""
FILLER, CIRCLE, SPACE = "\u115f", "◌", "▁"
SHORT = 2
"""Labels of up to this many cells are upright: one Hangul letter or two Latin letters."""


def readable(word: str) -> str:
    """Replace combining characters that have no base: ᅡ becomes ㅏ, and a lone mark sits on ◌."""
    text = JAMO.sub(lambda match: _letter(match[0]), unicodedata.normalize("NFC", word))
    return CIRCLE + text if text and unicodedata.category(text[0]) in ("Mn", "Me") else text


def printable(text: str) -> str:
    """Make a label readable, with � for control characters, which fonts cannot draw."""
    return "".join("�" if unicodedata.category(letter) == "Cc" else letter for letter in readable(text))


def upright(word: str) -> bool:
    """Whether a column label is short enough to be upright; a leading ▁ does not count."""
    return cell_width(readable(word).lstrip(SPACE)) <= SHORT


def _letter(syllable: str) -> str:
    if len(syllable) > 1 or (cell_width(syllable) and syllable not in LETTERS):
        return syllable
    return LETTERS.get(syllable, FILLER + syllable)
