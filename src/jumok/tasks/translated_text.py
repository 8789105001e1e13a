"""The translation of a text: its words, its score, its parts with their attention, and reasons to doubt it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from jumok.analysis.maps.attention_map import AttentionMap, MapKind
from jumok.analysis.scores.word_probabilities import WordProbability
from jumok.errors import ArgumentError
from jumok.tasks.text_generator import TextGenerator
from jumok.tasks.translation_warnings import WarningKind, translation_warnings


class TranslatedPart(NamedTuple):
    """A part of a source text, and what was found for it."""

    source: str
    ids: tuple[int, ...]
    """The tokens of its translation."""
    source_ids: tuple[int, ...]
    left_out: tuple[str, ...] = ()
    """Required terms that the model cannot write, as messages name them."""


@dataclass(frozen=True, eq=False)
class Translation:
    """The translation of one text."""

    source: str
    text: str
    score: float
    """Log-probability over length to the length penalty, or logarithm of the votes of several models; 0 if empty."""
    expected_chrf: float | None = None
    """What orders translations under minimum Bayes risk; None otherwise."""
    n_best: tuple["Translation", ...] = ()
    """The best translations, best first, if more than one was requested."""
    pieces: tuple[TranslatedPart, ...] = field(default=(), repr=False)
    """The parts that the source was translated in; one unless it was too long."""
    translator: TextGenerator[Any] | None = field(default=None, repr=False)
    """The `Translator` that wrote it; its class is not named here, because its file imports this one."""

    def attention(self, *, words: bool | None = None, kind: MapKind = "cross") -> AttentionMap:
        """The attention of each word of the translation, or of each token with `words=False`.

        Words are the default, except for character-level models (`tokenizer.kind = "char"`): their maps show tokens.
        `kind` is "cross" for attention to the source, "encoder" or "decoder" for the self-attention of a Transformer.
        """
        if len(self.pieces) > 1:
            raise ArgumentError(
                f"the text was translated in {len(self.pieces)} parts, and each has its own attention map; call "
                "attention_maps()"
            )
        return self.attention_maps(words=words, kind=kind)[0]

    def attention_maps(self, *, words: bool | None = None, kind: MapKind = "cross") -> list[AttentionMap]:
        """The map of every part of the text; there is one part unless the text was too long."""
        if self.translator is None or not self.pieces:
            raise ArgumentError("there is no attention map of an empty text")
        return [self.translator.map_of(source, ids, words=words, kind=kind) for source, ids, *_ in self.pieces]

    def probabilities(self, *, words: bool | None = None) -> list[WordProbability]:
        """The probability of each word given the source and the words before it, and of the end of each part.

        Tokens instead of words with `words=False`, and by default for character-level models.
        """
        if self.translator is None:
            return []
        words = not self.translator.is_character_level if words is None else words
        parts = [self.translator.probabilities_of(part.source, part.ids) for part in self.pieces]
        return [each for part in parts for each in (part.words if words else part.tokens)]

    def warnings(self) -> dict[WarningKind, str]:
        """Reasons to doubt the translation, by kind.

        They are the "length" of a sentence, its "words", an unknown "tag", a missing "language", the "output",
        and "terms" that the model cannot write.
        """
        if self.translator is None or not self.pieces:
            return {}
        trained, parts = self.translator.trained, [(part.source, part.source_ids) for part in self.pieces]
        left_out = list(dict.fromkeys(term for part in self.pieces for term in part.left_out))
        return translation_warnings(
            trained.recipe, trained.tokenizers.source, parts, self.text, trained.longest_source, left_out
        )


def join_parts(text: str, parts: Sequence[Translation]) -> Translation:
    """The translation of a text from those of its parts; a single part also gives its n-best list."""
    if len(parts) == 1:
        (whole,) = parts
        return replace(whole, source=text, n_best=tuple(replace(best, source=text) for best in whole.n_best))
    return Translation(
        text,
        " ".join(part.text for part in parts),
        sum(part.score for part in parts) / len(parts),
        pieces=tuple(piece for part in parts for piece in part.pieces),
        translator=parts[0].translator,
    )
