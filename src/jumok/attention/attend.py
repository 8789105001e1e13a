"""Attention(q, D) = Σ αᵢ(q, kᵢ) vᵢ: `attend`, `explain`, and the scores alone."""

from collections.abc import Callable
from dataclasses import fields
from numbers import Real

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.attention import backends, call_cache
from jumok.attention.additive.reference import additive, concat
from jumok.attention.call import AttentionCall
from jumok.attention.checks import check_tensors, common_dtype
from jumok.attention.distance_scores import boxcar, epanechnikov, gaussian, triangular
from jumok.attention.local_linear import LocalLinearCall
from jumok.attention.masks import Tile, Visible, as_visible
from jumok.attention.modified_dot import ModifiedDot, scaled_dot
from jumok.attention.normalise import Normaliser, find_normaliser, softmax
from jumok.attention.scores import Custom, Score, check_score, cosine, dot, general, location
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
"""The scores without parameters, by name."""

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
    degree: int = 0,
    dropout: float = 0.0,
    backend: str = "auto",
) -> Attended:
    """Mix the rows of `value` by how well each query matches each key.

    Shapes: query [*lead, query, query_dim], key [*lead, key, key_dim], value [*lead, key, value_dim]; leading axes
    (batch, heads, ...) broadcast. Gives values [*lead, query, value_dim] and weights [*lead, query, key] on demand.

    A query that sees nothing gets zeros; what is hidden from it, NaN included, reaches neither values nor gradients.

    score: how well a query matches a key: a name, a score of jumok.attention, or any function of query and key.
        Names: "dot", "scaled_dot", "cosine", and the regression kernels "gaussian", "boxcar", "epanechnikov",
        "triangular". With parameters: general(weight), location(weight), additive(v), concat(v, weight),
        scaled_dot(scale, bias=…, soft_cap=…, …), cosine(scale), and gaussian(bandwidth) as the other kernels.
    normalise: how scores become weights: "softmax", "sum" (the same function, as in Nadaraya-Watson regression),
        "sparsemax", "entmax15", "mean", or any function of the scores.
    visible: True where a query may attend; defaults to everywhere. A boolean tensor that broadcasts to [*lead, query,
        key], or a mask from from_lengths, causal, window, gaussian_window, packed, from_torch_padding or
        from_torch_mask.
        Masks combine with & | ~ (for limits under torch.compile see docs/attention.md).
    degree: 0 answers with the weighted mean of the values; 1 with the value at the query of a line fitted to them by
        weighted least squares, which has no bias at the edge of the keys. Its weights sum to 1 but can be negative
        (jumok/attention/local_linear.py).
    dropout: the probability of dropping a weight; layers pass 0 outside training.
    backend: "auto" runs the fastest of "sdpa" (PyTorch's fused kernel), "fused" (jumok's kernels on a GPU), "flex"
        (PyTorch's flex attention), "blocked" (blocks of rows) and "direct" (the equation as written) that can run the
        call; a name runs that one or raises BackendError. `explain` shows the choice and its reasons.
    """
    if degree != 0:
        linear = _local_linear(_check_arguments(query, key, value, score, normalise, visible, dropout), degree)
        return backends.run(linear, backends.choose(linear, backend))
    if isinstance(visible, Tensor):
        visible = as_visible(visible)
    call_signature = call_cache.signature(query, key, value, score, normalise, visible, dropout, backend)
    known = call_cache.cached_plan(call_signature)
    if known is not None:
        return backends.run_prepared(known.call(query, key, value, visible), known.plan)
    call = _check_arguments(query, key, value, score, normalise, visible, dropout)
    plan = backends.choose(call, backend)
    call_cache.store_plan(call_signature, call, plan)
    return backends.run(call, plan)


def explain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    score: ScoreLike = "scaled_dot",
    normalise: str | Normaliser = "softmax",
    visible: Visible | Tensor | None = None,
    degree: int = 0,
    dropout: float = 0.0,
    backend: str = "auto",
) -> backends.Plan:
    """The backend that `attend` runs with these arguments, and why not a faster one. Print it.

    The arguments are those of `attend`; see help(attend).
    """
    call = _check_arguments(query, key, value, score, normalise, visible, dropout)
    return backends.choose(_local_linear(call, degree) if degree != 0 else call, backend)


