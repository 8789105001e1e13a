"""Backends: the one place that decides how a call of attention is computed, and explains why."""

import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

import torch
from torch import Tensor

from jumok.attention import blocks, flex, sdpa, tracing
from jumok.attention.additive.cpu import TiledAdditive
from jumok.attention.additive.reference import Additive, Concat
from jumok.attention.call import AttentionCall
from jumok.attention.checks import is_autocast
from jumok.attention.masks import Causal
from jumok.attention.modified_dot import ModifiedDot
from jumok.attention.nonfinite import all_finite
from jumok.attention.normalise import NORMALISERS, softmax
from jumok.attention.scores import Custom, Dot, Positional, ScaledDot, Score
from jumok.attention.sequences import in_sequences
from jumok.attention.weights import Attended, Weights, versions
from jumok.errors import ArgumentError, BackendError

NAMES = ("sdpa", "fused", "flex", "blocked", "direct")
"""From the fastest to the one that always works."""

MOST_FEATURES = 128
"""The widest heads whose tiles fit into the shared memory of a GPU."""

LONG_CAUSAL = 512
"""From this length on, cuDNN's causal kernel is faster than ours; it prepares itself anew for every new shape."""

FEW_FEATURES = 2**18
"""Up to this many numbers tanh(q + k), computing them all at once on a CPU is faster than computing them in tiles.

On one thread they are equally fast at 1M numbers where PyTorch's tanh has AVX-512, and at 130k to 260k without.
"""

HAS_TRITON = importlib.util.find_spec("triton") is not None


@dataclass(frozen=True)
class Plan:
    """Which backend runs a call, and why the others do not."""

    backend: str
    reason: str
    against: dict[str, str]
    tiled: bool = False
    """Whether "blocked" computes additive scores in tiles on a CPU (see additive/cpu.py)."""
    repaired: bool = False
    """Whether "sdpa" runs on the inputs as they are, and NaN that spreads is repaired (see flash/causal.py)."""

    @property
    def isolates(self) -> bool:
        """Whether the kernels themselves keep NaN behind a mask from spreading."""
        return self.backend == "fused" or self.repaired

    def __str__(self) -> str:
        others = [f"  not {name}: {reason}" for name, reason in self.against.items()]
        return "\n".join([f"{self.backend}: {self.reason}", *others])


def choose(call: AttentionCall, backend: str = "auto") -> Plan:
    """The fastest backend that can run the call, or the one asked for by name if it can."""
    if backend == "auto":
        return _fastest(call)
    if backend not in NAMES:
        raise ArgumentError(f"backend must be auto or one of {', '.join(NAMES)}, but it is {backend!r}")
    if backend in OBSTACLES and (obstacle := _obstacle(backend, call)) is not None:
        raise BackendError(
            f'backend "{backend}" cannot run this call: {obstacle}; "auto" would run "{_fastest(call).backend}"'
        )
    tiled = backend == "blocked" and why_no_tiles(call.score, call.query) is None
    return Plan(backend, "asked for by name", {}, tiled, backend == "sdpa" and _can_repair(call))


def _fastest(call: AttentionCall) -> Plan:
    direct = "computed as the equation is written, all rows at once"
    repaired = _can_repair(call)
    names = _from_the_fastest(call, repaired)
    if tracing.in_transform():
        return Plan("direct", direct, dict.fromkeys(names, tracing.REASON))
    against: dict[str, str] = {}
    for name in names:
        if (reason := _obstacle(name, call)) is not None:
            against[name] = reason
        elif name == "sdpa" and repaired:
            return Plan(name, REASONS["causal"], against, repaired=True)
        elif name != "blocked":
            flash = name == "fused" and call.score.kind is not Additive
            return Plan(name, REASONS["flash" if flash else name], against)
    if "blocked" not in against:
        tiled = why_no_tiles(call.score, call.query) is None
        if (reason := _why_blocks_do_not_help(call, tiled)) is None:
            return Plan("blocked", REASONS["tiled" if tiled else "blocked"], against, tiled)
        against["blocked"] = reason
    return Plan("direct", direct, against)


def _obstacle(name: str, call: AttentionCall) -> str | None:
    """Why a backend cannot run a call; None if it can."""
    if call.degree and name != "blocked":
        return "its kernel computes weighted means, and degree=1 fits a line at each query"
    return OBSTACLES[name](call)


def _from_the_fastest(call: AttentionCall, repaired: bool) -> tuple[str, ...]:
    """PyTorch's kernel is the fastest without a mask. With one, ours skips what is hidden and needs no other pass."""
    if isinstance(call.score, ModifiedDot) and call.score.change is not None:
        return ("sdpa", "fused", "flex", "blocked")
    masked = call.visible is not None or call.score.kind is not Dot
    if call.query.is_cuda and masked and not repaired:
        return ("fused", "sdpa", "blocked")
    return ("sdpa", "fused", "blocked")


def run(call: AttentionCall, plan: Plan) -> Attended:
    """Compute a call with the backend that was chosen for it."""
    # The fused kernels isolate NaN and infinity themselves; a projection in front of them does not.
    bare = isinstance(call.score, Additive | Dot | ScaledDot | ModifiedDot)
    return run_prepared(call.prepare(isolate=not (plan.isolates and bare)), plan)


