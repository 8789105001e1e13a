"""Flash attention: its own checks, run by Triton's interpreter where there is no GPU; and who may run it."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from jumok.attention import attend, scaled_dot
from jumok.errors import BackendError
from support.attention import random_inputs

TESTS = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize("checks", ["number_checks.py", "mask_checks.py", "causal_checks.py"])
def test_the_kernels_do_what_they_must(checks):
    interpreter = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore::RuntimeWarning"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(TESTS / "attention" / "flash" / checks)],
        cwd=TESTS.parent,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST")} | interpreter,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("options", "width", "reason"),
    [
        ({"normalise": "sparsemax"}, 3, "softmax only"),
        ({"score": scaled_dot(change=lambda score, *_: score)}, 3, "cannot call a function of the caller"),
        ({}, 129, "up to 128 features and these have 129"),
        ({}, 3, "it runs on a CUDA GPU and query is on cpu"),
    ],
)
def test_it_says_why_it_cannot_run(options, width, reason):
    with pytest.raises(BackendError, match=reason):
        attend(*random_inputs(dim=width), backend="fused", **options)
