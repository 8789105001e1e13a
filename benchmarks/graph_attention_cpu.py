"""Graph attention on a CPU, compared with PyTorch Geometric and plain PyTorch: the layers of `jumok bench graphs`.

    python -m benchmarks.graph_attention_cpu

Forward and backward on one thread. The systems take turns, and a time is the minimum CPU time of several rounds, which
other programs on the machine affect little. Writes graph_attention_cpu.json.
"""

import time

import torch

from benchmarks.results import Row, cpu, write
from jumok.bench.graphs import works

TURNS = 5


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    for work in works(torch.device("cpu"), "medium"):
        calls = {system: make() for system, make in work.systems.items()}
        turns: dict[str, list[float]] = {system: [] for system in calls}
        for _ in range(TURNS):
            for system, call in calls.items():
                began = time.process_time()
                call()
                turns[system].append(1000 * (time.process_time() - began))
        for system, found in turns.items():
            conditions = f"forward and backward, float32, one thread; least processor time of {TURNS} turns"
            rows.append(Row(f"graph-cpu/{work.name}", system, round(min(found), 1), "ms", conditions))
            print(rows[-1], flush=True)
    print(write("graph_attention_cpu", rows, device=cpu(), packages=("torch", "torch_geometric")))


if __name__ == "__main__":
    main()
