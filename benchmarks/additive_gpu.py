"""Fused additive attention on a CUDA GPU: is it right, how fast is it, and what would other tiles give.

    python -m benchmarks.additive_gpu [--only checks,sweep,times] [--out FOLDER]

Checks compare outputs and all gradients with float64 at awkward sizes. The sweep times tiles of each kernel. Times
compare jumok with the direct form in eager PyTorch and under torch.compile and write additive_gpu.json: time and peak
memory, forward alone and with backward. Every part goes on past what fails and says so.
"""

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks import results
from benchmarks.results import Row
from jumok.attention import additive, attend, causal, explain, from_lengths, window

SIDE_SWEEP = [(64, 64, 8), (64, 64, 4), (64, 128, 8), (128, 64, 8), (32, 64, 4), (32, 128, 4), (32, 64, 2), (64, 32, 4)]
SCORE_SWEEP = [(64, 64, 8), (64, 64, 4), (64, 128, 8), (128, 64, 8), (32, 64, 4), (32, 64, 2), (128, 128, 8)]


class Shape(NamedTuple):
    """B sequences, queries and keys, width of the score and of the values."""

    batch: int
    queries: int
    keys: int
    dim: int
    values: int

    def __str__(self) -> str:
        time = f"T{self.queries}" if self.queries == self.keys else f"T{self.queries}×{self.keys}"
        return f"B{self.batch} {time} d{self.dim}"

    @property
    def elements(self) -> int:
        return self.batch * self.queries * self.keys * self.dim


MAIN = Shape(16, 512, 512, 256, 128)
SHAPES = [MAIN, Shape(64, 64, 64, 512, 128), Shape(128, 10, 128, 1024, 1024), Shape(1280, 1, 66, 1024, 1024)]
ODD = [
    Shape(*sizes)
    for sizes in (
        (1, 1, 1, 8, 1),
        (2, 63, 65, 60, 17),
        (2, 65, 63, 512, 128),
        (1, 129, 500, 64, 64),
        (1, 500, 129, 60, 300),
        (3, 1, 500, 512, 256),
        (2, 4, 129, 60, 40),
        (1, 20, 4000, 64, 64),
    )
]
LONG = [Shape(1, length, length, 256, 128) for length in (512, 1024, 2048, 4096, 8192, 16384)]


def inputs(shape: Shape, dtype: torch.dtype = torch.float32, spread: float = 0.5) -> list[Tensor]:
    """Query, key, value, v."""
    sizes = ((shape.batch, shape.queries, shape.dim), (shape.batch, shape.keys, shape.dim))
    query, key = (torch.randn(size, device="cuda") * spread for size in sizes)
    value = torch.randn(shape.batch, shape.keys, shape.values, device="cuda")
    return [tensor.to(dtype) for tensor in (query, key, value, torch.randn(shape.dim, device="cuda"))]


def run(backend: str, **options) -> Callable[..., Tensor]:
    return lambda query, key, value, v: attend(query, key, value, score=additive(v), backend=backend, **options).values


def with_gradients(compute: Callable[..., Tensor], tensors: list[Tensor], upstream: Tensor) -> list[Tensor]:
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    values = compute(*leaves)
    return [values.detach(), *torch.autograd.grad(values, leaves, upstream)]


# --- checks


@contextmanager
def poisoned() -> Iterator[None]:
    """Fresh memory holds NaN."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def compare(name: str, shape: Shape, dtype: torch.dtype, spread: float = 1.0, **options) -> str:
    """Our error and plain torch's against float64, for values and each gradient; raises where ours is over twice."""
    tensors = inputs(shape, dtype, spread)
    upstream = torch.randn(shape.batch, shape.queries, shape.values, device="cuda").to(dtype)
    exact = with_gradients(run("direct", **options), [tensor.double() for tensor in tensors], upstream.double())
    plain = with_gradients(run("direct", **options), tensors, upstream)
    with poisoned():
        found = with_gradients(run("fused", **options), tensors, upstream)
    floor = 1e-5 if dtype == torch.float32 else 2e-2
    said, wrong = [], []
    for part, want, ref, got in zip(("out", "dq", "dk", "dvalue", "dv"), exact, plain, found, strict=True):
        ours, theirs = ((x.double() - want).abs().max().item() for x in (got, ref))
        scale = max(1.0, want.abs().max().item())
        said.append(f"{part} {ours:.1e}/{theirs:.1e}")
        if not ours <= 2 * theirs + floor * scale:
            wrong.append(part)
    return f"{'WRONG ' + ','.join(wrong) if wrong else 'ok'}: {' '.join(said)}"


