"""torch.compile(fullgraph=True) and torch.export take every score, mask, layer and model (see compiled.py)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Every score and every mask is exported, but not each with each; the compiler, which takes twice as long, gets every
# mask with additive scores. `python tests/support/compiled.py "scores eager"` compiles the whole table.
TABLES = {
    "exported": ["chosen-scores export", "layers export", "models export"],
    "exported for any batch": [
        "scores open-batch scaled_dot, lengths",
        "scores open-batch scaled_dot, tensor",
        "scores open-batch scaled_dot, causal",
        "scores open-batch scaled_dot, gaussian",
        "layers open-batch multi-head",
    ],
    "scores and models compiled": ["scores eager additive,", "models eager"],
    "layers compiled": ["layers eager"],
    "compiled to machine code": ["layers inductor additive, lengths"],
}
"""Tables, and how they are traced, by process."""


OPEN_LENGTHS = """
import torch
from jumok.attention import additive, attend, causal, from_lengths

v = torch.randn(8)

class Attention(torch.nn.Module):
    def __init__(self, score):
        super().__init__()
        self.score = score

    def forward(self, query, key, lengths):
        visible = from_lengths(lengths) & causal(key.shape[-2] - query.shape[-2])
        attended = attend(query, key, key, score=self.score, visible=visible)
        return attended.values, attended.weights()

def given(batch, queries, keys):
    return torch.randn(batch, 2, queries, 8), torch.randn(batch, 2, keys, 8), torch.arange(batch)

batch, queries, keys = (torch.export.Dim(name) for name in ("batch", "queries", "keys"))
for score in ("scaled_dot", additive(v), "gaussian"):
    sizes = {0: batch, 2: queries}, {0: batch, 2: keys}, {0: batch}
    traced = torch.export.export(Attention(score), given(3, 20, 22), dynamic_shapes=sizes).module()
    for shape in ((2, 5, 7), (5, 40, 41)):
        call = given(*shape)
        torch.testing.assert_close(traced(*call), Attention(score)(*call))
"""


@pytest.mark.long
def test_an_exported_program_can_leave_lengths_open():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", OPEN_LENGTHS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.long(seconds=15)
@pytest.mark.parametrize("name", TABLES)
def test_what_is_traced_gives_the_same_values_weights_and_gradients(name):
    if "machine code" in name and not shutil.which("c++"):
        pytest.skip("no C++ compiler, which torch.compile's own backend needs on a CPU")
    tests = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", tests / "support/compiled.py", *TABLES[name]],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_a_bias_is_refused_by_compiled_code_as_well():
    program = """
import torch
from jumok.attention import from_torch_mask, whole

def mask(bias):
    return whole(from_torch_mask(bias, true_means="hidden"), queries=2, keys=2)

compiled = torch.compile(mask, backend="eager", fullgraph=True)
assert compiled(torch.zeros(2, 2)).all()
compiled(torch.ones(2, 2))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "must be boolean or hold only 0 and -inf" in done.stderr
