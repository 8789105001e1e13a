"""Copies of what attention gave back: the same values and weights, without autograd's graph."""

import copy
import pickle

import pytest
import torch

from jumok.attention import attend, causal, from_lengths
from jumok.layers import MultiHeadAttention
from support.attention import backends_of, raises, random_inputs, random_score

WAYS = {"deepcopy": copy.deepcopy, "pickle": lambda attended: pickle.loads(pickle.dumps(attended))}
every_way = pytest.mark.parametrize("copied", WAYS.values(), ids=WAYS)


def asked(name="scaled_dot", backend="auto"):
    query, key, value = random_inputs()
    visible = causal() & from_lengths([5, 3])
    # Changed in place before: a copy of a tensor does not keep its count of changes.
    query += 1
    query.requires_grad_()
    return query, key, attend(query, key, value, score=random_score(name, 3), visible=visible, backend=backend)


@every_way
@pytest.mark.parametrize(
    ("name", "backend"),
    [(name, way) for name in ("scaled_dot", "cosine", "additive", "location", "gaussian") for way in backends_of(name)],
)
def test_a_copy_has_the_same_values_and_weights(copied, name, backend):
    _, _, attended = asked(name, backend)
    found = copied(attended)
    torch.testing.assert_close(found.values.detach(), attended.values.detach())
    torch.testing.assert_close(found.weights().detach(), attended.weights().detach())
    torch.testing.assert_close(found.weights(rows=[2], heads=[1]), attended.weights(rows=[2], heads=[1]))
    assert found.weights.entropy().shape == attended.weights.entropy().shape


@every_way
def test_a_copy_keeps_its_weights_when_the_tensors_of_the_call_change(copied):
    _, key, attended = asked()
    wanted, found = attended.weights().detach(), copied(attended)
    key += 1
    torch.testing.assert_close(found.weights().detach(), wanted)
    with raises("key was modified in place"):
        attended.weights()


@every_way
def test_a_copy_of_weights_that_are_lost_says_so_as_well(copied):
    _, key, attended = asked()
    key += 1
    with raises("key was modified in place"):
        copied(attended).weights()


@every_way
def test_a_copy_says_when_its_own_tensors_change(copied):
    found = copied(asked()[2])
    found.weights.call.key.add_(1)
    with raises("key was modified in place"):
        found.weights()


@every_way
def test_what_a_layer_gave_in_training_can_be_copied(copied):
    attended = MultiHeadAttention(width=8, heads=2)(torch.randn(2, 5, 8), visible=causal())
    torch.testing.assert_close(copied(attended).weights().detach(), attended.weights().detach())
