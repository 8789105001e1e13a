"""Check fused additive attention on a CUDA GPU.

    python -m benchmarks.additive_checks

Compares outputs and all gradients with float64 at awkward sizes; new memory is filled with NaN. All checks run even if
some fail, in several processes because compilation takes most of the time. The exit code is the number of failures.
python -m benchmarks.additive_sanitizers looks for memory errors and races.
"""

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import additive_uses as uses
from benchmarks import results
from benchmarks.additive_shapes import ODD, Shape, inputs, poisoned, run, with_gradients
from benchmarks.results import Row
from jumok.attention import additive, attend, causal, from_lengths, window
from jumok.attention.additive.gpu import forward

RATIOS: dict[tuple[str, str], list[tuple[float, str]]] = {}
"""Our error over plain PyTorch's, by type and part, and where."""
MOST_PROCESSES = 10
PARTS = ("out", "dq", "dk", "dvalue", "dv")
KINDS = {torch.float32: ("fp32", 1e-5), torch.bfloat16: ("bf16", 2e-2), torch.float16: ("fp16", 2e-3)}
"""What a type is called, and what the largest error may be whatever PyTorch's is, in shares of the largest number."""
DRAWS, ENOUGH = 3, 300
"""At least so many draws, and so many queries in all: the error of few of them is a matter of luck."""
FEW = (
    "size (2, 63, 65",
    "size (2, 4,",
    "size (2, 20, 35",
    "lengths",
    "both",
    "tensor",
    "spread 100",
    "spread 0.01",
    "dropout",
    "weights",
    "large tiles",
)
"""How the names of some checks begin that run every kernel."""


@contextmanager
def large_tiles() -> Iterator[None]:
    """As if every problem filled the card: small ones run the kernels of large ones."""
    held, forward.FULL = forward.FULL, 0
    try:
        yield
    finally:
        forward.FULL = held


