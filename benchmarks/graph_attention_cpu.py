"""Graph attention on a CPU, compared with PyTorch Geometric and plain PyTorch, on small and large graphs.

    python -m benchmarks.graph_attention_cpu

Forward and backward on one thread. The systems take turns, and a time is the minimum CPU time of several rounds, which
other programs on the machine affect little. The second graph has the size of Cora. Writes graph_attention_cpu.json.
"""

import time
from itertools import chain

import torch

from benchmarks.results import Row, cpu, write
from jumok.bench.graphs import GraphShape, works_on

SHAPES = (
    GraphShape(1_000, 10_000, 4, 8),
    GraphShape(2_708, 10_556, 8, 8, given=1_433),
    GraphShape(5_000, 50_000, 8, 8),
    GraphShape(10_000, 200_000, 8, 16),
)
TURNS = 60


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    for work in chain.from_iterable(works_on(shape, torch.device("cpu")) for shape in SHAPES):
        calls = {system: make() for system, make in work.systems.items()}
        turns: dict[str, list[float]] = {system: [] for system in calls}
        for _ in range(TURNS):
            for system, call in calls.items():
                began = time.process_time()
                call()
                turns[system].append(1000 * (time.process_time() - began))
        for system, times in turns.items():
            conditions = f"forward and backward, float32, one thread; least processor time of {TURNS} turns"
            rows.append(Row(f"graph-cpu/{work.name}", system, round(min(times), 1), "ms", conditions))
            print(rows[-1], flush=True)
    print(write("graph_attention_cpu", rows, device=cpu(), packages=("torch", "torch_geometric")))


if __name__ == "__main__":
    main()
