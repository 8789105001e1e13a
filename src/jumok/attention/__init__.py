"""Pure functions on tensors: one attention mechanism, its scores, masks and normalisers."""

from jumok.attention.additive_scores import additive, concat
from jumok.attention.attended import Attended, Weights
from jumok.attention.backends import Plan
from jumok.attention.custom_scores import positional
from jumok.attention.dot_scores import cosine, dot, general, location, scaled_dot
from jumok.attention.lookup import mix
from jumok.attention.masks import (
    causal,
    from_lengths,
    from_torch_mask,
    from_torch_padding,
    gaussian_window,
    to_torch_mask,
    to_torch_padding,
    window,
)
from jumok.attention.mechanism import attend, explain, score_pairs
from jumok.attention.normalise import distribution, entmax15, mean, softmax, sparsemax
from jumok.attention.remember import Source, remember
from jumok.attention.score import Score
from jumok.attention.smoothing import boxcar, epanechnikov, gaussian, triangular
from jumok.attention.visible import Visible, whole

__all__ = [
    "Attended",
    "Plan",
    "Score",
    "Source",
    "Visible",
    "Weights",
    "additive",
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
    "positional",
    "remember",
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
