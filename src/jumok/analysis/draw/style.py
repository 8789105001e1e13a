"""What all drawings share: the colours of weights, the width of a text, words as labels."""

import re
import struct
import unicodedata
import zlib
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from rich.cells import cell_len, set_cell_size

LIGHT = ("#f3f6fb", "#cfe1f3", "#82b4de", "#2f78bc", "#0a3a78")
DARK = ("#1d2534", "#1f4570", "#2a74b8", "#67b7f0", "#dcf1ff")
"""As in web/parts.js and report.css: on a light and on a dark ground."""
INK, QUIET = "#1f2933", "#66717f"
"""Of words, and of what should not be noticed first."""


def colour(weight: float, stops: Sequence[str] = LIGHT) -> str:
    """From the first of the stops (0) to the last (1), as #rrggbb."""
    return "#" + "".join(f"{part:02x}" for part in shades(np.array(float(weight)), stops).tolist())


def mixed(weight: float, stops: Sequence[str]) -> str:
    """The same where the stops are variables of a page: CSS that mixes the two next to the weight."""
    place = min(max(float(weight), 0.0), 1.0) * (len(stops) - 1)
    low = min(int(place), len(stops) - 2)
    return f"color-mix(in srgb, {stops[low]}, {stops[low + 1]} {100 * (place - low):.0f}%)"


def shades(weights: Float[np.ndarray, "*place"], stops: Sequence[str] = LIGHT) -> np.ndarray:
    """Red, green and blue of every weight, in bytes, along a new last axis."""
    known = np.array([[int(stop[at : at + 2], 16) for at in (1, 3, 5)] for stop in stops], float)
    places = np.linspace(0, 1, len(stops))
    parts = [np.interp(weights.clip(0, 1), places, known[:, part]) for part in range(3)]
    return np.stack(parts, -1).round().astype(np.uint8)


def darkest(weights: Float[np.ndarray, "*place"]) -> float:
    """The weight that gets the darkest colour: the largest there is."""
    return float(weights.max(initial=0.0)) or 1.0


def png_bytes(pixels: np.ndarray) -> bytes:
    """A PNG file of red, green and blue bytes [height, width, 3]."""
    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], 1)  # 0: a row as it is
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in parts
    )


def cells(text: str) -> int:
    """The number of terminal cells."""
    return cell_len(text)


def fitted(text: str, width: int) -> str:
    """The text cut or filled with spaces to exactly `width` cells."""
    return set_cell_size(text, width)


def wrapped(text: str, room: int) -> list[str]:
    """The text in lines of at most `room` columns, broken at spaces; a word that is longer is cut."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and cells(longer) > room:
            lines.append(word)
        else:
            lines[-1] = longer
    return [line if cells(line) <= room else fitted(line, max(1, room - 1)).rstrip() + "…" for line in lines]


INITIALS = "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"
VOWELS = "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"
FINALS = "ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ"
LETTERS = {
    chr(start + number): letter
    for start, letters in ((0x1100, INITIALS), (0x1161, VOWELS), (0x11A8, FINALS))
    for number, letter in enumerate(letters)
}
"""The letter of each jamo of today; as in web/parts.js."""
INITIAL, VOWEL, FINAL = "[\u1100-\u115f\ua960-\ua97c]", "[\u1160-\u11a7\ud7b0-\ud7c6]", "[\u11a8-\u11ff\ud7cb-\ud7fb]"
JAMO = re.compile(f"{INITIAL}+{VOWEL}+{FINAL}*|[가-힣]{FINAL}*|{INITIAL}|{VOWEL}|{FINAL}")
"""A syllable, or what is left of one."""
FILLER, CIRCLE, SPACE = "\u115f", "◌", "▁"
SHORT = 2
"""Cells up to which a label stands upright: a Hangul letter, or two Latin ones."""


def readable(word: str) -> str:
    """The word in letters that stand alone: ᅡ becomes ㅏ, and a mark that has no letter before it sits on ◌."""
    text = JAMO.sub(lambda found: _letter(found[0]), unicodedata.normalize("NFC", word))
    return CIRCLE + text if text and unicodedata.category(text[0]) in ("Mn", "Me") else text


def upright(word: str) -> bool:
    """Whether a label above a column needs no leaning; the sign for a space before it does not count."""
    return cells(readable(word).lstrip(SPACE)) <= SHORT


def _letter(syllable: str) -> str:
    if len(syllable) > 1 or (cells(syllable) and syllable not in LETTERS):
        return syllable
    return LETTERS.get(syllable, FILLER + syllable)
