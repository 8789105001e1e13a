"""Local linear attention (degree=1): against least squares written out, gradients, masks, blocks."""

import pytest
import torch

from jumok.attention import attend, blocks, causal, explain, from_lengths, gaussian, general
from jumok.attention.local_linear import pseudoinverse
from jumok.errors import ArgumentError, BackendError

F64 = torch.float64


def tensors(queries, keys, dim, lead=(2, 3), dtype=F64):
    return (torch.randn(*lead, count, width, dtype=dtype) for count, width in ((queries, dim), (keys, dim), (keys, 4)))


def least_squares(query, key, value, weights):
    """The first row of the coefficients of each weighted least squares problem, by torch.linalg.lstsq."""
    rows = []
    for place, w in zip(query, weights, strict=True):
        design = torch.cat([torch.ones_like(key[:, :1]), key - place], 1)
        root = w.sqrt()[:, None]
        rows.append(torch.linalg.lstsq(root * design, root * value, driver="gelsd").solution[0])
    return torch.stack(rows)


@pytest.mark.parametrize("score", ["gaussian", "scaled_dot"])
@pytest.mark.parametrize(("queries", "keys", "dim"), [(1, 63, 1), (7, 65, 3), (5, 129, 6)])
def test_values_are_those_of_weighted_least_squares(score, queries, keys, dim):
    query, key, value = tensors(queries, keys, dim)
    out = attend(query, key, value, score=score, degree=1)
    weights = attend(query, key, value, score=score).weights()
    for at in torch.cartesian_prod(torch.arange(2), torch.arange(3)).tolist():
        parts = (tensor[at[0], at[1]] for tensor in (query, key, value, weights))
        torch.testing.assert_close(out.values[at[0], at[1]], least_squares(*parts))


def test_a_line_is_met_exactly_even_outside_the_keys():
    key = torch.randn(50, 2, dtype=F64)
    query = torch.tensor([[0.0, 0.0], [3.0, -4.0]], dtype=F64)
    slope = torch.tensor([[2.0], [-1.0]], dtype=F64)
    torch.testing.assert_close(
        attend(query, key, key @ slope + 5, score="gaussian", degree=1).values, query @ slope + 5
    )


def test_weights_are_the_equivalent_kernel_and_sum_to_one():
    query, key, value = tensors(5, 40, 2)
    out = attend(3 * query, key, value, score=gaussian(0.7), degree=1)
    weights = out.weights()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 5, dtype=F64))
    torch.testing.assert_close(weights @ value, out.values)
    torch.testing.assert_close(weights @ key, 3 * query)  # a line through the keys passes through the query
    assert weights.min() < 0
    torch.testing.assert_close(out.weights(heads=[2], rows=[4, 0]), weights[:, [2]][:, :, [4, 0]])


def test_where_the_keys_do_not_spread_there_is_no_slope():
    query, value = torch.tensor([[5.0, 1.0]], dtype=F64), torch.tensor([[2.0], [4.0]], dtype=F64)
    same = torch.ones(2, 2, dtype=F64)
    torch.testing.assert_close(attend(query, same, value, degree=1).values, value.mean(0)[None])
    line = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=F64)  # a slope along the first axis only
    torch.testing.assert_close(attend(query, line, value, degree=1).values, torch.tensor([[12.0]], dtype=F64))
    torch.testing.assert_close(attend(query, line[:1], value[:1], degree=1).values, value[:1])


def test_masks_hide_keys_from_the_fit_and_nan_behind_them_reaches_nothing():
    query, key, value = tensors(6, 6, 2)
    visible = causal() & from_lengths(torch.tensor([[6, 4, 0], [3, 1, 5]]))
    wanted = attend(query, key, value, degree=1, visible=visible)
    assert torch.all(wanted.values[0, 2] == 0)  # sees nothing
    assert torch.all(wanted.weights()[0, 2] == 0)
    torch.testing.assert_close(
        wanted.values[0, 1, 5], attend(query[0, 1, 5:], key[0, 1, :4], value[0, 1, :4], degree=1).values[0]
    )
    key[1, 1, 3:], value[1, 0, 4] = torch.nan, torch.inf
    key.requires_grad_()
    again = attend(query, key, value, degree=1, visible=visible).values
    torch.testing.assert_close(again, wanted.values)
    again.square().sum().backward()
    assert torch.isfinite(key.grad).all()


@pytest.mark.slow
@pytest.mark.parametrize("score", ["gaussian", "dot"])
def test_gradients_and_second_gradients(score):
    inputs = [tensor.requires_grad_() for tensor in tensors(2, 6, 2, lead=(2,))]

    def values(*given):
        return attend(*given, score=score, degree=1).values

    assert torch.autograd.gradcheck(values, inputs)
    assert torch.autograd.gradgradcheck(values, inputs, atol=1e-4)


def test_scores_with_parameters_weigh_and_the_line_stays_in_the_space_of_the_keys():
    query, key, value = tensors(3, 20, 4, lead=())
    weight = torch.randn(4, 4, dtype=F64)
    weights = attend(query, key, value, score=general(weight)).weights()
    out = attend(query, key, value, score=general(weight), degree=1)
    torch.testing.assert_close(out.values, least_squares(query, key, value, weights))


def test_blocks_of_rows_change_nothing(monkeypatch):
    given = [tensor.requires_grad_() for tensor in tensors(9, 33, 3)]
    wanted = attend(*given, score="gaussian", degree=1, backend="direct").values
    gradients = torch.autograd.grad(wanted.square().sum(), given)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 40_000)
    plan = explain(*given, score="gaussian", degree=1)
    assert plan.backend == "blocked"
    out = attend(*given, score="gaussian", degree=1)
    torch.testing.assert_close(out.values, wanted)
    torch.testing.assert_close(torch.autograd.grad(out.values.square().sum(), given), gradients)
    with pytest.raises(BackendError, match="fits a line"):
        attend(*given, degree=1, backend="sdpa")


def test_half_precision_is_fitted_in_double():
    query, key, value = tensors(5, 40, 3)
    wanted = attend(query, key, value, score="gaussian", degree=1).values
    for dtype, error in ((torch.float32, 1e-5), (torch.bfloat16, 0.15)):
        out = attend(*(tensor.to(dtype) for tensor in (query, key, value)), score="gaussian", degree=1).values
        assert out.dtype == dtype
        assert (out.double() - wanted).abs().max() < error * wanted.abs().max()


def test_the_pseudoinverse_has_the_derivative_of_the_inverse_where_there_is_one():
    root = torch.randn(3, 3, dtype=F64)
    matrix = (root @ root.mT).requires_grad_()
    torch.testing.assert_close(pseudoinverse(matrix), matrix.inverse())
    (mine,), (wanted,) = (
        torch.autograd.grad(inverse(matrix).square().sum(), matrix) for inverse in (pseudoinverse, torch.linalg.inv)
    )
    torch.testing.assert_close(mine, wanted)


def test_wrong_degrees_and_spaces_are_refused():
    query, key, value = tensors(2, 3, 4, lead=())
    for degree in (2, -1, True):
        with pytest.raises(ArgumentError, match="degree must be 0"):
            attend(query, key, value, degree=degree)
    with pytest.raises(ArgumentError, match="in one space"):
        attend(query[:, :2], key, value, score=general(torch.randn(2, 4, dtype=F64)), degree=1)
    with pytest.raises(ArgumentError, match="dropout"):
        attend(query, key, value, degree=1, dropout=0.1)
