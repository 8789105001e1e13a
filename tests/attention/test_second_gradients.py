"""The gradient of a gradient: right, or an error that names the backend that has it."""

import pytest
import torch

from jumok.attention import attend, causal, explain, precompute_keys
from jumok.errors import BackendError
from support.attention import SCORES, every_score, raises, random_inputs


def leaves(name, lead=(2,), queries=3):
    inputs = random_inputs(lead, queries=queries, keys=4)
    return [tensor.requires_grad_() for tensor in (*inputs, *SCORES[name].parameters(3))]


@pytest.mark.slow
@every_score
@pytest.mark.parametrize("backend", ["direct", "blocked"])
def test_second_gradients_agree_with_finite_differences(name, backend, request):
    given = leaves(name)
    if backend == "blocked":  # two blocks; more take long
        request.getfixturevalue("small_blocks")
        given = leaves(name, lead=(), queries=2)

    def values(query, key, value, *parameters):
        score = SCORES[name].build(*parameters)
        return attend(query, key, value, score=score, visible=causal(), backend=backend).values

    assert torch.autograd.gradgradcheck(values, given, fast_mode=True)


def test_the_additive_kernel_has_second_gradients():
    given = leaves("additive")

    def values(query, key, value, v):
        score = SCORES["additive"].build(v)
        assert explain(query, key, value, score=score, backend="blocked").tiled
        return attend(query, key, value, score=score, visible=causal(), backend="blocked").values

    assert torch.autograd.gradgradcheck(values, given, fast_mode=True)


def twice(compute, query):
    """The second gradient of the squares of what is computed."""
    (first,) = torch.autograd.grad(compute(query).square().sum(), query, create_graph=True)
    return torch.autograd.grad(first.sum(), query)[0]


@pytest.mark.parametrize("visible", [None, causal(), causal(1)], ids=["no mask", "causal", "a mask"])
def test_pytorch_s_kernel_says_which_backend_has_second_gradients(visible):
    query, key, value = (tensor.requires_grad_() for tensor in random_inputs(queries=20, keys=20, value_dim=3))
    with raises('backend="direct"', error=BackendError):
        twice(lambda query: attend(query, key, value, visible=visible, backend="sdpa").values, query)
    assert twice(lambda query: attend(query, key, value, visible=visible, backend="direct").values, query).abs().sum()


def test_a_first_gradient_that_is_kept_for_a_second_is_right():
    query, key, value = (tensor.requires_grad_() for tensor in random_inputs(queries=20, keys=20, value_dim=3))
    values = attend(query, key, value, backend="sdpa").values
    wanted = torch.autograd.grad(values.sum(), query, retain_graph=True)[0]
    torch.testing.assert_close(torch.autograd.grad(values.sum(), query, create_graph=True)[0].detach(), wanted)


def test_a_remembered_source_has_second_gradients():
    query, key, value, v = leaves("additive")
    score = SCORES["additive"].build(v)
    wanted = twice(lambda query: attend(query, key, value, score=score, backend="direct").values, query)
    found = twice(lambda query: precompute_keys(key, value, score=score).attend(query).values, query)
    torch.testing.assert_close(found, wanted)


def chained(attention):
    """Some looks, each query made of what came before and of the source itself, as in a recurrent decoder."""

    def loss(source, v):
        query, total = source[:, :1], 0
        for _ in range(3):
            mixed = attention(query, source, v)
            query, total = torch.tanh(mixed + query), total + mixed.square().sum()
        return total

    return loss


def test_gradients_kept_for_a_second_are_right_where_queries_depend_on_keys():
    source, v = torch.randn(2, 4, 3, dtype=torch.double), torch.randn(3, dtype=torch.double)
    inputs = [source.requires_grad_(), v.requires_grad_()]
    additive = SCORES["additive"].build
    wanted = chained(lambda q, x, v: attend(q, x, x, score=additive(v), backend="direct").values)
    for found in (
        chained(lambda q, x, v: precompute_keys(x, x, score=additive(v)).attend(q).values),
        chained(lambda q, x, v: attend(q, x, x, score=additive(v)).values),
    ):
        ours, theirs = (torch.autograd.grad(loss(*inputs), inputs, create_graph=True) for loss in (found, wanted))
        torch.testing.assert_close(ours, theirs)
        second, exact = (torch.autograd.grad(sum(g.square().sum() for g in first), inputs) for first in (ours, theirs))
        torch.testing.assert_close(second, exact)