def checks() -> dict[str, Callable[[], str]]:
    f32, bf16 = torch.float32, torch.bfloat16
    found: dict[str, Callable[[], str]] = {}

    def add(name: str, shape: Shape, dtype: torch.dtype = f32, **options) -> None:
        found[f"{name} {tuple(shape)} {str(dtype)[6:]}"] = lambda: compare(name, shape, dtype, **options)

    for shape in ODD:
        add("size", shape)
        add("size", shape, bf16)
    for spread in (0.01, 3.0, 8.0, 100.0):
        add(f"spread {spread}", Shape(2, 65, 129, 60, 32), spread=spread)
    lengths = torch.tensor([129, 0, 70], device="cuda")
    odd = Shape(3, 65, 129, 60, 32)
    for name, visible in (
        ("lengths", from_lengths(lengths)), ("causal", causal(3)), ("window", window(5, 2)),
        ("both", causal(40) & from_lengths(lengths)), ("tensor", torch.rand(3, 65, 129, device="cuda") > 0.5),
        ("keys", torch.rand(129, device="cuda") > 0.5),
    ):  # fmt: skip
        add(name, odd, visible=visible)
    add("lengths, one query", Shape(3, 1, 129, 60, 32), visible=from_lengths(lengths))
    found |= {
        "NaN behind a mask": nan_behind_a_mask, "two runs are bit-equal": bit_equal, "dropout": dropout_is_fair,
        "weights": weights_on_demand, "opcheck": opcheck, "torch.compile": compiled, "CUDA graph": graphed,
        "autocast and checkpoint": autocast_and_checkpoint, "explain": explained, "piecewise backward": piecewise,
    }  # fmt: skip
    return found


def nan_behind_a_mask() -> str:
    tensors = inputs(Shape(2, 40, 50, 32, 16))
    for tensor in tensors[1:3]:
        tensor[:, 30:] = torch.nan
    found = with_gradients(
        run("fused", visible=from_lengths(torch.tensor([30, 20], device="cuda"))),
        tensors,
        torch.ones(2, 40, 16, device="cuda"),
    )
    return "ok" if all(tensor.isfinite().all() for tensor in found) else "WRONG"


def bit_equal() -> str:
    tensors = inputs(Shape(2, 300, 500, 64, 64))
    upstream = torch.randn(2, 300, 64, device="cuda")
    one, other = (with_gradients(run("fused"), tensors, upstream) for _ in range(2))
    return "ok" if all(torch.equal(a, b) for a, b in zip(one, other, strict=True)) else "WRONG"


def dropout_is_fair() -> str:
    """Weights dropped or scaled in the right share; the gradient is that of the same dropped weights."""
    tensors = inputs(Shape(2, 128, 200, 32, 200))
    tensors[2] = torch.eye(200, device="cuda").expand(2, 200, 200).clone()  # values show the weights
    weights = attend(*tensors[:3], score=additive(tensors[3])).weights()
    leaves = [tensor.requires_grad_() for tensor in tensors]
    dropped = run("fused", dropout=0.25)(*leaves)
    kept = dropped > 0
    off = ((dropped - weights / 0.75) * kept).abs().max().item()
    upstream = torch.randn_like(dropped)
    found = torch.autograd.grad(dropped, leaves, upstream)
    plain = (attend(*leaves[:3], score=additive(leaves[3]), backend="direct").weights() * kept / 0.75) @ leaves[2]
    wanted = torch.autograd.grad(plain, leaves, upstream)
    worst = max((a - b).abs().max().item() for a, b in zip(found, wanted, strict=True))
    share = kept.float().mean().item()
    right = off < 1e-5 and worst < 1e-3 and abs(share - 0.75) < 0.01
    return f"{'ok' if right else 'WRONG'}: kept {share:.3f}, {off:.1e}, {worst:.1e}"