def compare(name: str, shape: Shape, dtype: torch.dtype, spread: float = 1.0, **options) -> str:
    """Our error and plain torch's against float64, for values and each gradient, over some draws.

    Wrong where the root of the mean square is over twice theirs, or the largest much over it.
    """
    kind, floor = KINDS[dtype]
    draws = max(DRAWS, -(-ENOUGH // (shape.batch * shape.queries)))
    wrong, errors = set(), []
    draws_made = [one_draw(shape, dtype, spread, options) for _ in range(draws)]
    for index, part in enumerate(PARTS):
        want, ref, got = (torch.stack([draw[index][which] for draw in draws_made]).double() for which in range(3))
        (ours, most), (theirs, their_most) = (
            (error.square().mean().sqrt().item(), error.abs().max().item()) for error in (got - want, ref - want)
        )
        errors.append(f"{part} {ours:.1e}/{theirs:.1e}")
        if theirs > 0:
            RATIOS.setdefault((kind, part), []).append((ours / theirs, f"{name} {tuple(shape)}"))
        if not ours <= 2 * theirs or not most <= 2 * their_most + floor * max(1.0, want.abs().max().item()):
            wrong.add(part)
    return f"{'WRONG ' + ','.join(sorted(wrong)) if wrong else 'ok'}: {' '.join(errors)}"


def one_draw(
    shape: Shape, dtype: torch.dtype, spread: float, options: dict[str, Any]
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Values and each gradient: in float64, in plain torch, and ours."""
    tensors = inputs(shape, dtype, spread)
    upstream = torch.randn(shape.batch, shape.queries, shape.values, device="cuda").to(dtype)
    exact = with_gradients(run("direct", **options), [tensor.double() for tensor in tensors], upstream.double())
    plain = with_gradients(run("direct", **options), tensors, upstream)
    with poisoned():
        ours = with_gradients(run("fused", **options), tensors, upstream)
    return list(zip(exact, plain, ours, strict=True))


def checks() -> dict[str, Callable[[], str]]:
    f32, bf16, f16 = torch.float32, torch.bfloat16, torch.float16
    named: dict[str, Callable[[], str]] = {}

    def add(name: str, shape: Shape, dtype: torch.dtype = f32, **options) -> None:
        named[f"{name} {tuple(shape)} {str(dtype)[6:]}"] = lambda: compare(name, shape, dtype, **options)

    for shape in ODD:
        add("size", shape)
        add("size", shape, bf16)
    for spread in (0.01, 0.1, 0.3, 3.0, 8.0, 100.0):
        add(f"spread {spread}", Shape(2, 65, 129, 60, 32), spread=spread)
    for spread in (0.01, 8.0):
        add(f"half, spread {spread}", Shape(2, 65, 129, 60, 32), bf16, spread=spread)
    for shape in ODD[1:4]:
        add("half", shape, f16)
    lengths = torch.tensor([129, 0, 70], device="cuda")
    odd = Shape(3, 65, 129, 60, 32)
    for name, visible in (
        ("lengths", from_lengths(lengths)), ("causal", causal(3)), ("window", window(5, 2)),
        ("both", causal(40) & from_lengths(lengths)), ("tensor", torch.rand(3, 65, 129, device="cuda") > 0.5),
        ("keys", torch.rand(129, device="cuda") > 0.5),
    ):  # fmt: skip
        add(name, odd, visible=visible)
        add(f"half, {name}", odd, bf16, visible=visible)
        named |= large(name, partial(compare, f"large tiles, {name}", odd, f32, visible=visible))
    for spread in (0.01, 1.0, 8.0, 100.0):
        named |= large(f"spread {spread}", partial(compare, f"large tiles, spread {spread}", odd, f32, spread))
    for dim, spread in ((60, 0.3), (60, 0.5), (60, 1.0), (60, 3.0), (256, 1.0)):
        named[f"scores alone, {dim} features, spread {spread}"] = partial(scores_alone, dim, spread)
    for spread in (0.1, 1.0, 8.0, 30.0):
        named[f"scores alone, v of a million, spread {spread}"] = partial(scores_alone, 60, spread, 1e6)
    add("lengths, one query", Shape(3, 1, 129, 60, 32), visible=from_lengths(lengths))
    add("spread 0.01, one query", Shape(3, 1, 129, 60, 32), spread=0.01)
    named |= {
        "NaN behind a mask": nan_behind_a_mask,
        "two runs are bit-equal": partial(bit_equal, 300), "two runs, few queries": partial(bit_equal, 2),
        "two runs under a mask": partial(bit_equal, 300, visible=causal(200) & window(90, 5)),
        "two runs with dropout": partial(bit_equal, 300, dropout=0.3),
        "two runs in half precision": partial(bit_equal, 300, bf16),
        "dropout": partial(dropout_is_fair, 128), "dropout, few queries": partial(dropout_is_fair, 4),
        "weights": partial(weights_on_demand, 70, 90), "weights, one query": partial(weights_on_demand, 1, 500),
        "weights under autocast": uses.weights_under_autocast, "opcheck": uses.opcheck,
        "torch.compile": uses.compiled, "explain": uses.explained, "CUDA graph": uses.graphed,
        "CUDA graph under a mask": partial(uses.graphed, visible=causal(5) & from_lengths(lengths[:2])),
        "autocast and checkpoint": uses.autocast_and_checkpoint, "piecewise backward": uses.piecewise,
    }  # fmt: skip
    for name in ("piecewise backward", "dropout", "two runs are bit-equal", "two runs under a mask"):
        named |= large(name, named[name])
    return named


def large(name: str, check: Callable[[], str]) -> dict[str, Callable[[], str]]:
    """A check once more, with large tiles."""

    def checked() -> str:
        with large_tiles():
            return check()

    return {f"large tiles, {name}": checked}


@poisoned()
def nan_behind_a_mask() -> str:
    tensors = inputs(Shape(2, 40, 50, 32, 16))
    for tensor in tensors[1:3]:
        tensor[:, 30:] = torch.nan
    gradients = with_gradients(
        run("fused", visible=from_lengths(torch.tensor([30, 20], device="cuda"))),
        tensors,
        torch.ones(2, 40, 16, device="cuda"),
    )
    return "ok" if all(tensor.isfinite().all() for tensor in gradients) else "WRONG"


def bit_equal(queries: int, dtype: torch.dtype = torch.float32, **options) -> str:
    tensors = inputs(Shape(2, queries, 500, 64, 64), dtype)
    upstream, both = torch.randn(2, queries, 64, device="cuda").to(dtype), []
    for _ in range(2):
        torch.manual_seed(1)  # for dropout
        both.append(with_gradients(run("fused", **options), tensors, upstream))
    return "ok" if all(torch.equal(a, b) for a, b in zip(*both, strict=True)) else "WRONG"


@poisoned()
def dropout_is_fair(queries: int) -> str:
    """Weights dropped or scaled in the right share; the gradient is that of the same dropped weights."""
    tensors = inputs(Shape(2 * 128 // queries, queries, 200, 32, 200))
    tensors[2] = torch.eye(200, device="cuda").repeat(2 * 128 // queries, 1, 1)  # values show the weights
    weights = attend(*tensors[:3], score=additive(tensors[3])).weights()
    leaves = [tensor.requires_grad_() for tensor in tensors]
    dropped = run("fused", dropout=0.25)(*leaves)
    kept = dropped > 0
    off = ((dropped - weights / 0.75) * kept).abs().max().item()
    upstream = torch.randn_like(dropped)
    gradients = torch.autograd.grad(dropped, leaves, upstream)
    plain = (attend(*leaves[:3], score=additive(leaves[3]), backend="direct").weights() * kept / 0.75) @ leaves[2]
    wanted = torch.autograd.grad(plain, leaves, upstream)
    worst = max((a - b).abs().max().item() for a, b in zip(gradients, wanted, strict=True))
    share = kept.float().mean().item()
    right = off < 1e-5 and worst < 1e-3 and abs(share - 0.75) < 0.01
    return f"{'ok' if right else 'WRONG'}: kept {share:.3f}, {off:.1e}, {worst:.1e}"


@poisoned()
def weights_on_demand(queries: int, keys: int) -> str:
    query, key, value, v = inputs(Shape(2, queries, keys, 48, 16))
    upstream = torch.randn(2, queries, keys, device="cuda")
    both = []
    for backend in ("fused", "direct"):
        leaves = [tensor.detach().clone().requires_grad_() for tensor in (query, key, v)]
        weights = attend(
            leaves[0], leaves[1], value, score=additive(leaves[2]), visible=causal(keys // 10), backend=backend
        ).weights()
        both.append([weights, *torch.autograd.grad(weights, leaves, upstream)])
    worst = max((a - b).abs().max().item() for a, b in zip(*both, strict=True))
    return f"{'ok' if worst < 1e-4 else 'WRONG'}: {worst:.1e}"


def scores_alone(dim: int, spread: float, large: float = 1.0) -> str:
    """Their error, which shows undiluted where v is large and weights are peaked."""
    from jumok.attention.additive.gpu import operators

    query, key, _, v = inputs(Shape(8, 64, 64, dim, 1), spread=spread)
    v *= large
    plain = torch.tanh(query[:, :, None] + key[:, None]) @ v
    exact = torch.tanh(query.double()[:, :, None] + key.double()[:, None]) @ v.double()
    fused = operators.additive_scores(query, key, v[None])
    ours, theirs = ((scores - exact).square().mean().sqrt().item() for scores in (fused, plain))
    RATIOS.setdefault(("fp32", "scores"), []).append(
        (ours / theirs, f"{dim} features, spread {spread}, v times {large:g}")
    )
    return f"{'ok' if ours <= 2 * theirs else 'WRONG'}: {ours:.1e}/{theirs:.1e}"


def run_checks(chosen: dict[str, Callable[[], str]]) -> int:
    bad = 0
    for name, check in chosen.items():
        started = time.time()
        verdict = attempt(check)
        bad += not verdict.startswith("ok")
        print(f"  {name:58} {time.time() - started:4.1f} s {verdict}", flush=True)
    print(f"checks: {bad} wrong", flush=True)
    return bad


def attempt(function: Callable[[], str]) -> str:
    try:
        return function()
    except Exception as error:
        traceback.print_exc(limit=-6)
        return f"FAILED: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]


def some_checks(part: int, parts: int) -> tuple[int, dict[tuple[str, str], list[tuple[float, str]]]]:
    """One of so many parts of the checks: how many failed, and the errors."""
    RATIOS.clear()
    torch.manual_seed(0)
    return run_checks(dict(list(checks().items())[part::parts])), RATIOS


def check_all() -> int:
    """All of them, into additive_checks.json; how many failed."""
    parts = min(MOST_PROCESSES, os.cpu_count() or 1)
    with ProcessPoolExecutor(parts, mp_context=get_context("spawn")) as pool:
        done = list(pool.map(some_checks, range(parts), [parts] * parts))
    bad = sum(failed for failed, _ in done)
    print(f"{bad} of {len(checks())} checks wrong")
    ratios = {
        key: [ratio for _, errors in done for ratio in errors.get(key, [])] for _, errors in done for key in errors
    }
    rows = [
        Row("additive-checks/failed", "jumok", bad, "checks", f"of {len(checks())}"),
        *(
            Row(f"additive-error/{part}, {kind}", "jumok", max(errors)[0], "× PyTorch's", f"worst at {max(errors)[1]}")
            for (kind, part), errors in sorted(ratios.items(), reverse=True)
        ),
    ]
    results.write("additive_checks", rows, device=torch.cuda.get_device_name(), packages=("torch", "triton"))
    return bad


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--few", action="store_true", help="one of each kind only, for slow tools")
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    options = parser.parse_args()
    results.FOLDER = options.out
    if not options.few:
        sys.exit(check_all())
    ENOUGH = 1
    torch.manual_seed(0)
    sys.exit(run_checks({name: check for name, check in checks().items() if name.startswith(FEW)}))
