"""Attention(q, D) = Σ αᵢ(q, kᵢ) vᵢ: the one function, and its first stage."""

from collections.abc import Callable
from numbers import Real

from jaxtyping import Float
from torch import Tensor

from jumok.attention import backends
from jumok.attention.additive import fused
from jumok.attention.additive.reference import additive, concat
from jumok.attention.arguments import check_signature
from jumok.attention.call import AttentionCall
from jumok.attention.checks import check_parameters, check_tensors, common_dtype, leading_axes
from jumok.attention.distance_scores import boxcar, epanechnikov, gaussian, triangular
from jumok.attention.masks import Tile, Visible, as_visible
from jumok.attention.nonfinite import isolate_nonfinite
from jumok.attention.normalise import Normaliser, find_normaliser
from jumok.attention.scores import Custom, Score, cosine, dot, general, location, scaled_dot
from jumok.attention.weights import Attended
from jumok.errors import ArgumentError

ScoreLike = str | Score | Callable[[Tensor, Tensor], Tensor]

SCORES: dict[str, Callable[[], Score]] = {
    "dot": dot,
    "scaled_dot": scaled_dot,
    "cosine": cosine,
    "gaussian": gaussian,
    "boxcar": boxcar,
    "epanechnikov": epanechnikov,
    "triangular": triangular,
}
"""The scores that need no parameters, by name."""

WITH_PARAMETERS: dict[str, Callable[..., Score]] = {
    "general": general,
    "additive": additive,
    "concat": concat,
    "location": location,
}


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: ScoreLike = "scaled_dot",
    normalise: str | Normaliser = "softmax",
    visible: Visible | Tensor | None = None,
    dropout: float = 0.0,
    backend: str = "auto",
) -> Attended:
    """Mix the rows of `value` by how well each query matches each key.

    Shapes: query [*lead, query, query_dim], key [*lead, key, key_dim], value [*lead, key, value_dim]; leading axes
    (batch, heads, ...) broadcast. Gives values [*lead, query, value_dim] and weights [*lead, query, key] on demand.

    A query that sees nothing gets zeros; what is hidden from it, NaN included, reaches neither values nor gradients.

    score: how well a query matches a key, by name, from a function of jumok.attention, or any function of both.
        By name: "dot", "scaled_dot", "cosine", and the regression kernels "gaussian", "boxcar", "epanechnikov",
        "triangular". With parameters: general(weight), location(weight), additive(v), concat(v, weight),
        scaled_dot(scale), cosine(scale), and gaussian(bandwidth) as the other kernels.
    normalise: how scores become weights: "softmax", "sum" (the same, as Nadaraya and Watson call it), "sparsemax",
        "entmax15", "mean", or any function of the scores.
    visible: True where a query may look; None means everywhere. A boolean tensor that broadcasts to [*lead, query,
        key], or what these make: from_lengths, causal, window, gaussian_window, from_torch_padding, from_torch_mask.
        Masks combine with & | ~ (inside code given to torch.compile, ~ and tensors have limits: docs/attention.md).
    dropout: the share of the weights to drop; a layer passes 0 unless it is in training.
    backend: "auto" takes the fastest of "sdpa" (PyTorch's fused kernel), "fused" (Triton, additive scores on a GPU),
        "blocked" (a few rows at a time) and "direct" (the equation as written) that can run the call; a name asks for
        that one. `explain` says which runs and why.
    """
    call = _call(query, key, value, score, normalise, visible, dropout, backend)
    return backends.run(call, backends.plan(call, backend).backend)


def explain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: ScoreLike = "scaled_dot",
    normalise: str | Normaliser = "softmax",
    visible: Visible | Tensor | None = None,
    dropout: float = 0.0,
    backend: str = "auto",
) -> backends.Plan:
    """Which backend `attend` would run with these arguments, and why not a faster one. Print it.

    The arguments are those of `attend`; see help(attend).
    """
    return backends.plan(_call(query, key, value, score, normalise, visible, dropout, backend), backend)


def score_pairs(query: Tensor, key: Tensor, score: ScoreLike = "scaled_dot") -> Float[Tensor, "*lead query key"]:
    """The first stage alone: the score of every query [*lead, query, dim] with every key [*lead, key, dim]."""
    score = find_score(score)
    check_tensors(query=query, key=key)
    check_parameters(score, query)
    score.check(query, key)
    leading_axes(score, query=query, key=key)
    prepared = score.prepare(query, key)
    return prepared.score(prepared.query, prepared.key)


def find_score(score: ScoreLike) -> Score:
    """The score behind a name or a function; a score stays itself."""
    if isinstance(score, Score):
        return score
    if isinstance(score, str) and score in SCORES:
        return SCORES[score]()
    if isinstance(score, str) and score in WITH_PARAMETERS:
        raise ArgumentError(f'score "{score}" has parameters: pass score={score}(...), from jumok.attention')
    if isinstance(score, str) or not callable(score):
        known = ", ".join([*SCORES, *WITH_PARAMETERS])
        raise ArgumentError(f"score must be one of {known}, or a function of query and key, but it is {score!r}")
    makers: list[object] = [*SCORES.values(), *WITH_PARAMETERS.values()]
    if score in makers:
        raise ArgumentError(f"score is the function that makes a score; call it: score={score.__name__}(...)")
    check_signature("score", score, "query", "key")
    return Custom(score)


def _call(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: ScoreLike,
    normalise: str | Normaliser,
    visible: Visible | Tensor | None,
    dropout: float,
    backend: str,
) -> AttentionCall:
    """Check the arguments and bring them to one form."""
    query, key, value = common_dtype(query, key, value)
    check_tensors(query=query, key=key, value=value)
    if key.shape[-2] != value.shape[-2]:
        raise ArgumentError(f"key has {key.shape[-2]} rows but value has {value.shape[-2]}; every key needs its value")
    if not (isinstance(dropout, Real) and 0 <= dropout < 1):
        raise ArgumentError(f"dropout must be at least 0 and below 1, but it is {dropout!r}")
    given = find_score(score)
    check_parameters(given, query)
    given.check(query, key)
    lead = leading_axes(given, query=query, key=key, value=value)
    queries, keys = query.shape[-2], key.shape[-2]
    tile = Tile(lead, queries, keys, query.device)
    if visible is not None:
        visible = as_visible(visible)
        visible.check(lead=lead, queries=queries, keys=keys, device=query.device)
    normaliser, sees_nonfinite = find_normaliser(normalise), None
    # Its kernels keep what is not finite apart by themselves.
    if not (backend in ("auto", "fused") and fused.takes(given, normaliser, visible, query, value)):
        query, key, value, sees_nonfinite = isolate_nonfinite(query, key, value, visible, tile)
    ready, query, key = given.prepare(query, key)
    query, key, value = (
        tensor if tensor.shape[:-2] == lead else tensor.expand(*lead, *tensor.shape[-2:])
        for tensor in (query, key, value)
    )
    return AttentionCall(
        query, key, value, ready, normaliser, visible, float(dropout), tile, sees_nonfinite, given=given
    )
