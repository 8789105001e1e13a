"""Fused additive attention: who may run it; and its own checks, run by Triton's interpreter where there is no GPU."""

import pytest
import torch

from jumok.attention import additive, attend, backends, explain, gaussian_window
from jumok.errors import BackendError
from support.attention import random_inputs
from support.kernels import needs_triton, run_checks


@pytest.mark.long(seconds=20)
@needs_triton
@pytest.mark.parametrize(
    "checks",
    [
        "attention/additive/number_checks.py",
        "attention/additive/mask_checks.py",
        "attention/additive/launch_checks.py",
        "graphs/gpu_checks.py",
        "models/rnn_kernel_checks.py",
    ],
)
def test_the_kernels_do_what_they_must(checks):
    run_checks(checks)


@pytest.mark.long(seconds=20)
@needs_triton
def test_the_kernels_of_the_loss_and_of_transformer_layers_do_what_they_must():
    run_checks("training/loss_checks.py", "layers/transformer_checks.py")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"score": "gaussian"}, 'score "gaussian" is neither additive nor a dot product'),
        ({"normalise": "sparsemax"}, "softmax only"),
        ({"visible": gaussian_window(torch.ones(4), 2.0)}, "Gaussian window"),
        ({}, "needs a CUDA GPU, but query is on cpu"),
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
