"""The compiler takes attend as it is; in a process of its own, for it cannot see through the checks of signatures."""

import subprocess
import sys

import pytest

COMPILE = """
import torch
from helpers import SCORES, random_inputs
from jumok.attention import attend, causal

for name, backend in (("scaled_dot", "sdpa"), ("additive", "blocked"), ("gaussian", "direct")):
    leaves, score = random_inputs(), SCORES[name].build(*SCORES[name].parameters(3))

    def values(query, key, value):
        return attend(query, key, value, score=score, visible=causal(), backend=backend).values

    torch._dynamo.reset()
    leaves = [tensor.requires_grad_() for tensor in leaves]
    found, wanted = torch.compile(values, backend="eager")(*leaves), values(*leaves)
    torch.testing.assert_close(found, wanted)
    for one, other in zip(*(torch.autograd.grad(v.sum(), leaves) for v in (found, wanted))):
        torch.testing.assert_close(one, other)
"""


NAN = """
import torch
from helpers import random_inputs
from jumok.attention import attend

query, key, value = random_inputs(value_dim=3)
query[1, 2, 0] = torch.nan
found = torch.compile(lambda *given: attend(*given).values, backend="eager", fullgraph=True)(query, key, value)
assert found[1, 2, 0].isnan().all(), found
assert found.isnan().sum() == 3, found
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", [COMPILE, NAN], ids=["the same values and gradients", "the same NaN"])
def test_what_is_compiled_gives(program):
    here = [path for path in sys.path if path]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {here!r}\n{program}"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
