"""Precomputed keys and values give what attention gives: values and every gradient, step by step."""

import gc

import pytest
import torch

from jumok.attention import PrecomputedKeys, additive, attend, precompute_keys
from jumok.attention.additive import cpu_steps
from jumok.attention.precomputed import AdditiveKeys, PlainKeys
from jumok.errors import ArgumentError

LENGTHS = torch.tensor([7, 4, 1])


def problem(dtype=torch.double, steps=4):
    torch.manual_seed(0)
    key, value = torch.randn(3, 7, 5, dtype=dtype), torch.randn(3, 7, 6, dtype=dtype)
    queries = [torch.randn(3, 1 + step % 2, 5, dtype=dtype) for step in range(steps)]
    v = torch.randn(5, dtype=dtype)
    return [tensor.requires_grad_() for tensor in (key, value, v, *queries)]


def visible():
    return (torch.arange(7) < LENGTHS[:, None])[:, None]


def steps(key, value, v, *queries):
    source = precompute_keys(key, value, score=additive(v), visible=visible())
    assert isinstance(source, AdditiveKeys)
    return [source.attend(query) for query in queries]


def attended(key, value, v, *queries):
    return [attend(query, key, value, score=additive(v), visible=visible(), backend="direct") for query in queries]


def test_every_step_equals_a_call_of_attention():
    inputs = problem()
    for mine, other in zip(steps(*inputs), attended(*inputs), strict=True):
        torch.testing.assert_close(mine.values, other.values)
        torch.testing.assert_close(mine.weights(), other.weights())
        torch.testing.assert_close(mine.weights(rows=[0]), other.weights(rows=[0]))


@pytest.mark.parametrize("part", ["values", "weights", "both"])
def test_gradients_gathered_over_all_steps_equal_those_of_attention(part):
    def total(answers):
        values = sum((answer.values**2).sum() for answer in answers)
        weights = sum((answer.weights() ** 3).sum() for answer in answers)
        return {"values": values, "weights": weights, "both": values + weights}[part]

    inputs = problem()
    mine = torch.autograd.grad(total(steps(*inputs)), inputs, materialize_grads=True)
    other = torch.autograd.grad(total(attended(*inputs)), inputs, materialize_grads=True)
    for name, one, two in zip(["key", "value", "v", "q0", "q1", "q2", "q3"], mine, other, strict=True):
        torch.testing.assert_close(one, two, msg=name)


def test_gradcheck_holds_when_each_step_depends_on_the_one_before():
    def chain(key, value, v, query):
        source = precompute_keys(key, value, score=additive(v), visible=visible())
        for _ in range(3):
            out = source.attend(query)
            query = out.values[..., :5] + out.weights().sum(-1, keepdim=True)
        return query

    key, value, v, query, *_ = problem()
    torch.autograd.gradcheck(chain, (key, value, v, query), fast_mode=True)


def test_a_second_backward_through_the_same_graph_gives_the_same_gradients():
    inputs = problem()
    loss = sum((answer.values**2).sum() for answer in steps(*inputs))
    first = torch.autograd.grad(loss, inputs, retain_graph=True)
    for one, two in zip(first, torch.autograd.grad(loss, inputs), strict=True):
        torch.testing.assert_close(one, two)


def squares(answers):
    return sum((answer.values**2).sum() + (answer.weights() ** 3).sum() for answer in answers)


@pytest.mark.parametrize("asked", [[3], [0], [1, 4], [2], [3, 4, 5, 6]])
def test_gradients_asked_for_in_parts_are_those_asked_for_together(asked):
    inputs = problem()
    loss = squares(steps(*inputs))
    torch.autograd.grad(loss, [inputs[number] for number in asked], retain_graph=True)
    mine = torch.autograd.grad(loss, inputs, retain_graph=True)
    again = [torch.autograd.grad(loss, one, retain_graph=True)[0] for one in inputs]
    other = torch.autograd.grad(squares(attended(*inputs)), inputs)
    for one, two, three in zip(mine, again, other, strict=True):
        torch.testing.assert_close(one, three)
        torch.testing.assert_close(two, three)


def test_each_step_may_have_a_backward_pass_of_its_own():
    inputs = problem()
    for answer in steps(*inputs):
        squares([answer]).backward()
    for one, two in zip(inputs, torch.autograd.grad(squares(attended(*inputs)), inputs), strict=True):
        torch.testing.assert_close(one.grad, two)


@pytest.mark.slow
def test_a_source_without_gradient_keeps_nothing_of_the_steps():
    key, value, v, query, *_ = problem()
    source = precompute_keys(key.detach(), value.detach(), score=additive(v.detach()))

    def tensors_after_a_step():
        source.attend(query).values.sum().backward()
        gc.collect()
        return sum(type(thing) is torch.Tensor for thing in gc.get_objects())

    first = tensors_after_a_step()
    assert [tensors_after_a_step() for _ in range(3)] == [first] * 3


