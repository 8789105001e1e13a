"""Fused additive attention gives the numbers of its reference, at any size, precision and magnitude.

test_gpu.py runs this file in a process of its own.
"""

import pytest
import torch

from jumok.attention import additive, attend, causal, concat, window
from jumok.attention.additive.gpu import backward, forward, operators
from support.additive import DEVICE, assert_as_accurate_as_plain_torch, draw, with_backend
from support.attention import assert_all_close, values_and_gradients


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize(
    ("queries", "keys", "dim", "values"),
    [
        (1, 1, 8, 1),
        (63, 65, 10, 17),
        (129, 20, 17, 5),
        (1, 129, 60, 40),
        (4, 33, 5, 2),
        (7, 129, 8, 4),
        (9, 9, 30, 130),
    ],
)
def test_it_is_as_accurate_as_plain_torch_at_any_size(queries, keys, dim, values):
    assert_as_accurate_as_plain_torch(draw(2 if queries < 60 else 1, queries, keys, dim, values))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("queries", [2, 9])
def test_half_precision_is_computed_in_single(dtype, queries):
    assert_as_accurate_as_plain_torch(draw(queries=queries, values=16, dtype=dtype), floor=1e-3)


@pytest.mark.parametrize("spread", [0.01, 3.0, 8.0, 100.0])
def test_it_is_as_accurate_for_numbers_of_any_size(spread):
    assert_as_accurate_as_plain_torch(draw(1, 17, 19, spread=spread))


@pytest.mark.parametrize("queries", [3, 40])
@pytest.mark.parametrize("spread", [1e-3, 0.1, 0.25])
def test_small_scores_and_the_gradient_of_v_keep_the_digits_of_a_tanh(queries, spread):
    query, key, _, v = draw(queries=queries, keys=50, dim=24, spread=spread)
    upstream = torch.randn(2, queries, 50, device=DEVICE)
    terms = torch.tanh(query.double()[:, :, None] + key.double()[:, None])
    digits = 1e-6  # eight units in the last place, of each term
    found = operators.additive_scores(query, key, v.requires_grad_()[None])
    (d_v,) = torch.autograd.grad(found, v, upstream)
    assert ((found - terms @ v.double()).abs() <= digits * (terms.abs() @ v.double().abs())).all()
    given = upstream.double()[..., None] * terms
    assert ((d_v - given.sum((0, 1, 2))).abs() <= digits * given.abs().sum((0, 1, 2))).all()


@pytest.mark.usefixtures("tiles")
def test_tiles_of_small_usual_large_and_huge_numbers_stand_side_by_side():
    query, key, value, v = draw(1, 70, 150)
    for tensor, sizes in ((query, (1e-3, 1.0, 100.0)), (key, (1e-3, 1.0, 1e-3, 1.0, 6.0))):
        tensor *= torch.tensor(sizes, device=DEVICE).repeat_interleave(32)[: tensor.shape[1], None]
    assert_as_accurate_as_plain_torch([query, key, value, v], visible=window(40, 70))


@pytest.mark.parametrize("size", [5.4, 5.6, 10.9, 11.1, 39.9, 40.1, 88.0, 1e4, 1e30])
@pytest.mark.parametrize("queries", [1, 6])
def test_saturated_features_are_exactly_one_and_opposite_ones_cancel(size, queries):
    query, key = torch.full((1, queries, 2), size), torch.tensor([[[0.0, 0.0], [-size, -size], [-2 * size, -2 * size]]])
    scores = operators.additive_scores(query.to(DEVICE), key.to(DEVICE), torch.tensor([[1.0, 2.0]], device=DEVICE))
    wanted = torch.tensor([3.0, 0.0, -3.0]) * torch.tensor(size).tanh()
    torch.testing.assert_close(scores.cpu(), wanted.expand(1, queries, 3), atol=2e-6, rtol=0)


@pytest.mark.parametrize("total", [9.4, 9.6, 10.95, 20.0, 38.0, 90.0])
@pytest.mark.parametrize("v", [1.0, 1e6, 1e30])
def test_saturated_features_do_not_overflow_with_large_v(total, v):
    query, key, v = torch.full((1, 6, 8), total / 2), torch.full((1, 3, 8), total / 2), torch.full((1, 8), v)
    scores = operators.additive_scores(*(tensor.to(DEVICE) for tensor in (query, key, v)))
    torch.testing.assert_close(scores.cpu(), v.sum().expand(1, 6, 3), atol=0, rtol=1e-6)


@pytest.mark.parametrize("spread", [0.01, 1.0, 8.0])
def test_a_large_v_is_as_exact_as_a_small_one(spread, tiles):
    query, key, _, v = draw(1, 33, 40, 60, spread=spread)
    scores = [operators.additive_scores(query, key, v[None] * large) for large in (1.0, 2.0**60)]
    assert torch.equal(scores[0] * 2.0**60, scores[1])


