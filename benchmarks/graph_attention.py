"""Exactness and speed of fused graph attention on a CUDA GPU.

    python -m benchmarks.graph_attention            checks, then writes results/graph_attention.json

A layer with 8 heads of 32 and 256 input features, on 200,000 nodes with 8 million edges: with uniform and with
power-law degrees. Compares jumok with and without fused kernels and PyTorch Geometric, forward and backward in one
run.
"""

import argparse
import gc
import sys
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks.results import Row, write
from jumok.graphs import layers
from jumok.layers import GraphAttention, GraphAttentionV2, SortedEdges

NODES, EDGES, HEADS, DIM = 200_000, 8_000_000, 8, 32
KINDS = {"gat": GraphAttention, "gatv2": GraphAttentionV2}


def uniform(nodes: int, edges: int) -> Tensor:
    return torch.randint(nodes, (2, edges), device="cuda")


def power_law(nodes: int, edges: int) -> Tensor:
    """Targets and sources of which few have many edges: the densest node has some ten thousand."""
    ranks = torch.rand(2, edges, device="cuda").pow(-0.5).sub(1).mul(nodes / 200).long().remainder(nodes)
    return torch.stack([torch.randperm(nodes, device="cuda")[end] for end in ranks])


GRAPHS: dict[str, Callable[[int, int], Tensor]] = {"": uniform, "power-law-": power_law}


def checks() -> Iterator[str]:
    """What is wrong: outputs and gradients against float64 by the definition, at awkward sizes."""
    shapes = ((1, 3, 1, 7), (63, 500, 3, 8), (129, 65, 2, 33), (500, 9000, 8, 32), (300, 20_000, 1, 100), (9, 0, 2, 4))
    for nodes, edges, heads, dim in shapes:
        for kind, layer_type in KINDS.items():
            for loops in (True, False):
                for edge_width in (None, 3):
                    torch.manual_seed(nodes)
                    options = {"in_width": 16, "out_width": heads * dim, "heads": heads, "self_loops": loops}
                    layer = layer_type(**options, edge_width=edge_width).cuda()
                    index = uniform(nodes, edges)
                    inputs = [torch.randn(nodes, 16, device="cuda")]
                    inputs += [torch.randn(edges, edge_width, device="cuda")] if edge_width else []
                    upstream = torch.randn(nodes, heads * dim, device="cuda")
                    yield from compare(f"{kind} {nodes} {edges} {heads} {dim}", layer, inputs, index, upstream)
    yield from check_dropout()


def compare(name: str, layer: torch.nn.Module, inputs: list[Tensor], index: Tensor, upstream: Tensor) -> Iterator[str]:
    """Ours and plain torch's error against float64, for values, weights and every gradient."""
    fused = outcome(layer, inputs, SortedEdges.of(index, len(inputs[0])), upstream)
    again = outcome(layer, inputs, index, upstream)
    plain = by_definition(lambda: outcome(layer, inputs, index, upstream))
    exact = outcome(layer.double(), [part.double() for part in inputs], index, upstream.double())
    for number, (got, repeat, ref, want) in enumerate(zip(fused, again, plain, exact, strict=True)):
        ours, theirs = ((part - want).abs().max().item() if want.numel() else 0.0 for part in (got, ref))
        scale = want.abs().max().item() if want.numel() else 0.0
        if not ours <= 2 * theirs + 2e-6 * (1 + scale):
            yield f"{name}, part {number}: off by {ours:.1e}, plain torch by {theirs:.1e}"
        fused_alone = len(inputs) == 1 and number not in (
            1,
            2,
        )  # weights on demand and edges' features have sums of theirs
        if fused_alone and not torch.equal(got, repeat):
            yield f"{name}, part {number}: a second run gives other numbers"


def check_dropout() -> Iterator[str]:
    """With weights dropped: the same mask forward and backward, and the right mean."""
    torch.manual_seed(0)
    index = uniform(400, 8000)
    for kind, layer_type in KINDS.items():
        layer = layer_type(in_width=8, out_width=64, heads=4, dropout=0.5).cuda()
        x = torch.randn(400, 8, device="cuda")

        def loss(x: Tensor, layer: torch.nn.Module = layer) -> Tensor:
            torch.manual_seed(5)
            return layer(x, index).values.square().sum()

        direction = torch.randn_like(x)
        x.requires_grad_()
        (gradient,) = torch.autograd.grad(loss(x), x)
        step = 1e-3
        with torch.no_grad():
            slope = (loss(x + step * direction) - loss(x - step * direction)) / (2 * step)
        if not torch.isclose((gradient * direction).sum(), slope, rtol=2e-2):
            yield f"{kind} with dropout: slope {slope.item():.4f}, gradient {(gradient * direction).sum().item():.4f}"
        mean = torch.stack([layer(x.detach(), index).values.detach() for _ in range(2000)]).mean(0)
        off = (mean - layer.eval()(x.detach(), index).values.detach()).abs().max().item()
        if off > 0.15:
            yield f"{kind} with dropout: the mean is off by {off:.2f}"