@pytest.mark.parametrize("changed", [0, 1, 2])
def test_a_tensor_changed_in_place_between_a_step_and_backward_is_an_error(changed):
    inputs = [one.detach().clone().requires_grad_() for one in problem()]
    loss = squares(steps(*inputs))
    with torch.no_grad():
        inputs[changed].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_source_changed_in_place_is_attended_to_as_it_is_now():
    key, value, v, query, *_ = (one.detach().clone() for one in problem())
    mask = visible()
    source = precompute_keys(key, value, score=additive(v), visible=mask)
    for change in (lambda: key.mul_(2), lambda: value.add_(1), lambda: mask[1].fill_(False)):
        change()
        want = attend(query, key, value, score=additive(v), visible=mask, backend="direct")
        torch.testing.assert_close(source.attend(query).values, want.values)


def test_the_gradient_of_the_gradient_is_that_of_attention():
    def penalty(answers, inputs):
        gradients = torch.autograd.grad(squares(answers), inputs, create_graph=True)
        return torch.autograd.grad(sum((gradient**2).sum() for gradient in gradients), inputs)

    inputs = problem()
    mine, other = penalty(steps(*inputs), inputs), penalty(attended(*inputs), inputs)
    for one, two in zip(mine, other, strict=True):
        torch.testing.assert_close(one, two)


def test_a_query_that_does_not_fit_is_refused_as_attention_refuses_it():
    key, value, v, *_ = problem()
    source = precompute_keys(key, value, score=additive(v))
    with pytest.raises(ArgumentError, match="query has width 1"):
        source.attend(torch.zeros(3, 1, 1, dtype=torch.double))


def test_steps_left_out_of_the_loss_add_nothing():
    inputs = problem()
    used = steps(*inputs)[1].values.sum()
    other = attended(*inputs)[1].values.sum()
    for one, two in zip(torch.autograd.grad(used, inputs[:3]), torch.autograd.grad(other, inputs[:3]), strict=True):
        torch.testing.assert_close(one, two)


def test_tiles_smaller_than_the_problem_change_nothing(monkeypatch):
    inputs = problem()
    whole = torch.autograd.grad(sum((a.values**2).sum() for a in steps(*inputs)), inputs)
    monkeypatch.setattr(cpu_steps, "TILE", 13)
    for one, two in zip(
        torch.autograd.grad(sum((a.values**2).sum() for a in steps(*inputs)), inputs), whole, strict=True
    ):
        torch.testing.assert_close(one, two)


def test_a_source_with_nothing_to_see_gives_zeros_and_no_gradient():
    key, value, v, query, *_ = problem()
    source = precompute_keys(
        key, value, score=additive(v), visible=torch.tensor([True, False, True])[:, None, None].expand(-1, 1, 7)
    )
    out = source.attend(query)
    assert out.values[1].eq(0).all()
    assert out.weights()[1].eq(0).all()
    gradients = torch.autograd.grad(out.values.sum(), (key, value, query))
    assert all(gradient[1].eq(0).all() and gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("size", [30.0, 200.0])
def test_large_queries_and_keys_are_exact(size):
    key, value, v, query, *_ = problem()
    large = query.detach() * size
    source = precompute_keys(key, value, score=additive(v), visible=visible())
    want = attend(large, key, value, score=additive(v), visible=visible(), backend="direct")
    torch.testing.assert_close(source.attend(large).values, want.values)
    assert isinstance(precompute_keys(key * size * 10, value, score=additive(v)), PlainKeys)


def test_nan_behind_the_mask_stays_there():
    key, value, v, query, *_ = problem()
    key, value = (tensor.detach().masked_fill(~visible().mT, torch.nan) for tensor in (key, value))
    assert precompute_keys(key, value, score=additive(v), visible=visible()).attend(query).values.isfinite().all()


def test_kept_rows_answer_as_before():
    key, value, v, query, *_ = problem()
    rows = torch.tensor([2, 0])
    for source in (
        precompute_keys(key, value, score=additive(v), visible=visible()),
        precompute_keys(key, value[..., :5], score="dot", visible=visible()),
        precompute_keys(key, value, score="dot"),
    ):
        assert isinstance(source, PrecomputedKeys)
        torch.testing.assert_close(source.keep(rows).attend(query[rows]).values, source.attend(query).values[rows])


def test_a_backend_asked_for_by_name_is_the_one_that_runs():
    key, value, v, *_ = problem()
    assert isinstance(precompute_keys(key, value, score=additive(v), backend="direct"), PlainKeys)
