"""A graph whose features do not fit in memory trains: neighbourhoods are drawn, and only their rows are read."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jumok.graphs.graph import GraphConfig, RawGraph
from jumok.graphs.store import write_graph

NODES, WIDTH, SPARE = 150_000, 256, 40 << 20
"""154 MB of features, of which a program may hold 40 MiB beyond what it takes to start."""

PROGRAM = """
import resource, sys
from pathlib import Path
import torch
from jumok.graphs.network import GatConfig, GraphAttentionNetwork
from jumok.graphs.sampling import SamplingConfig
from jumok.graphs.store import open_graph
from jumok.tasks.node_classification import NodeClassificationTask, held_out_scores
from jumok.graphs.batches import GraphBatches, whole_graph
from jumok.tasks.recipes import GraphTraining
from jumok.training import train

def held():
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmData"))) << 10

def learn(steps):
    torch.manual_seed(1)
    model = GraphAttentionNetwork(GatConfig(width=8, heads=2, dropout=0.0), features=graph.width, classes=graph.classes)
    config = GraphTraining(steps=steps, learning_rate=0.02, warmup=1)
    batches = GraphBatches(graph, graph.train, sampling, layers=2)
    train(model, batches, config, folder=Path(sys.argv[1]) / f"run{steps}", task=NodeClassificationTask())
    return held_out_scores(model.eval(), GraphBatches(graph, graph.test, sampling, layers=2, training=False))

torch.set_num_threads(1)
graph = open_graph(sys.argv[1])
sampling = SamplingConfig(fanout=(3, 3), batch=64, evaluation_fanout=(3, 3))
learn(1)  # imports all that is needed
resource.setrlimit(resource.RLIMIT_DATA, (held() + int(sys.argv[2]), resource.RLIM_INFINITY))
print(learn(60)["accuracy"])
try:
    whole_graph(graph, graph.test)
except (MemoryError, RuntimeError):
    print("too large to be taken whole")
"""


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux, to limit what a program may hold")
def test_a_graph_larger_than_memory_is_learned_from_sampled_neighbourhoods(tmp_path):
    draws, labels = np.random.default_rng(0), np.arange(NODES) % 4
    features = np.lib.format.open_memmap(tmp_path / "features.npy", "w+", np.float32, (NODES, WIDTH))
    features[np.arange(NODES), labels] = 1
    sources = draws.integers(NODES, size=3 * NODES)
    edges = np.stack([sources, (sources + 4 * draws.integers(NODES, size=sources.shape)) % NODES])  # of one class
    part = draws.integers(100, size=NODES)
    masks = {name: part == at for at, name in enumerate(("train", "valid", "test"))}
    raw = RawGraph(edges=edges, features=features, labels=labels, masks=masks)
    write_graph(tmp_path / "graph", raw, GraphConfig(path="unused"))
    assert (tmp_path / "graph/features.npy").stat().st_size > 3 * SPARE
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "graph"), str(SPARE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    accuracy, limit = done.stdout.splitlines()
    assert float(accuracy) > 90
    assert limit == "too large to be taken whole"
