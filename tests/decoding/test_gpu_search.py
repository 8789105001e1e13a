"""The kernels of beam search on a GPU, run by Triton's interpreter where there is none."""

import pytest

from support.kernels import needs_triton, run_checks


@pytest.mark.long(seconds=25)
@needs_triton
def test_the_kernels_do_what_plain_pytorch_does():
    run_checks("decoding/extend_checks.py")