def outcome(
    layer: torch.nn.Module, inputs: list[Tensor], edges: Tensor | SortedEdges, upstream: Tensor
) -> list[Tensor]:
    leaves = [part.detach().requires_grad_() for part in inputs]
    parameters = list(layer.parameters())
    out = layer(leaves[0], edges, *leaves[1:])
    gradients = torch.autograd.grad(out.values, [*leaves, *parameters], upstream)
    return [part.detach() for part in (out.values, out.weights(), out.weights.loops(), *gradients)]


def by_definition(work: Callable[[], list[Tensor]]) -> list[Tensor]:
    """The same without the kernels."""
    held, layers.runs_on_kernels = layers.runs_on_kernels, lambda values: False
    try:
        return work()
    finally:
        layers.runs_on_kernels = held


def timed(step: Callable[[], None]) -> tuple[float, float]:
    """Milliseconds, the median of many; and the most memory, in GiB, beyond what there was before."""
    import triton.testing

    gc.collect()
    torch.cuda.empty_cache()
    step()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    memory = (torch.cuda.max_memory_allocated() - before) / 2**30
    return triton.testing.do_bench(step, warmup=50, rep=400, return_mode="median"), memory


def measurements() -> Iterator[Row]:
    conditions = f"forward and backward, {NODES:,} nodes, {EDGES:,} edges, {HEADS} heads of {DIM}, float32"
    for prefix, make in GRAPHS.items():
        torch.manual_seed(0)
        index = make(NODES, EDGES)
        x = torch.randn(NODES, 256, device="cuda", requires_grad=True)
        upstream = torch.randn(NODES, HEADS * DIM, device="cuda")
        edges = SortedEdges.of(index, NODES)
        degree = int(edges.into.starts.diff().max())
        for kind in KINDS:
            for system, step in systems(kind, x, index, edges, upstream):
                try:
                    milliseconds, memory = timed(step)
                except torch.cuda.OutOfMemoryError:
                    milliseconds = memory = None
                details = f"{conditions}; at most {degree} edges into a node"
                yield Row(f"{prefix}{kind}-train", system, milliseconds, "ms", details)
                yield Row(f"{prefix}{kind}-memory", system, memory, "GiB", details)
                print(prefix, kind, system, milliseconds, memory, flush=True)
        if not prefix:
            milliseconds, _ = timed(lambda index=index: SortedEdges.of(index, NODES))
            yield Row("graph-sort", "jumok", milliseconds, "ms", f"SortedEdges.of, once a graph, {EDGES:,} edges")
            print("sort", milliseconds)


def systems(
    kind: str, x: Tensor, index: Tensor, edges: SortedEdges, upstream: Tensor
) -> Iterator[tuple[str, Callable[[], None]]]:
    layer = KINDS[kind](in_width=256, out_width=HEADS * DIM, heads=HEADS, self_loops=False).cuda()

    def fused() -> None:
        x.grad = None
        layer(x, edges).values.backward(upstream)

    def plain() -> None:
        x.grad = None
        by_definition(lambda: [layer(x, index).values.backward(upstream)])  # type: ignore[list-item]

    yield "jumok", fused
    yield "jumok, by definition", plain
    try:
        from torch_geometric.nn import GATConv, GATv2Conv
    except ImportError:
        return
    peer = {"gat": GATConv, "gatv2": GATv2Conv}[kind](256, DIM, heads=HEADS, add_self_loops=False).cuda()

    def geometric() -> None:
        x.grad = None
        peer(x, index).backward(upstream)

    yield "PyTorch Geometric", geometric


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checks", action="store_true", help="only check")
    only_checks = parser.parse_args().checks
    wrong = list(checks())
    print(f"{len(wrong)} checks failed", *wrong, sep="\n", flush=True)
    if not only_checks:
        rows = [*measurements(), Row("graph-checks-failed", "jumok", len(wrong), "checks", "against float64")]
        print(write("graph_attention", rows, device=torch.cuda.get_device_name(), packages=("torch", "triton")))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
