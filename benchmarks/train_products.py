"""Speed of every matrix product in a training step of the Transformer of `benchmarks.train_gpu`, each on its own.

    python -m benchmarks.train_products

Prints TFLOP/s of the product forward, and of those for the gradients of its input and of its matrix, in bf16 and in
float32. For the output layer it tries several numbers of tokens at a time. Writes no results.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from benchmarks.train_gpu import HIDDEN, LAYERS, LENGTH, SENTENCES, VOCABULARY, WIDTH

ROWS = SENTENCES * LENGTH
SHAPES = {
    "queries, keys and values": (ROWS, WIDTH, 3 * WIDTH),
    "output of attention": (ROWS, WIDTH, WIDTH),
    "keys and values of the source": (ROWS, WIDTH, 2 * LAYERS * WIDTH),
    "feed-forward, first": (ROWS, WIDTH, HIDDEN),
    "feed-forward, second": (ROWS, HIDDEN, WIDTH),
    **{f"output layer, {rows:,} tokens": (rows, WIDTH, VOCABULARY) for rows in (5120, 6400, 8448, 12800, 25600)},
}
"""Rows, inputs and outputs."""
REPEATS = 20


def products(rows: int, width: int, out: int) -> dict[str, Callable[[], Tensor]]:
    """The products of a linear map."""
    x, weight, d_out = (
        torch.randn(*shape, device="cuda").bfloat16() for shape in ((rows, width), (out, width), (rows, out))
    )
    bias, total = weight.new_zeros(out), torch.zeros(out, width, device="cuda")
    mm, single = torch.mm, torch.float32
    return {
        "forward": partial(torch.addmm, bias, x, weight.t()),
        "input": partial(mm, d_out, weight),
        "matrix": partial(mm, d_out.t(), x),
        "matrix, float32": partial(torch.ops.aten.mm.dtype, d_out.t(), x, single),
        "added to float32": partial(torch.ops.aten.addmm.dtype_out, total, d_out.t(), x, single, out=total),
    }


def milliseconds(function: Callable[[], Tensor]) -> float:
    """The time of one call, of many in a CUDA graph."""
    for _ in range(3):
        function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(REPEATS):
            function()
    graph.replay()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / REPEATS


def main() -> None:
    for name, (rows, width, out) in SHAPES.items():
        times = {kind: milliseconds(function) for kind, function in products(rows, width, out).items()}
        rates = (f"{kind} {2e-9 * rows * width * out / ms:.0f} ({ms * 1000:.0f} µs)" for kind, ms in times.items())
        print(f"{name}: " + ", ".join(rates), flush=True)


if __name__ == "__main__":
    main()
