"""Parallel text, tokenizers, datasets and batches; independent of any model."""

from typing import TYPE_CHECKING, Any

from jumok.data.batches import Batch, BatchConfig, BatchPlan, LengthCounts, collate, pad, sort_by_length
from jumok.data.dataset import Dataset, write_dataset
from jumok.data.filters import FilterConfig, FilterReport, PairFilter
from jumok.data.loader import Batches
from jumok.data.normalise import Normaliser
from jumok.data.pairs import Pair, read_dataset, read_pairs
from jumok.data.prepare import PreparedText, prepare
from jumok.data.sources import DataConfig
from jumok.data.subwords import BOS, EOS, PAD, UNK
from jumok.data.tokenizer import Piece, Tokenizer, TokenizerConfig
from jumok.data.tokenizer_pair import TokenizerPair
from jumok.data.vectors import WordVectors, match, read_vectors, vector_width, vectors_of
from jumok.files import read_lines

if TYPE_CHECKING:
    from jumok.data.corpora.built_in import corpus_pairs

__all__ = [
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "Batch",
    "BatchConfig",
    "BatchPlan",
    "Batches",
    "DataConfig",
    "Dataset",
    "FilterConfig",
    "FilterReport",
    "LengthCounts",
    "Normaliser",
    "Pair",
    "PairFilter",
    "Piece",
    "PreparedText",
    "Tokenizer",
    "TokenizerConfig",
    "TokenizerPair",
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
    "write_dataset",
]


def __getattr__(name: str) -> Any:
    if name != "corpus_pairs":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from jumok.data.corpora.built_in import corpus_pairs  # Babel is slow to import

    return corpus_pairs
