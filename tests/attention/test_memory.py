"""Additive attention over long sequences: the direct form would need 16 GiB, or 4, for a single tensor."""

import subprocess
import sys

import pytest

GIBIBYTE = 2**20  # peaks come in KiB

TRAIN_ONE_STEP = """
import sys
from pathlib import Path
import torch
from jumok.attention import additive, attend, causal
torch.set_num_threads(1)
time, dim, size = int(sys.argv[1]), 256, float(sys.argv[2])
query, key, value = (torch.randn(time, dim).mul_(size).requires_grad_() for _ in range(3))
v = torch.randn(dim, requires_grad=True)
attend(query, key, value, score=additive(v), visible=causal()).values.square().sum().backward()
assert all(leaf.grad.isfinite().all() and leaf.grad.any() for leaf in (query, key, value, v))
# Not getrusage's peak: that one begins with the memory of the program which started this one.
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")
@pytest.mark.parametrize(
    ("time", "size"), [(4096, 1.0), (2048, 60.0)], ids=["4096 positions", "2048 positions of large numbers"]
)
def test_additive_attention_trains_within_two_gibibytes(time, size):
    command = [sys.executable, "-c", TRAIN_ONE_STEP, str(time), str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2 * GIBIBYTE
