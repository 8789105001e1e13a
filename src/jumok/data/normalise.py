"""One spelling for one text: Unicode forms, Hangul as syllables or letters (jamo), spaces and control characters.

"한" is one syllable (NFC) or three letters ㅎ ㅏ ㄴ (jamo). Letters make the vocabulary smaller, and joining them
again (NFC) is lossless, so a model may read and write letters while its user never sees them.
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from jumok.settings import Settings

Form = Literal["none", "nfc", "nfkc", "nfd", "jamo"]
Spaces = Literal["collapse", "keep"]

# C0 and C1 controls, halves of surrogate pairs, and the noncharacters the tokenizer keeps for itself
NOT_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0\ufdd1]")
SYLLABLE = re.compile("[가-힣]")


class Letter(NamedTuple):
    """One character of a normalised text, and the part [start, end) of the original it stands for."""

    text: str
    start: int
    end: int


class Normalised(NamedTuple):
    """A normalised text, and the part [start, end) of the original each of its characters stands for."""

    text: str
    starts: list[int]
    ends: list[int]


@dataclass(frozen=True, kw_only=True)
class Normaliser(Settings):
    """How a text is normalised before it is split into tokens."""

    form: Form = "nfc"
    """Unicode form: nfc, nfkc (also folds wide and circled letters), nfd, jamo (nfc with Hangul in letters) or none."""
    spaces: Spaces = "collapse"
    """collapse: no space at the ends, one between words; keep: as they come."""
    lowercase: bool = False
    """Write everything in lower case; cannot be undone."""

    def __call__(self, text: str) -> str:
        """The normalised text; control characters become spaces."""
        text = self._spell(NOT_TEXT.sub(" ", text))
        if self.spaces == "keep":
            return text
        text = text.strip(" ")
        return " ".join(filter(None, text.split(" "))) if "  " in text else text

    def restore(self, text: str) -> str:
        """Compose syllables from their letters and letters from their accents again."""
        return unicodedata.normalize("NFC", text) if self.form in ("jamo", "nfd") else text

    def rewritten(self, text: str) -> str:
        """The text as a model that was trained on it would write it; outputs are compared with this."""
        return self.restore(self(text))

    def trace(self, text: str) -> Normalised:
        """Normalise, and give the span of the original text behind every character."""
        text = NOT_TEXT.sub(" ", text)
        letters = [letter for run in _independent_runs(text, self._spell) for letter in run]
        if self.spaces == "collapse":
            before = [" ", *(letter.text for letter in letters)]
            letters = [letter for letter, last in zip(letters, before, strict=False) if letter.text + last != "  "]
            letters = letters[:-1] if letters and letters[-1].text == " " else letters
        texts, starts, ends = zip(*letters, strict=True) if letters else ((), (), ())
        return Normalised("".join(texts), list(starts), list(ends))

    def _spell(self, text: str) -> str:
        spelt = _to_form(text, self.form)
        if not self.lowercase:
            return spelt
        return _to_form(
            spelt.replace("Σ", "σ").lower(), self.form
        )  # no final sigma, so that no letter depends on the next


def _to_form(text: str, form: Form) -> str:
    match form:
        case "none":
            return text
        case "nfc":
            return unicodedata.normalize("NFC", text)
        case "nfkc":
            return unicodedata.normalize("NFKC", text)
        case "nfd":
            return unicodedata.normalize("NFD", text)
        case "jamo":
            return SYLLABLE.sub(
                lambda match: unicodedata.normalize("NFD", match[0]), unicodedata.normalize("NFC", text)
            )


def _independent_runs(text: str, spell: Callable[[str], str]) -> list[list[Letter]]:
    """Cut `text` where spell(a + b) = spell(a) + spell(b), and give each run's spelt characters with their origin."""
    if spell(text) == text:
        return [[Letter(letter, start, start + 1) for start, letter in enumerate(text)]]
    cuts = [0]
    for cut in range(1, len(text)):
        before, letter = text[cuts[-1] : cut], text[cut]
        joins = unicodedata.combining(unicodedata.normalize("NFKD", letter)[0])
        if not joins and spell(before + letter) == spell(before) + spell(letter):
            cuts.append(cut)
    ends = [*cuts[1:], len(text)]
    return [
        [Letter(letter, start, end) for letter in spell(text[start:end])] for start, end in zip(cuts, ends, strict=True)
    ]
