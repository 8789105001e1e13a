"""Bahdanau's layer against keras and against the equation."""

import torch

from jumok.attention import from_lengths
from jumok.layers import AdditiveAttention


def test_it_is_the_equation_of_the_paper():
    torch.manual_seed(0)
    layer = AdditiveAttention(query_width=6, key_width=4, hidden=5).double()
    s, h = torch.randn(2, 3, 6, dtype=torch.double), torch.randn(2, 7, 4, dtype=torch.double)
    out = layer(s, layer.memory(h, from_lengths([7, 4])))
    w, u, v = layer.to_query.weight, layer.to_key.weight, layer.v
    for batch, length in ((0, 7), (1, 4)):
        for step in range(3):
            e = torch.stack([v @ torch.tanh(w @ s[batch, step] + u @ h[batch, i]) for i in range(length)])
            context = sum(alpha * state for alpha, state in zip(e.softmax(0), h[batch], strict=False))
            torch.testing.assert_close(out.values[batch, step], context)


def test_values_and_gradients_equal_keras_additive_attention(keras):
    torch.manual_seed(1)
    layer = AdditiveAttention(query_width=6, key_width=4, hidden=5)
    s, h = torch.randn(2, 3, 6, requires_grad=True), torch.randn(2, 7, 4, requires_grad=True)
    visible = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    theirs = keras.layers.AdditiveAttention()
    queries, keys = layer.to_query(s), layer.to_key(h)
    theirs.build([queries.shape, h.shape, keys.shape])
    theirs.scale.assign(layer.v.detach())
    values, weights = theirs([queries, h, keys], mask=[None, visible], return_attention_scores=True)
    out = layer(s, layer.memory(h, visible[:, None, :]))
    torch.testing.assert_close(out.values, values)
    torch.testing.assert_close(out.weights(), weights)
    upstream = torch.randn_like(values)
    for mine, other in zip(
        torch.autograd.grad(out.values, (s, h), upstream), torch.autograd.grad(values, (s, h), upstream), strict=True
    ):
        torch.testing.assert_close(mine, other, atol=1e-5, rtol=1e-5)


def test_the_memory_is_made_once_and_serves_every_step():
    torch.manual_seed(2)
    layer = AdditiveAttention(query_width=6, key_width=4, hidden=5)
    s, h = torch.randn(2, 3, 6), torch.randn(2, 7, 4)
    memory = layer.memory(h)
    steps = [layer(s[:, step : step + 1], memory).values for step in range(3)]
    torch.testing.assert_close(torch.cat(steps, 1), layer(s, memory).values)
    assert memory.keys.shape == (2, 7, 5)
    assert memory.values is h
