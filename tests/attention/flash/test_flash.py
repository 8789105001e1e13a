"""Flash attention: its own checks, run by Triton's interpreter where there is no GPU; and who may run it."""

import pytest

from jumok.attention import attend, scaled_dot
from jumok.errors import BackendError
from support.attention import random_inputs
from support.kernels import needs_triton, run_checks


@pytest.mark.long(seconds=25)
@needs_triton
@pytest.mark.parametrize("checks", [["mask_checks.py"], ["number_checks.py", "causal_checks.py"]], ids=" ".join)
def test_the_kernels_do_what_they_must(checks):
    run_checks(*(f"attention/flash/{name}" for name in checks))


@pytest.mark.parametrize(
    ("options", "width", "reason"),
    [
        ({"normalise": "sparsemax"}, 3, "softmax only"),
        ({"score": scaled_dot(change=lambda score, *_: score)}, 3, "cannot call a function of the caller"),
        ({}, 129, "up to 128 features, but these have 129"),
        ({}, 3, "needs a CUDA GPU, but query is on cpu"),
    ],
)
def test_it_says_why_it_cannot_run(options, width, reason):
    with pytest.raises(BackendError, match=reason):
        attend(*random_inputs(dim=width), backend="fused", **options)