def run_prepared(call: AttentionCall, plan: Plan) -> Attended:
    """Compute a call whose queries and keys are ready for the kernels."""
    if plan.repaired:
        from jumok.attention.flash import operators as flash  # imports Triton

        return _attended(call, flash.run_causal(call))
    if plan.backend == "sdpa" and (values := _sdpa_of_finite(call)) is not None:
        return _attended(call, values)
    if not plan.isolates:
        call = call.isolate()
    if plan.backend == "sdpa":
        return _attended(call, in_sequences(sdpa.run, call))
    if plan.backend == "fused" and isinstance(call.score, Dot | ModifiedDot):
        from jumok.attention.flash import operators as flash  # imports Triton

        return _attended(call, flash.run(call))
    if plan.backend == "fused":
        from jumok.attention.additive.gpu import operators  # imports Triton

        values, call = operators.run(call)
        return _attended(call, values)
    if plan.backend == "flex":
        return _attended(call, flex.run(call))
    if plan.backend == "blocked":
        if plan.tiled:
            assert isinstance(call.score, Additive)
            call = replace(call, score=TiledAdditive(call.score.v))
        return _attended(call, in_sequences(blocks.run, call))
    weights = call.weights()
    return _attended(call, call.mix(weights), weights)


def _sdpa_of_finite(call: AttentionCall) -> Tensor | None:
    """The values of a small call on a CPU under a mask, where sums show that there was nothing to isolate.

    Without gradients, whose products could still overflow, finite queries and keys and a finite output are proof
    enough: a value that is not finite makes the output so, whatever its weight, as does a query that sees nothing
    where the kernel divides 0 by 0 for it instead of giving 0.
    """
    if call.isolated or call.visible is None or call.dropout or not tracing.is_readable(call.query):
        return None
    query, key, value = call.query, call.key, call.value
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad):
        return None
    if not all_finite(query, key):
        return None
    values = in_sequences(partial(sdpa.run, nan_for_nothing=True), call)
    return values if all_finite(values) else None


def _attended(call: AttentionCall, values: Tensor, matrix: Tensor | None = None) -> Attended:
    if call.sees_nonfinite is not None:
        values = values.masked_fill(call.sees_nonfinite[..., None], torch.nan)
        matrix = None if matrix is None else matrix.masked_fill(call.sees_nonfinite[..., None], torch.nan)
    return Attended(values, Weights(call, matrix, versions(call) if matrix is None else ()))


def _why_not_sdpa(call: AttentionCall) -> str | None:
    if call.score.kind is ModifiedDot:
        return f"{call.score_name} is more than a dot product"
    if call.score.kind is not Dot:
        return f"{call.score_name} is not a dot product"
    return _why_not_softmax(call)


def _why_not_fused(call: AttentionCall) -> str | None:
    if call.score.kind not in (Additive, Dot, ModifiedDot):
        return f"{call.score_name} is neither additive nor a dot product"
    if tracing.in_transform():
        return tracing.REASON
    if call.score.planes(call.query) == 0 or call.value.shape[-1] == 0 or call.query.shape[-1] == 0:
        return "there is nothing to compare"
    if call.score.kind is not Additive and (reason := _why_not_flash(call)) is not None:
        return reason
    return _why_not_softmax(call) or why_no_triton(call.query.device, _score_dtype(call.score, call.query))


def _why_not_flash(call: AttentionCall) -> str | None:
    if isinstance(call.score, ModifiedDot) and call.score.change is not None:
        return "its kernels cannot call a function of the caller"
    widest = max(call.key.shape[-1], call.value.shape[-1])
    if widest > MOST_FEATURES:
        return f"takes heads of up to {MOST_FEATURES} features, but these have {widest}"
    if any(tensor.shape[-2] * tensor.stride(-2) >= 2**31 for tensor in (call.query, call.key, call.value)):
        return "a sequence is too long for the 32-bit positions of its kernels"
    return None


def _why_not_flex(call: AttentionCall) -> str | None:
    if not isinstance(call.score, ModifiedDot) or call.score.change is None:
        return f"{call.score_name} has no function of the caller"
    if not (call.query.is_cuda and torch.compiler.is_compiling() and not tracing.is_exported()):
        return "runs only inside torch.compile on a CUDA GPU"
    if call.score.sinks is not None or call.dropout:
        return "takes neither sinks nor dropout"
    return _why_not_softmax(call)


def _why_not_blocked(call: AttentionCall) -> str | None:
    if isinstance(call.score, Custom) and not isinstance(call.score, Positional):
        return f"{call.score} may look at positions, so it needs all queries at once; positional(...) passes positions"
    return None


OBSTACLES: dict[str, Callable[[AttentionCall], str | None]] = {
    "sdpa": _why_not_sdpa,
    "fused": _why_not_fused,
    "flex": _why_not_flex,
    "blocked": _why_not_blocked,
}
"""Why a backend cannot run a call; "direct" can run every call."""