def score_pairs(query: Tensor, key: Tensor, score: ScoreLike = "scaled_dot") -> Float[Tensor, "*lead query key"]:
    """The first stage alone: the score of every query [*lead, query, dim] with every key [*lead, key, dim]."""
    score = find_score(score)
    check_tensors(query=query, key=key)
    check_score(score, query, key)
    _leading_axes(score, query=query, key=key)
    prepared = score.prepare(query, key)
    return prepared.score(prepared.query, prepared.key)


def find_score(score: ScoreLike) -> Score:
    """The score for a name or a function; a `Score` is returned unchanged."""
    if isinstance(score, str) and score in SCORES:
        return SCORES[score]()
    if isinstance(score, Score):
        return score
    if isinstance(score, str) or not callable(score):
        if isinstance(score, str) and score in WITH_PARAMETERS:
            raise ArgumentError(f'score "{score}" has parameters: pass score={score}(...), from jumok.attention')
        known = ", ".join([*SCORES, *WITH_PARAMETERS])
        raise ArgumentError(f"score must be one of {known}, or a function of query and key, but it is {score!r}")
    makers: list[object] = [*SCORES.values(), *WITH_PARAMETERS.values()]
    if score in makers:
        raise ArgumentError(
            f"`score={score.__name__}` is a function that creates a score; call it: score={score.__name__}(...)"
        )
    return Custom(score)


def _check_arguments(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score: ScoreLike,
    normalise: str | Normaliser,
    visible: Visible | Tensor | None,
    dropout: float,
) -> AttentionCall:
    query, key, value = common_dtype(query, key, value)
    check_tensors(query=query, key=key, value=value)
    if key.shape[-2] != value.shape[-2]:
        raise ArgumentError(f"key has {key.shape[-2]} rows but value has {value.shape[-2]}; every key needs its value")
    if not (isinstance(dropout, float | Real) and 0 <= dropout < 1):
        raise ArgumentError(f"dropout must be at least 0 and below 1, but it is {dropout!r}")
    score = find_score(score)
    check_score(score, query, key)
    lead = _leading_axes(score, query=query, key=key, value=value)
    tile = Tile(lead, query.shape[-2], key.shape[-2], query.device)
    if visible is not None:
        visible = as_visible(visible)
        visible.check(tile)
    normaliser = find_normaliser(normalise)
    if isinstance(score, ModifiedDot) and score.sinks is not None and normaliser is not softmax:
        raise ArgumentError('sinks join the denominator of a softmax; use normalise="softmax", or no sinks')
    return AttentionCall(query, key, value, score, normaliser, visible, float(dropout), tile)


def _local_linear(call: AttentionCall, degree: int) -> LocalLinearCall:
    if isinstance(degree, bool) or degree != 1:
        raise ArgumentError(f"degree must be 0 (a weighted mean) or 1 (a line at each query), but it is {degree!r}")
    dims = call.query.shape[-1], call.key.shape[-1]
    if dims[0] != dims[1]:
        raise ArgumentError(f"degree=1 needs queries and keys in one space, but query has {dims[0]} and key {dims[1]}")
    if call.dropout:
        raise ArgumentError("degree=1 does not support dropout; set dropout=0")
    return LocalLinearCall(**{field.name: getattr(call, field.name) for field in fields(AttentionCall)})


def _leading_axes(score: Score, **tensors: Tensor) -> tuple[int, ...]:
    """The axes before [time, dim], broadcast over all tensors and the score's own parameters."""
    if not score.parameter_axes:  # the usual case, and a small call on a CPU takes little longer than this function
        lead, *others = (tensor.shape[:-2] for tensor in tensors.values())
        if all(other == lead for other in others):
            return tuple(lead)
    leads = [(name, tuple(tensor.shape[:-2])) for name, tensor in tensors.items()]
    for name, own in score.parameter_axes.items():
        parameter = getattr(score, name)
        if isinstance(parameter, Tensor):
            leads.append((name, tuple(parameter.shape[: parameter.dim() - own])))
    # The usual case; torch.broadcast_shapes is slow.
    if all(lead == leads[0][1] or not lead for _, lead in leads):
        return leads[0][1]
    try:
        return tuple(torch.broadcast_shapes(*(lead for _, lead in leads)))  # type: ignore[no-untyped-call]
    except RuntimeError:
        shapes = ", ".join(f"{name if name in tensors else f'{name} of {score}'} {list(lead)}" for name, lead in leads)
        raise ArgumentError(f"the leading axes do not broadcast: {shapes}") from None
