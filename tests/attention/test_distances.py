"""Distances on a line are computed apart from the general ones; nobody should notice but the clock."""

import pytest
import torch

from jumok.attention import distribution, softmax
from jumok.attention.smoothing import distances


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
