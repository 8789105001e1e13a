"""Text <-> tokens <-> batches; knows files, knows no model."""

from typing import TYPE_CHECKING, Any

from jumok.data.batches import Batch, BatchConfig, collate, pad
from jumok.data.by_length import Cells, sort_by_length
from jumok.data.files import read_lines
from jumok.data.filters import FilterConfig, FilterReport, PairFilter
from jumok.data.loader import Batches
from jumok.data.normalise import Normaliser
from jumok.data.pairs import Pair, read_dataset, read_pairs
from jumok.data.plan import BatchPlan
from jumok.data.prepare import Prepared, prepare
from jumok.data.sides import Tokenizers
from jumok.data.sources import DataConfig
from jumok.data.store import Store, write_store
from jumok.data.subwords import BOS, EOS, PAD, UNK
from jumok.data.tokenizer import Piece, Tokenizer, TokenizerConfig
from jumok.data.vectors import WordVectors, match, read_vectors, vector_width, vectors_of

if TYPE_CHECKING:
    from jumok.data.corpora import corpus_pairs

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "Batch",
    "BatchConfig",
    "BatchPlan",
    "Batches",
    "Cells",
    "DataConfig",
    "FilterConfig",
    "FilterReport",
    "Normaliser",
    "Pair",
    "PairFilter",
    "Piece",
    "Prepared",
    "Store",
    "Tokenizer",
    "TokenizerConfig",
    "Tokenizers",
    "WordVectors",
    "collate",
    "corpus_pairs",
    "match",
    "pad",
    "prepare",
    "read_dataset",
    "read_lines",
    "read_pairs",
    "read_vectors",
    "sort_by_length",
    "vector_width",
    "vectors_of",
    "write_store",
]


def __getattr__(name: str) -> Any:
    if name != "corpus_pairs":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from jumok.data.corpora import corpus_pairs  # Babel is only imported by who wants it

    return corpus_pairs
