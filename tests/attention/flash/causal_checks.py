"""The repair of a causal kernel that lets NaN spread: PyTorch's own, and plain torch playing it for the operators.

test_flash.py runs this file in a process of its own.
"""

import gc
import weakref

import pytest
import torch

from jumok.attention import attend, scaled_dot
from jumok.attention import causal as causal_mask
from jumok.attention.flash import causal
from support.attention import values_and_gradients
from support.flash import DEVICE, draw

TIME = 50


@pytest.fixture(autouse=True)
def spreading(monkeypatch):
    """A kernel that computes 0 · NaN."""

    def weights(query, key, scale):
        scores = (query @ key.mT * scale).masked_fill(
            ~torch.ones(TIME, TIME, dtype=torch.bool).tril().to(DEVICE), -torch.inf
        )
        return scores.softmax(-1)

    def forward(query, key, value, scale):
        return weights(query, key, scale) @ value, query.new_zeros(*query.shape[:-1], 1)

    def backward(d_out, query, key, value, out, lse, scale):
        alpha = weights(query, key, scale)
        d_scores = alpha * (d_out @ value.mT - (d_out * out).sum(-1, keepdim=True))
        return d_scores @ key * scale, d_scores.mT @ query * scale, alpha.mT @ d_out

    monkeypatch.setattr(causal, "forward_kernel", forward)
    monkeypatch.setattr(causal, "backward_kernel", backward)


def reference(query, key, value):
    return attend(query, key, value, score=scaled_dot(0.25), visible=causal_mask(), backend="direct").values


BROKEN = {
    "nothing": [],
    "a value": [(2, 0, 30, 3)],
    "a key": [(1, 0, 30, 3)],
    "a query": [(0, 1, 30, 3)],
    "the first query": [(0, 1, 0, 3)],
    "the last query, key and value": [(0, 0, TIME - 1, 0), (1, 1, TIME - 1, 0), (2, 1, TIME - 1, 1)],
    "the first value": [(2, 1, 0, 3)],
}


WAYS = {
    "PyTorch's kernel": lambda *given: causal.attention(*given, 0.25),
    "the operators": lambda *given: causal.causal_attention(*given, 0.25)[0],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_what_is_not_finite_reaches_those_who_see_it_and_nobody_else(name, number, way):
    inputs = draw(queries=TIME, keys=TIME)
    for which, head, row, column in BROKEN[name]:
        inputs[which][0, head, row, column] = number if which else torch.nan
        if which == 1:  # a score of -inf hides the key: here it is NaN or +inf for all queries
            inputs[0][0, head, :, column] = inputs[0][0, head, :, column].abs() + 0.1
    found = values_and_gradients(WAYS[way], inputs)
    wanted = values_and_gradients(reference, inputs)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4, equal_nan=True)


@pytest.mark.parametrize("way", WAYS)
def test_an_infinite_key_with_scores_of_minus_infinity_spoils_no_gradient(way):
    query, key, value = (tensor.abs() + 0.1 for tensor in draw(queries=TIME, keys=TIME))
    key[0, 0, 20] = -torch.inf
    found = values_and_gradients(WAYS[way], [query, key, value])
    assert all(tensor.isfinite().all() for tensor in found)


@pytest.mark.parametrize("needed", [[0], [1], [2], [0, 2]])
def test_gradients_of_some_inputs_are_repaired_as_well(needed):
    inputs = draw(queries=TIME, keys=TIME)
    inputs[0][0, 0, 30] = inputs[2][1, 1, 20] = torch.nan
    upstream, found = torch.randn_like(inputs[2]), []
    for compute in (WAYS["PyTorch's kernel"], reference):
        given = [tensor.clone().requires_grad_(number in needed) for number, tensor in enumerate(inputs)]
        found.append(torch.autograd.grad(compute(*given), [given[number] for number in needed], upstream))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_a_graph_that_is_kept_is_repaired_every_time():
    inputs = [tensor.requires_grad_() for tensor in draw(queries=TIME, keys=TIME)]
    with torch.no_grad():
        inputs[2][1, 1, 20] = torch.nan
    values = causal.attention(*inputs, 0.25)
    upstream = torch.randn_like(values)
    first, second = (torch.autograd.grad(values, inputs, upstream, retain_graph=True) for _ in range(2))
    assert all(one.isfinite().all() and torch.equal(one, other) for one, other in zip(first, second, strict=True))


def test_nothing_is_kept_alive_longer_than_by_pytorch():
    inputs = [tensor.requires_grad_() for tensor in draw(queries=TIME, keys=TIME)]
    projected = inputs[0] * 2
    alive = weakref.ref(projected)
    values = causal.attention(projected, *inputs[1:], 0.25)
    del projected
    values.sum().backward()
    assert alive() is None
    projected = inputs[0] * 2
    alive = weakref.ref(projected)
    values = causal.attention(projected, *inputs[1:], 0.25)
    del projected, values  # without a backward pass
    gc.collect()
    assert alive() is None