def weights_on_demand() -> str:
    query, key, value, v = inputs(Shape(2, 70, 90, 48, 16))
    upstream = torch.randn(2, 70, 90, device="cuda")
    both = []
    for backend in ("fused", "direct"):
        leaves = [tensor.detach().clone().requires_grad_() for tensor in (query, key, v)]
        weights = attend(
            leaves[0], leaves[1], value, score=additive(leaves[2]), visible=causal(9), backend=backend
        ).weights()
        both.append([weights, *torch.autograd.grad(weights, leaves, upstream)])
    worst = max((a - b).abs().max().item() for a, b in zip(*both, strict=True))
    return f"{'ok' if worst < 1e-4 else 'WRONG'}: {worst:.1e}"


def opcheck() -> str:
    from jumok.attention.kernels import additive_ops

    query, key, value, v = (tensor.requires_grad_() for tensor in inputs(Shape(2, 9, 11, 8, 4)))
    torch.library.opcheck(additive_ops.additive_attention, (query, key, value, v[None], None, None, None, None, 0.0))
    torch.library.opcheck(additive_ops.additive_scores, (query, key, v[None]))
    return "ok"


def compiled() -> str:
    tensors, upstream = inputs(Shape(2, 65, 70, 32, 16)), torch.randn(2, 65, 16, device="cuda")
    compute = run("fused", visible=causal())
    worst = max(
        (a - b).abs().max().item()
        for a, b in zip(
            with_gradients(torch.compile(compute, fullgraph=True), tensors, upstream),
            with_gradients(compute, tensors, upstream),
            strict=True,
        )
    )
    return f"{'ok' if worst < 1e-5 else 'WRONG'}: {worst:.1e}"


def graphed() -> str:
    tensors = [tensor.requires_grad_() for tensor in inputs(Shape(2, 65, 70, 32, 16))]
    upstream, compute = torch.randn(2, 65, 16, device="cuda"), run("fused")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            torch.autograd.grad(compute(*tensors), tensors, upstream)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        held = torch.autograd.grad(compute(*tensors), tensors, upstream)
    with torch.no_grad():
        for tensor in tensors:
            tensor.copy_(torch.randn_like(tensor))
    graph.replay()
    torch.cuda.synchronize()
    wanted = torch.autograd.grad(compute(*tensors), tensors, upstream)
    return "ok" if all(torch.equal(a, b) for a, b in zip(held, wanted, strict=True)) else "WRONG"


def autocast_and_checkpoint() -> str:
    from torch.utils.checkpoint import checkpoint

    from jumok.layers import AdditiveAttention

    layer = AdditiveAttention(query_width=24, key_width=40, hidden=32, backend="fused").cuda()
    query, states = torch.randn(2, 7, 24, device="cuda"), torch.randn(2, 9, 40, device="cuda")

    def loss() -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return layer(query, layer.memory(states)).values.float().square().sum()

    parameters = list(layer.parameters())
    plain = torch.autograd.grad(loss(), parameters)
    again = torch.autograd.grad(checkpoint(loss, use_reentrant=False), parameters)
    return "ok" if all(torch.equal(a, b) for a, b in zip(plain, again, strict=True)) else "WRONG"


def explained() -> str:
    query, key, value, v = inputs(Shape(2, 9, 11, 8, 4))
    return f"{'ok' if explain(query, key, value, score=additive(v)).backend == 'fused' else 'WRONG'}"


def piecewise() -> str:
    """The backward pass in many pieces gives what it gives in one."""
    from jumok.attention.kernels import additive_fused

    tensors, upstream = inputs(Shape(3, 200, 100, 32, 16)), torch.randn(3, 200, 16, device="cuda")
    wanted = with_gradients(run("fused"), tensors, upstream)
    held, additive_fused.PLANES = additive_fused.PLANES, 128 * 112 * 12
    try:
        found = with_gradients(run("fused"), tensors, upstream)
    finally:
        additive_fused.PLANES = held
    worst = max((a - b).abs().max().item() for a, b in zip(found, wanted, strict=True))
    return f"{'ok' if worst < 1e-4 else 'WRONG'}: {worst:.1e}"


