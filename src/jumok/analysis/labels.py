"""A word as a label: in letters that can be read alone, and upright where it is short.

Models that spell Hangul in jamo, or sounds in IPA, have tokens that are a part of a letter: the vowel of a syllable,
the tilde of a nasal. Alone these have no width in a terminal, and few fonts draw them.
"""

import re
import unicodedata

from jumok.analysis.width import cells

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
