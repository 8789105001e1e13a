"""Modules with weights: attention with its projections, positions, feed-forward, embeddings, graph attention."""

from jumok.graphs.layers import GraphAttention, GraphAttentionV2, SortedEdges, SuperGraphAttention
from jumok.layers.additive import AdditiveAttention, CoverageAttention, Memory, coverage_loss
from jumok.layers.embedding import TokenEmbedding
from jumok.layers.luong import LuongAttention
from jumok.layers.multi_head import KeyValueCache, KeyValues, MultiHeadAttention
from jumok.layers.positions import (
    AddedPositions,
    ConcatenatedPositions,
    LearnedPositions,
    RotaryPositions,
    sinusoids,
)
from jumok.layers.recurrent import Recurrence
from jumok.layers.transformer import DecoderLayer, EncoderLayer, FeedForward

__all__ = [
    "AddedPositions",
    "AdditiveAttention",
    "ConcatenatedPositions",
    "CoverageAttention",
    "DecoderLayer",
    "EncoderLayer",
    "FeedForward",
    "GraphAttention",
    "GraphAttentionV2",
    "KeyValueCache",
    "KeyValues",
    "LearnedPositions",
    "LuongAttention",
    "Memory",
    "MultiHeadAttention",
    "Recurrence",
    "RotaryPositions",
    "SortedEdges",
    "SuperGraphAttention",
    "TokenEmbedding",
    "coverage_loss",
    "sinusoids",
]