def run_checks() -> int:
    bad = 0
    for name, check in checks().items():
        said = attempt(check)
        bad += not said.startswith("ok")
        print(f"  {name:58} {said}", flush=True)
    print(f"checks: {bad} wrong", flush=True)
    return bad


def attempt(function: Callable[[], str]) -> str:
    try:
        return function()
    except Exception as error:
        traceback.print_exc(limit=-6)
        return f"FAILED: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]


# --- sweep


def median_ms(function: Callable[[], object], rep: int = 60) -> float:
    from triton.testing import do_bench

    return do_bench(function, warmup=20, rep=rep, return_mode="median")


def score_variant(rows: int, cols: int, warps: int):
    from jumok.attention.kernels.additive_fused import Scorer, Tiling

    query, key, _, v = inputs(MAIN)
    scorer = Scorer(query, key, v[None], Tiling(rows, cols, warps))
    return lambda: scorer.scores(slice(0, MAIN.batch), slice(0, MAIN.queries))


def side_variant(rows: int, cols: int, warps: int, sums: bool, parts: int | None = None):
    from jumok.attention.kernels.additive_backward import Side, filled, one_side
    from jumok.attention.kernels.additive_fused import Tiling, coefficients, exponentials

    query, key, _, v = inputs(MAIN)
    up, down = exponentials(query), exponentials(key)
    plane = filled(torch.randn(MAIN.batch, MAIN.keys, MAIN.queries, device="cuda"))
    some, at, others = slice(0, MAIN.batch), slice(0, MAIN.queries), slice(0, MAIN.keys)
    sides, out = (Side(query, up, some, at), Side(key, down, some, others)), torch.empty_like(query)
    shared, tiling = coefficients(v[None]), Tiling(rows, cols, warps)
    return lambda: one_side(*sides, plane, shared, out, tiling, sums=sums, parts=parts)


def sweep_variants() -> dict[str, tuple]:
    found = {f"scores {variant}": (score_variant, variant) for variant in SCORE_SWEEP}
    found |= {
        f"side {variant} sums {sums}": (side_variant, (*variant, sums))
        for variant in SIDE_SWEEP
        for sums in (True, False)
    }
    return found


def warm(maker: Callable[..., Callable[[], object]], variant: tuple) -> None:
    """Compile one variant, in a process of its own: the others find it on disk."""
    try:
        maker(*variant)()
        torch.cuda.synchronize()
    except Exception:
        pass  # it fails again where it is measured, and is reported there


def run_sweep() -> dict[str, object]:
    variants, found = sweep_variants(), {}
    started = time.time()
    with ProcessPoolExecutor(min(14, os.cpu_count() or 1), get_context("spawn")) as pool:
        list(pool.map(warm, *zip(*variants.values(), strict=True)))
    print(f"  compiled {len(variants)} variants in {time.time() - started:.0f} s", flush=True)
    for name, (maker, variant) in variants.items():
        try:
            found[name] = round(median_ms(maker(*variant), 30), 4)
        except Exception as error:
            found[name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]
        print(f"  {name:55} {found[name]}", flush=True)
    return found


def pieces() -> None:
    """Where the time of one pass at the main shape goes."""
    from torch.profiler import ProfilerActivity, profile

    tensors = [tensor.requires_grad_() for tensor in inputs(MAIN)]
    compute, upstream = run("fused"), torch.randn(MAIN.batch, MAIN.queries, MAIN.values, device="cuda")
    for _ in range(3):
        torch.autograd.grad(compute(*tensors), tensors, upstream)
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(5):
            torch.autograd.grad(compute(*tensors), tensors, upstream)
        torch.cuda.synchronize()
    for event in sorted(seen.key_averages(), key=lambda event: -event.self_device_time_total)[:18]:
        print(f"  {event.self_device_time_total / 5000:8.4f} ms  {event.count // 5:3} x  {event.key[:90]}", flush=True)


# --- times


