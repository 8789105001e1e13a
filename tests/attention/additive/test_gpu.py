"""Fused additive attention: who may run it; and its own checks, run by Triton's interpreter where there is no GPU."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from jumok.attention import additive, attend, backends, explain, gaussian_window
from jumok.errors import BackendError
from support.attention import random_inputs

TESTS = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize(
    ("checks", "some"),
    [
        ("attention/additive/number_checks.py", "size or tiles"),
        ("attention/additive/number_checks.py", "not (size or tiles)"),
        ("attention/additive/mask_checks.py", ""),
        ("attention/additive/launch_checks.py", ""),
        ("graphs/gpu_checks.py", ""),
        ("training/loss_checks.py", ""),
        ("layers/transformer_checks.py", ""),
        ("models/rnn_kernel_checks.py", "bahdanau"),
        ("models/rnn_kernel_checks.py", "not bahdanau"),
    ],
)
def test_the_kernels_do_what_they_must(checks, some):
    interpreter = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore::RuntimeWarning", "-k", some]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(TESTS / checks)],
        cwd=TESTS.parent,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST")} | interpreter,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"score": "gaussian"}, 'score "gaussian" is neither additive nor a dot product'),
        ({"normalise": "sparsemax"}, "softmax only"),
        ({"visible": gaussian_window(torch.ones(4), 2.0)}, "Gaussian window"),
        ({}, "it runs on a CUDA GPU and query is on cpu"),
    ],
)
def test_it_says_why_it_cannot_run_and_what_could(options, reason):
    options = {"score": additive(torch.ones(3).double()), **options}
    with pytest.raises(BackendError) as raised:
        attend(*random_inputs(), backend="fused", **options)
    assert reason in str(raised.value)
    assert f'"auto" would run "{explain(*random_inputs(), **options).backend}"' in str(raised.value)


def test_nothing_to_compare_is_no_work_for_it():
    assert (
        "nothing to compare" in explain(*random_inputs(keys=0), score=additive(torch.ones(3).double())).against["fused"]
    )


def test_it_wants_triton_and_single_or_half_precision(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    inputs, score = random_inputs(), additive(torch.ones(3).double())
    assert "query is torch.float64" in explain(*inputs, score=score).against["fused"]
    monkeypatch.setattr(backends, "HAS_TRITON", False)
    inputs, score = [tensor.float() for tensor in inputs], additive(torch.ones(3))
    assert "Triton is not installed" in explain(*inputs, score=score).against["fused"]
