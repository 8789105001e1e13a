"""Time of `attend` on a CUDA GPU, compared with PyTorch's scaled_dot_product_attention in the same run.

    python -m benchmarks.attend_gpu [--out FOLDER]

Forward and backward in bfloat16 with a causal mask, with lengths between a quarter of the keys and all of them, and
with lengths of keys and queries. PyTorch gets `is_causal`, or a dense mask of the same lengths. All cases take turns,
and a time is the median. A check against float64 comes first; what fails is not timed. The last cases, with ids that
begin with attend-more/, are those of benchmarks/attend_more.py.
"""

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import attend_more, results
from benchmarks.results import Row
from jumok.attention import Visible, attend, causal, from_lengths

SHAPES = ((16, 16, 1024, 64), (32, 8, 64, 64), (4, 16, 4096, 64))
MAIN = SHAPES[0]
ROUNDS, CALLS = 7, 20


class Case(NamedTuple):
    """One mask: how jumok and PyTorch compute it, forward and backward."""

    name: str
    ours: Callable[[], object]
    theirs: Callable[[], object]
    against: str
    """What PyTorch is given."""


def cases(shape: tuple[int, ...]) -> list[Case]:
    batch, _, time, _ = shape
    query, key, value, upstream = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    inputs = [tensor.requires_grad_() for tensor in (query, key, value)]
    lengths = torch.randint(time // 4, time + 1, (batch,), generator=torch.Generator().manual_seed(1))
    lengths[0] = time
    lengths = lengths.cuda()
    dense = (torch.arange(time, device="cuda") < lengths[:, None])[:, None, None]

    def train(compute: Callable[[], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(compute(), inputs, upstream)

    def ours(visible: Visible) -> Callable[[], object]:
        return train(lambda: attend(*inputs, visible=visible).values)

    theirs_causal = train(lambda: F.scaled_dot_product_attention(*inputs, is_causal=True))
    theirs_dense = train(lambda: F.scaled_dot_product_attention(*inputs, attn_mask=dense))
    return [
        Case("causal", ours(causal()), theirs_causal, "is_causal"),
        Case("lengths", ours(from_lengths(lengths)), theirs_dense, "a dense mask"),
        Case(
            "lengths of both", ours(from_lengths(lengths, query_lengths=lengths)), theirs_dense, "a dense mask of keys"
        ),
    ]


def milliseconds(compute: Callable[[], object]) -> float:
    """The mean of a few calls in a row, as a program makes them."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(CALLS):
        compute()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / CALLS


def check() -> list[str]:
    """What is further from float64 than twice plain PyTorch in bfloat16, with NaN behind the mask."""
    wrong = []
    lengths = torch.tensor([700, 300], device="cuda")
    for name, visible in (
        ("causal", causal()),
        ("lengths", from_lengths(lengths)),
    ):
        query, key, value, upstream = (torch.randn(2, 2, 700, 64, device="cuda").bfloat16() for _ in range(4))
        key[1, 0, 300:] = value[0, 1, 650] = torch.nan
        outcomes = {
            system: trained((query, key, value), upstream, visible, dtype, backend)
            for system, dtype, backend in (
                ("exact", torch.float64, "direct"),
                ("plain", torch.bfloat16, "direct"),
                ("ours", torch.bfloat16, "auto"),
            )
        }
        for part, exact, plain, ours in zip(("values", "dq", "dk", "dv"), *outcomes.values(), strict=True):
            errors = [(tensor.double() - exact).nan_to_num().abs().max() for tensor in (ours, plain)]
            if (ours.isnan() != exact.isnan()).any() or errors[0] > 2 * errors[1]:
                wrong.append(f"{name}: {part} is off by {errors[0]:.1e}, plain PyTorch by {errors[1]:.1e}")
    return wrong


def trained(
    given: tuple[Tensor, ...], upstream: Tensor, visible: Visible, dtype: torch.dtype, backend: str
) -> list[Tensor]:
    inputs = [tensor.to(dtype).detach().requires_grad_() for tensor in given]
    values = attend(*inputs, visible=visible, backend=backend).values
    return [values, *torch.autograd.grad(values, inputs, upstream.to(dtype))]


def compile_one(problem: tuple[tuple[int, ...], int]) -> None:
    """Compile the kernels of one case, in a process of its own: Triton keeps them on disk."""
    (_, *rest), number = problem
    cases((2, *rest))[number].ours()


def compile_all() -> None:
    """All kernels at once: one after another they take longer than the measurements."""
    problems = [(shape, number) for shape in SHAPES[:2] for number in range(3)]  # the third has those of the first
    with ProcessPoolExecutor(len(problems), mp_context=get_context("spawn")) as pool:
        list(pool.map(compile_one, problems))


def replayed(compute: Callable[[], object]) -> Callable[[], object]:
    """The same from a CUDA graph: the time of the GPU alone."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            compute()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        compute()
    return graph.replay


def measure(shape: tuple[int, ...]) -> list[Row]:
    """All cases of one shape: as a call, and the GPU alone."""
    rows, label, compared = [], str(list(shape)), cases(shape)
    for case in compared * 2:
        case.ours()
        case.theirs()
    for way, prepare in (("as a call", lambda compute: compute), ("GPU alone", replayed)):
        pairs = {case.name: (prepare(case.ours), prepare(case.theirs)) for case in compared}
        taken: dict[str, list[tuple[float, ...]]] = {case.name: [] for case in compared}
        for _ in range(ROUNDS):
            for name, pair in pairs.items():
                taken[name].append(tuple(milliseconds(compute) for compute in pair))
        for case in compared:
            ours, theirs = (median(times) for times in zip(*taken[case.name], strict=True))
            conditions = f"bf16 {label}, {case.name}, forward and backward, {way}; PyTorch with {case.against}"
            if shape == MAIN and way == "as a call" and case.name in ("causal", "lengths"):
                rows.append(Row(f"attend-{case.name}", "jumok", ours / theirs, "×", conditions))
                rows.append(Row(f"attend-{case.name}", "PyTorch", 1.0, "×", conditions))
            rows.append(Row(f"attention-{label} {case.name}, {way}", "jumok", ours, "ms", conditions))
            rows.append(Row(f"attention-{label} {case.name}, {way}", "PyTorch", theirs, "ms", conditions))
            measured = f"{ours:.4f} ms, PyTorch {theirs:.4f} ms: {ours / theirs:.3f} ×"
            print(f"  {label:20} {case.name:16} {way:10} {measured}", flush=True)
    return rows


def measure_more(shape: tuple[int, ...]) -> list[Row]:
    """The cases of benchmarks/attend_more.py, as calls; one that fails leaves the others."""
    rows, listed = [], attend_more.cases(shape)
    while True:
        torch.compiler.reset()  # PyTorch compiles one function only a few times
        try:
            case = next(listed, None)
            if case is None:
                return rows
            if (wrong := attend_more.difference(case)) > attend_more.TOLERANCE:
                print(f"  {case.name}: values differ by {wrong:.2g}, so it is not timed", flush=True)
                continue
            pair = attend_more.both_ways(case)
            for compute in pair * 2:
                compute()
            taken = [tuple(milliseconds(compute) for compute in pair) for _ in range(ROUNDS)]
        except Exception as error:  # a peer that is not in this PyTorch, or does not compile
            print(f"  attend_more: {type(error).__name__}: {error}", flush=True)
            continue
        ours, theirs = (median(times) for times in zip(*taken, strict=True))
        conditions = f"bf16 {list(shape)}, {case.name}, forward and backward, as a call; PyTorch with {case.against}"
        rows.append(Row(f"attend-more/{case.name}", "jumok", ours, "ms", conditions))
        rows.append(Row(f"attend-more/{case.name}", "PyTorch", theirs, "ms", conditions))
        print(f"  {case.name:36} {ours:.4f} ms, PyTorch {theirs:.4f} ms: {ours / theirs:.3f} ×", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    options = parser.parse_args()
    results.FOLDER = options.out
    if not torch.cuda.is_available():
        sys.exit("benchmarks.attend_gpu needs a CUDA GPU")
    torch.manual_seed(0)
    device, started, rows = torch.cuda.get_device_name(), time.time(), []
    print(device, torch.__version__, flush=True)
    compile_all()
    if wrong := check():
        sys.exit("\n".join(wrong))
    for shape in SHAPES:
        rows += measure(shape)
        results.write("attend_gpu", rows, device=device, packages=("torch", "triton"))
    rows += measure_more(MAIN)
    results.write("attend_gpu", rows, device=device, packages=("torch", "triton"))
    print(f"done after {time.time() - started:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
