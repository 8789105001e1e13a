"""Whether a SentencePiece model belongs to the vocabulary beside it."""

from collections.abc import Iterable

from jumok.data.sentencepiece_model import SentencePieceModel, missing_pieces
from jumok.errors import DataError
from jumok.screen import to_screen

MOST_MISSING, FEW_MISSING = 0.1, 5
"""Share and number of pieces that a vocabulary may lack: one that was counted in a corpus lacks the rarest."""


def check_pieces(model: SentencePieceModel, vocabulary: Iterable[str]) -> None:
    """A DataError for a model whose vocabulary lacks so many of its pieces that it is another's; a note for a few."""
    missing, count = missing_pieces(model, vocabulary), len(missing_pieces(model, ()))
    if not missing:
        return
    share = f"{len(missing):,} of {count:,} pieces ({len(missing) / count:.1%})"
    lacks = f"{model.origin} has {share} that the vocabulary lacks"
    if len(missing) > max(FEW_MISSING, MOST_MISSING * count):
        raise DataError(f"{lacks}, so it belongs to another model; copy the file that this one was trained with")
    to_screen(f"note: {lacks}; they are read as unknown")
