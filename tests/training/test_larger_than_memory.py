"""A corpus that does not fit in memory trains: its tokens stay in the file and pass through memory by batches."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from jumok.data import BOS, EOS, write_dataset

PAIRS, LENGTH, SPARE = 1000, 20_000, 16 << 20
"""80 MB of tokens, of which a program may hold 16 MiB beyond what it takes to start."""

PROGRAM = """
import resource, sys
from pathlib import Path
import torch
from jumok.data import Batches, BatchConfig, Dataset

def held():
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmData"))) << 10

torch.zeros(2).sum()
resource.setrlimit(resource.RLIMIT_DATA, (held() + int(sys.argv[2]), resource.RLIM_INFINITY))
"""
BATCH_BY_BATCH = """
batches = Batches(Dataset(sys.argv[1]), BatchConfig(tokens=100_000))
print(sum(int(batches.batch(0, step).target_visible.sum()) for step in range(batches.steps(0))))
"""
AT_ONCE = "bytearray(Path(sys.argv[1]).read_bytes())"


def run(path, way):
    command = [sys.executable, "-c", PROGRAM + way, str(path), str(SPARE)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux, to limit what a program may hold")
def test_a_whole_epoch_of_a_corpus_larger_than_memory_is_read(tmp_path):
    row = np.full(LENGTH, 7)
    row[0], row[-1] = BOS, EOS
    path = tmp_path / "train.store"
    write_dataset(path, ((row, row) for _ in range(PAIRS)), size=8)
    assert path.stat().st_size > 4 * SPARE
    done = run(path, BATCH_BY_BATCH)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == PAIRS * (LENGTH - 1)
    # The limit is one: whoever reads the file whole is stopped by it.
    assert "MemoryError" in run(path, AT_ONCE).stderr