def test_the_gradient_of_a_large_v_is_that_of_the_direct_form():
    *inputs, v = draw(1, 20, 40, 60)
    inputs.append(1e5 * v)
    found, plain = (values_and_gradients(with_backend(backend), inputs) for backend in ("fused", "direct"))
    wanted = values_and_gradients(with_backend("direct"), [tensor.double() for tensor in inputs])
    for exact, ours, theirs in zip(wanted, found, plain, strict=True):
        assert (ours - exact).norm() <= 2 * (theirs - exact).norm() + 1e-6 * exact.norm()


@pytest.mark.parametrize("v_lead", [(), (3,), (2, 1)])
def test_leading_axes_broadcast(v_lead):
    query, key, value = torch.randn(2, 1, 5, 4), torch.randn(3, 7, 4), torch.randn(2, 3, 7, 2)
    inputs = [tensor.to(DEVICE) for tensor in (query, key, value, torch.randn(*v_lead, 4))]
    wanted = values_and_gradients(with_backend("direct"), inputs)
    assert_all_close(values_and_gradients(with_backend("fused"), inputs), wanted, atol=5e-6, rtol=1e-5)


@pytest.mark.parametrize(("values", "full"), [(3, 0), (130, torch.inf)])
def test_where_the_work_is_cut_does_not_matter(monkeypatch, values, full):
    monkeypatch.setattr(forward, "FULL", full)
    inputs, visible = draw(3, 150, 20, 3, values), causal(2)
    wanted = values_and_gradients(with_backend("direct", visible=visible), inputs)
    monkeypatch.setattr(forward, "PLANES", 128 * 32 * 12)
    monkeypatch.setattr(forward, "parts_for", lambda *_: 3)
    monkeypatch.setattr(backward, "side_parts", lambda *_: 3)
    found = values_and_gradients(with_backend("fused", visible=visible), inputs)
    assert_all_close(found, wanted, atol=2e-5, rtol=1e-4)


def test_two_runs_are_equal_to_the_bit():
    inputs = draw(1, 9, 40)
    one, other = (values_and_gradients(with_backend("fused"), inputs) for _ in range(2))
    assert all(torch.equal(first, second) for first, second in zip(one, other, strict=True))


def test_weights_are_rebuilt_and_differentiable():
    query, key, value, v = draw(2, 9, 12)
    results = []
    for backend in ("fused", "direct"):
        leaves = [tensor.clone().requires_grad_() for tensor in (query, key, v)]
        out = attend(*leaves[:2], value, score=additive(leaves[2]), visible=causal(2), backend=backend)
        weights = out.weights(rows=[1, 8, 3, 0, 5])
        upstream = torch.randn(weights.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)
        results.append([weights, out.weights.entropy(), *torch.autograd.grad(weights, leaves, upstream)])
    assert_all_close(*results, atol=5e-6, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("queries", [3, 9])
def test_weights_in_half_precision_are_those_that_mixed_the_values(dtype, queries):
    query, key, _, v = draw(1, queries, 40, 33, dtype=dtype)
    out = attend(query, key, torch.eye(40, dtype=dtype, device=DEVICE), score=additive(v), backend="fused")
    assert out.weights().dtype == dtype
    # Values of an identity show the weights.
    torch.testing.assert_close(out.weights(), out.values, atol=1e-7, rtol=torch.finfo(dtype).eps)


@pytest.mark.parametrize("queries", [3, 9])
def test_under_autocast_too_the_weights_are_those_that_mixed_the_values(queries):
    query, key, _, v = draw(1, queries, 40, 33, spread=2.0)
    with torch.autocast(DEVICE, torch.bfloat16):
        out = attend(query.bfloat16(), key.bfloat16(), torch.eye(40, device=DEVICE).bfloat16(), score=additive(3 * v),
                     backend="fused")  # fmt: skip
        weights = out.weights()
    torch.testing.assert_close(weights, out.values, atol=1e-7, rtol=torch.finfo(torch.bfloat16).eps)


def test_luongs_concat_is_the_same_sum_after_a_projection():
    query, key, value, v = draw()
    score = concat(v, torch.randn(6, 12, device=DEVICE))
    fused, direct = (attend(query, key, value, score=score, backend=backend).values for backend in ("fused", "direct"))
    torch.testing.assert_close(fused, direct)


def test_a_gradient_kept_for_a_second_is_right_where_query_key_and_value_are_one_tensor():
    x, v = torch.randn(2, 5, 4, device=DEVICE).requires_grad_(), torch.randn(4, device=DEVICE)

    def gradient(backend, **options):
        out = attend(x, x, x, score=additive(v), backend=backend).values
        return torch.autograd.grad(out.square().sum(), x, **options)[0]

    torch.testing.assert_close(gradient("fused", create_graph=True), gradient("direct"), atol=2e-5, rtol=1e-4)
