"""Dropout on a CPU: what torch.nn.Dropout promises, from other random numbers."""

import pytest
import torch

from jumok.layers.dropout import Dropout


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.4])
def test_a_share_p_is_dropped_and_the_rest_is_divided_by_what_is_kept(p, precision):
    torch.manual_seed(0)
    dropped = Dropout(p)(torch.ones(400, 500, dtype=precision))
    assert dropped.dtype == precision
    assert dropped.unique().tolist() == [0, pytest.approx(1 / (1 - p), rel=1e-2)]
    assert (dropped == 0).float().mean().item() == pytest.approx(p, abs=0.005)


def test_the_gradient_goes_where_the_numbers_went():
    x = torch.randn(30, 40, requires_grad=True)
    dropped = Dropout(0.4)(x)
    dropped.sum().backward()
    torch.testing.assert_close(dropped, x * x.grad)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_nothing_is_dropped_outside_training_and_the_extremes_are_exact(p):
    x = torch.randn(30, 40)
    assert Dropout(p).eval()(x) is x
    if p in (0.0, 1.0):
        torch.testing.assert_close(Dropout(p)(x), x * (1 - p))


def test_the_seed_decides_what_is_dropped():
    x = torch.ones(30, 40)
    torch.manual_seed(1)
    first = Dropout(0.5)(x)
    torch.manual_seed(1)
    assert Dropout(0.5)(x).equal(first)
    assert not Dropout(0.5)(x).equal(first)
