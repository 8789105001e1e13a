"""A shortlist from texts of the user, for models without their training text, such as imported ones."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jumok.data import Pair
from jumok.decoding.ctranslate2_model import why_not
from jumok.decoding.int8_rnn import can_quantise
from jumok.decoding.shortlist import FILE
from jumok.errors import ArgumentError, DataError
from jumok.progress import TellProgress
from jumok.tasks.cpu_engine import shortlist_of_tokens
from jumok.tasks.translator import Translator

LEAST = 3
"""A token that occurs less often has too few translations: sentences with it use the whole vocabulary."""
CHUNK = 1024


@dataclass(frozen=True)
class SavedShortlist:
    """A shortlist that was saved, and what it saves."""

    path: Path
    pairs: int
    """Pairs of texts that it was made from."""
    covered: float
    """The share of these texts whose tokens it all knows."""
    considered: float
    """Target tokens that int8 considers for such a text, on average."""
    vocabulary: int


def save_shortlist(
    translator: Translator,
    texts: Iterable[str],
    translations: Iterable[str] | None = None,
    *,
    tag: str | None = None,
    tell: TellProgress | None = None,
) -> SavedShortlist:
    """Save a shortlist in the folder of a model, joined with the one that is there, or that of its training text.

    Without `translations`, the model translates the texts first, with greedy search; `tell` is called with the
    progress. Texts that are too long for the model are left out.
    """
    folder, tokenizers = translator.engines.folder, translator.trained.tokenizers
    _check(translator)
    texts, own = list(texts), translations is None
    if translations is None:
        stream = translator.stream(texts, chunk=CHUNK, beam=1, tag=tag, tell=tell)
        translations = [translation.text for translation in stream]
    pairs = [Pair(translator.tagged(text, tag), other) for text, other in zip(texts, translations, strict=True)]
    rows = [(source[1:-1], target[1:-1]) for source, target in map(tokenizers.encode, pairs)]
    rows = [row for row in rows if all(0 < len(side) <= translator.trained.longest_sentence for side in row)]
    if not rows:
        raise DataError(
            "no translation of the model has words and is short enough for it; train it longer, or give translations "
            "(--target)"
            if own
            else "no pair has words on both sides and is short enough for the model"
        )
    sources: Sequence[Sequence[int]] = [source for source, _ in rows]
    made = shortlist_of_tokens(sources, [target for _, target in rows], tokenizers, least=LEAST)
    assert folder is not None
    if (before := translator.engines.shortlist()) is not None:
        made = before | made
    made.write(folder / FILE, tokenizers)
    sizes = [len(made.ids([source])) for source in sources if made.covers(source)]
    considered = sum(sizes) / len(sizes) if sizes else float(tokenizers.target.size)
    return SavedShortlist(folder / FILE, len(rows), len(sizes) / len(rows), considered, tokenizers.target.size)


def _check(translator: Translator) -> None:
    """Raise an ArgumentError for a model that cannot use a shortlist."""
    if translator.engines.folder is None:
        raise ArgumentError("a shortlist is saved in a model folder of your own; name one, such as runs/NAME")
    model = translator.trained.model
    if can_quantise(model):
        return
    if (reason := why_not(model)) is not None:
        raise ArgumentError(f"a shortlist speeds up int8, which this model cannot use: {reason}")