REASONS = {
    "sdpa": "a softmax over dot products runs in PyTorch's fused kernel; weights are rebuilt when asked for",
    "causal": "PyTorch's causal kernel runs on the inputs as they are, and NaN behind the mask is repaired afterwards",
    "flash": "Triton kernels skip what the mask hides and store no weights; weights are rebuilt when asked for",
    "fused": "Triton kernels compute scores from shared exponentials; weights are rebuilt when asked for",
    "flex": "PyTorch's flex attention compiles the function into its kernel; weights are rebuilt when asked for",
    "tiled": "tanh comes from shared exponentials, a cache-sized tile at a time, and is recomputed for the gradient",
    "blocked": "computed in blocks of rows, recomputed for the gradient",
}


def _can_repair(call: AttentionCall) -> bool:
    """Whether a causal call is faster in cuDNN's kernel than in ours, as measured on an H200."""
    if not (call.query.is_cuda and isinstance(call.visible, Causal) and call.visible.offset == 0):
        return False
    query, key, value = call.query, call.key, call.value
    half = query.dtype in (torch.float16, torch.bfloat16)
    plain = isinstance(call.score, Dot | ScaledDot) and not call.dropout and not tracing.in_transform()
    if not (half and plain and query.shape == key.shape == value.shape) or _why_not_fused(call) is not None:
        return False
    time, dim = query.shape[-2:]
    fits = not tracing.is_symbolic(time) and time >= LONG_CAUSAL and dim in (64, 128)
    if not fits or not _is_hopper(query.device):
        return False
    return torch.compiler.is_compiling() or torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]


def _why_not_softmax(call: AttentionCall) -> str | None:
    """Why a kernel for softmax attention cannot run the call."""
    if call.normalise is not softmax:
        return "normalises by softmax only"
    if call.visible is not None and call.visible.scales_weights:
        return "a Gaussian window multiplies the weights after the softmax"
    return "there is nothing to compare" if call.pairs == 0 else None


def _why_blocks_do_not_help(call: AttentionCall, tiled: bool) -> str | None:
    if call.normalise not in NORMALISERS.values():
        name = getattr(call.normalise, "__name__", "of the caller")
        return f"normalise {name} is a function that may need to see every row at once"
    if tracing.is_symbolic(*call.query.shape, *call.key.shape):
        return "for large calls only, and the size of this call is not known yet"
    if tiled:
        return _why_tiles_do_not_help(call)
    size = blocks.bytes_at_once(call)
    if size > blocks.BLOCK_BYTES:
        return None
    # A compiler with symbolic sizes has no number to print.
    printed = "" if torch.compiler.is_compiling() else f", {_print_bytes(size)},"
    return f"the largest tensor{printed} is small enough to build at once"


def _why_tiles_do_not_help(call: AttentionCall) -> str | None:
    if call.pairs * call.planes <= FEW_FEATURES:
        return "too small for tiles to pay off"
    if 1 in (call.tile.height, call.tile.keys):
        return "computes tanh from shared exponentials, but with one query or one key no pairs share one"
    return None


def why_no_tiles(score: Score, query: Tensor) -> str | None:
    """Why additive scores cannot be computed in tiles on a CPU; None if they can."""
    if score.kind is not Additive:
        return f"{score} is not additive"
    if tracing.in_transform():
        return tracing.REASON
    if tracing.is_exported():
        return "an exported program should need no operators of jumok"
    if not query.is_cpu:
        return f"query is on {query.device}"
    dtype = _score_dtype(score, query)
    if dtype not in (torch.float32, torch.float64):
        return f"query is {dtype}"
    v = score.v if isinstance(score, Additive | Concat) else None
    return "v has leading axes" if v is None or v.dim() > 1 else None


def why_no_triton(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why Triton kernels cannot run on tensors of this device and dtype; None if they can."""
    if not (device.type == "cuda" or (device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1")):
        return f"needs a CUDA GPU, but query is on {device}"
    if dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"takes float32, bfloat16 and float16, but query is {dtype}"
    if not HAS_TRITON:
        return "Triton is not installed; pip install triton"
    if device.type == "cuda" and not _is_ampere(device):
        return "the GPU is older than Ampere (compute capability 8.0)"
    return None


def runs_on_kernels(x: Tensor, dtype: torch.dtype | None = None) -> bool:
    """Whether Triton kernels can compute with a tensor, or with it in another dtype: one with numbers, on a GPU."""
    return x.numel() > 0 and not tracing.in_transform() and why_no_triton(x.device, dtype or x.dtype) is None


@cache
def _is_hopper(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device)[0] == 9 and torch.version.cuda is not None


@cache
def _is_ampere(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device)[0] >= 8


def _score_dtype(score: Score, query: Tensor) -> torch.dtype:
    """The dtype of the projected queries: autocast changes it where the score multiplies by a matrix."""
    if isinstance(score, Concat) and query.dtype != torch.float64 and is_autocast(query.device):
        return torch.get_autocast_dtype(query.device.type)
    return query.dtype


def _print_bytes(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} GiB"