def systems() -> dict[str, Callable[..., Tensor]]:
    torch._dynamo.config.recompile_limit = 64
    direct = run("direct")
    return {"jumok": run("fused"), "PyTorch": direct, "torch.compile": torch.compile(direct, dynamic=False)}


def too_large(system: str, shape: Shape, train: bool) -> str | None:
    """What would not fit, or would take longer than it tells."""
    if system == "PyTorch":
        gib = shape.elements * 4 * (4 if train else 2) / 2**30
        return f"not run: needs {gib:.0f} GiB" if gib > 110 else None
    if system == "torch.compile" and shape.elements > 2e10:
        return "not run: too long to compile and run here"
    return None


def measure(compute: Callable[..., Tensor], tensors: list[Tensor], train: bool) -> tuple[float, float]:
    """Median milliseconds and peak MiB beyond the inputs."""
    shape = (*tensors[0].shape[:2], tensors[2].shape[2])
    leaves = [tensor.requires_grad_(train) for tensor in tensors]
    upstream = torch.randn(shape, device="cuda", dtype=tensors[0].dtype)

    def once() -> object:
        if train:
            return torch.autograd.grad(compute(*leaves), leaves, upstream)
        with torch.no_grad():
            return compute(*leaves)

    once()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    once()
    torch.cuda.synchronize()
    peak = (torch.cuda.max_memory_allocated() - before) / 2**20
    return median_ms(once, 100), peak


def run_times(shapes: list[tuple[str, Shape]], dtype: torch.dtype) -> list[Row]:
    rows, chosen = [], systems()
    kind = "fp32" if dtype == torch.float32 else "bf16"
    for group, shape in shapes:
        for train in (False, True):
            name = "train" if train else "forward"
            for system, compute in chosen.items():
                conditions = f"values {shape.values}; {kind}"
                reason = too_large(system, shape, train)
                try:
                    spent, peak = (None, None) if reason else measure(compute, inputs(shape, dtype), train)
                except Exception as error:
                    spent, peak, reason = None, None, f"failed: {type(error).__name__}"
                    print(f"    {system}: {str(error)[:200]}", flush=True)
                torch.cuda.empty_cache()
                conditions = f"{reason}; {conditions}" if reason else conditions
                label = f"{shape}" + ("" if kind == "fp32" else " bf16")
                rows.append(Row(f"{group}-{name}-time/{label}", system, spent, "ms", conditions))
                rows.append(Row(f"{group}-{name}-memory/{label}", system, peak, "MiB", conditions))
                rate = f"{shape.elements / spent / 1e9:6.2f}e12/s" if spent else reason
                print(
                    f"  {label:26} {name:8} {system:14} {spent or 0:9.4f} ms {peak or 0:10.1f} MiB {rate}", flush=True
                )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="checks,sweep,pieces,times")
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    options = parser.parse_args()
    parts = options.only.split(",")
    torch.manual_seed(0)
    device = torch.cuda.get_device_name()
    print(device, torch.__version__, flush=True)
    started, rows = time.time(), []
    if "checks" in parts:
        print(f"checks (ours / plain torch, against float64) at {time.time() - started:.0f} s")
        run_checks()
    if "pieces" in parts:
        print(f"pieces at {time.time() - started:.0f} s")
        attempt(lambda: str(pieces()))
    if "sweep" in parts:
        print(f"sweep at {time.time() - started:.0f} s")
        timed = {name: value for name, value in run_sweep().items() if isinstance(value, float)}
        conditions = f"{MAIN}, values {MAIN.values}, fp32"
        rows += [Row(f"additive-kernel/{name}", "jumok", value, "ms", conditions) for name, value in timed.items()]
    if "times" in parts:
        print(f"times at {time.time() - started:.0f} s")
        rows += run_times(
            [("additive", shape) for shape in SHAPES] + [("long", shape) for shape in LONG], torch.float32
        )
        rows += run_times([("additive", MAIN)], torch.bfloat16)
    results.FOLDER = options.out
    if rows:
        results.write("additive_gpu", rows, device=device, packages=("torch", "triton"))
    print(f"done at {time.time() - started:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
