"""Held against keras.layers.Attention and AdditiveAttention (Keras on PyTorch): values, scores and gradients."""

import pytest
import torch

from jumok.attention import additive, attend, causal, concat, dot, from_lengths, scaled_dot
from support.attention import assert_all_close, values_and_gradients


def inputs():
    return [torch.randn(2, 4, 3), torch.randn(2, 5, 3), torch.randn(2, 5, 2)]


def keras_values(layer, key_visible=None):
    """Keras takes [query, value, key]; its masks are True where visible, as ours are."""
    masks = None if key_visible is None else [None, key_visible]
    return lambda query, key, value: layer([query, value, key], mask=masks)


def built(layer):
    layer.build([(2, 4, 3), (2, 5, 2), (2, 5, 3)])
    return layer


VISIBLE = {"everything": None, "lengths": from_lengths([3, 5])}
KEYS = {"everything": None, "lengths": torch.arange(5) < torch.tensor([[3], [5]])}


@pytest.mark.parametrize("shown", VISIBLE)
def test_dot_attention(shown, keras):
    given = inputs()
    found = values_and_gradients(lambda q, k, v: attend(q, k, v, score=dot(), visible=VISIBLE[shown]).values, given)
    wanted = values_and_gradients(keras_values(built(keras.layers.Attention()), KEYS[shown]), given)
    assert_all_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_dot_attention_with_a_scale_and_a_causal_mask(keras):
    given = inputs()
    layer = built(keras.layers.Attention(use_scale=True))
    layer.scale.assign(0.7)
    theirs = values_and_gradients(lambda q, k, v: layer([q, v, k], use_causal_mask=True), given)
    ours = values_and_gradients(lambda q, k, v: attend(q, k, v, score=scaled_dot(0.7), visible=causal()).values, given)
    assert_all_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_concat_mode_is_the_concat_score_with_one_vector(keras):
    given = inputs()
    layer = built(keras.layers.Attention(score_mode="concat"))
    layer.concat_score_weight.assign(0.6)
    theirs = values_and_gradients(lambda q, k, v: layer([q, v, k]), given)
    ours = values_and_gradients(lambda q, k, v: attend(q, k, v, score=concat(torch.full((3,), 0.6))).values, given)
    assert_all_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shown", VISIBLE)
@pytest.mark.parametrize("backend", ["direct", "blocked"], indirect=True)
def test_additive_attention_with_its_scale(shown, backend, keras):
    given, scale = inputs(), torch.randn(3)
    layer = built(keras.layers.AdditiveAttention())
    layer.scale.assign(scale)
    theirs = values_and_gradients(keras_values(layer, KEYS[shown]), given)
    ours = values_and_gradients(
        lambda q, k, v: attend(q, k, v, score=additive(scale), visible=VISIBLE[shown], backend=backend).values, given
    )
    assert_all_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_the_gradient_of_additive_attentions_vector(keras):
    query, key, value = inputs()
    scale = torch.randn(3, requires_grad=True)
    layer = built(keras.layers.AdditiveAttention())
    layer.scale.assign(scale.detach())
    layer([query, value, key]).square().sum().backward()
    attend(query, key, value, score=additive(scale)).values.square().sum().backward()
    torch.testing.assert_close(scale.grad, layer.scale.value.grad, rtol=1e-4, atol=1e-6)


def test_attention_scores_are_our_weights(keras):
    query, key, value = inputs()
    _, theirs = keras.layers.Attention()([query, value, key], return_attention_scores=True)
    torch.testing.assert_close(attend(query, key, value, score="dot").weights(), theirs)
