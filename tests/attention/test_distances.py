"""Distances: on a line they are computed apart from the general ones, and in any unit they weigh the same."""

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jumok.attention import attend, boxcar, distribution, epanechnikov, gaussian, softmax, triangular
from jumok.attention.distance_scores import distances, rounded_squares, unit_of

KERNELS = [gaussian, boxcar, epanechnikov, triangular]


def points(count, dim=1):
    return torch.randn(count, dim, dtype=torch.float64)


def test_distances_on_a_line_are_those_of_the_same_points_in_the_plane():
    query, key = points(5), points(7)
    flat = [torch.nn.functional.pad(tensor, (0, 1)) for tensor in (query, key)]
    torch.testing.assert_close(distances(query, key), distances(*flat))


def test_near_points_far_from_the_origin_keep_their_distance():
    query = torch.tensor([[1e8]], dtype=torch.float64)
    assert distances(query, query + 2**-20).item() == 2**-20


@pytest.mark.parametrize("dim", [1, 3])
def test_distances_have_exact_gradients_and_none_where_points_coincide(dim):
    query, key = points(4, dim).requires_grad_(), points(3, dim).requires_grad_()
    assert torch.autograd.gradcheck(distances, (query, key))
    distances(query, query).sum().backward()
    assert query.grad.isfinite().all()


@pytest.mark.parametrize("hidden", [[], [1], [0, 1, 2]])
def test_weights_are_the_same_with_and_without_recording_gradients(hidden):
    scores = torch.randn(3, 4)
    scores[hidden] = -torch.inf
    with torch.no_grad():
        quick = distribution(scores)
    torch.testing.assert_close(quick, distribution(scores.requires_grad_()))
    shown = [row for row in range(3) if row not in hidden]
    torch.testing.assert_close(quick[shown], softmax(scores[shown]))
    assert not quick[hidden].any()


@pytest.mark.parametrize("dim", [1, 3])
@pytest.mark.parametrize("score", KERNELS)
@given(exponent=st.floats(-20, 20), as_tensor=st.booleans())
@example(exponent=-20, as_tensor=False)
@example(exponent=20, as_tensor=True)
@settings(max_examples=5)
def test_the_unit_of_points_and_bandwidth_does_not_matter(score, dim, exponent, as_tensor):
    unit, query, key = 10.0**exponent, points(5, dim), points(7, dim)
    bandwidth = torch.tensor(0.9 * unit, dtype=torch.float32) if as_tensor else 0.9 * unit
    value = torch.eye(7)
    single = attend((query * unit).float(), (key * unit).float(), value, score=score(bandwidth)).values
    torch.testing.assert_close(
        single.double(), attend(query, key, value.double(), score=score(0.9)).values, atol=1e-4, rtol=0
    )


@pytest.mark.parametrize("unit", [1e-20, 1.0, 1e20])
@pytest.mark.parametrize("score", [gaussian, epanechnikov, triangular])
def test_gradients_keep_their_size_in_any_unit(score, unit):
    query, key, value = points(5, 2).float(), points(7, 2).float(), torch.randn(7, 1)
    gradients = []
    for scale in (1.0, unit):
        inputs = [(query * scale).requires_grad_(), torch.tensor(1.5 * scale, requires_grad=True)]
        out = attend(inputs[0], key * scale, value, score=score(inputs[1])).values.sum()
        gradients.append([gradient * scale for gradient in torch.autograd.grad(out, inputs)])
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-4)


def test_heads_with_bandwidths_of_any_size_do_not_disturb_each_other():
    units = torch.tensor([1e-20, 1.0, 1e20])
    query, key, value = points(5, 2).float(), points(7, 2).float(), torch.randn(7, 2)
    scaled = [tensor * units[:, None, None] for tensor in (query, key)]
    many = attend(*scaled, value.expand(3, -1, -1), score=gaussian(units)).values
    for head in many:
        torch.testing.assert_close(head, attend(query, key, value, score=gaussian()).values)


@pytest.mark.parametrize("dim", [1, 2, 3, 16, 17])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_squares_are_the_same_to_the_last_bit_in_whole_and_in_parts(dim, dtype):
    query, key = torch.rand(37, dim, dtype=dtype), torch.rand(203, dim, dtype=dtype)
    whole = rounded_squares(query, key)
    torch.testing.assert_close(whole, distances(query, key).square())
    for first, last in ((0, 203), (0, 1), (3, 20), (100, 163)):
        assert torch.equal(rounded_squares(query, key[first:last].mT.contiguous().mT), whole[:, first:last])
    if dim == 2:
        numbers = (query.numpy()[:, None] - key.numpy()) ** 2
        assert np.array_equal(whole.numpy(), numbers[..., 0] + numbers[..., 1])


@pytest.mark.parametrize("bandwidth", [1e-30, 3e-13, 0.3, 3e12, 1e13, 3e38])
def test_usual_bandwidths_have_the_unit_1_and_others_a_power_of_two(bandwidth):
    unit = unit_of(bandwidth, torch.float32)
    assert unit == unit_of(torch.tensor(bandwidth), torch.float32).item()
    assert (unit == 1) == (1e-13 < bandwidth < 4e12)
    assert torch.frexp(torch.tensor(unit)).mantissa == 0.5
    assert 1e-20 < bandwidth / unit < 4e12
