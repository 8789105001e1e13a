"""Pure functions on tensors: one attention mechanism, its scores, masks and normalisers."""

from jumok.attention.additive.reference import additive, concat
from jumok.attention.attend import attend, explain, score_pairs
from jumok.attention.backends import Plan
from jumok.attention.call import mix
from jumok.attention.distance_scores import boxcar, epanechnikov, gaussian, triangular
from jumok.attention.masks import Visible, causal, from_lengths, whole
from jumok.attention.modified_dot import alibi, scaled_dot
from jumok.attention.normalise import distribution, entmax15, mean, softmax, sparsemax
from jumok.attention.packed import packed
from jumok.attention.precomputed import PrecomputedKeys, precompute_keys
from jumok.attention.scores import Score, cosine, dot, general, location, positional
from jumok.attention.torch_masks import from_torch_mask, from_torch_padding, to_torch_mask, to_torch_padding
from jumok.attention.weights import Attended, Weights
from jumok.attention.windows import gaussian_window, window

__all__ = [
    "Attended",
    "Plan",
    "PrecomputedKeys",
    "Score",
    "Visible",
    "Weights",
    "additive",
    "alibi",
    "attend",
    "boxcar",
    "causal",
    "concat",
    "cosine",
    "distribution",
    "dot",
    "entmax15",
    "epanechnikov",
    "explain",
    "from_lengths",
    "from_torch_mask",
    "from_torch_padding",
    "gaussian",
    "gaussian_window",
    "general",
    "location",
    "mean",
    "mix",
    "packed",
    "positional",
    "precompute_keys",
    "scaled_dot",
    "score_pairs",
    "softmax",
    "sparsemax",
    "to_torch_mask",
    "to_torch_padding",
    "triangular",
    "whole",
    "window",
]
