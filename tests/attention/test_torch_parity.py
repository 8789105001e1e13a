"""Held against torch.nn.functional.scaled_dot_product_attention: values and gradients through every backend."""

import pytest
import torch
import torch.nn.functional as F

from jumok.attention import attend, causal
from support.attention import assert_all_close, attended_values, random_inputs, values_and_gradients
from support.combinations import in_pairs


def sdpa(**options):
    return lambda query, key, value: F.scaled_dot_product_attention(query, key, value, **options)


@pytest.mark.parametrize(
    ("backend", "lead", "mask_shape"),
    in_pairs(("direct", "blocked", "sdpa"), ((), (2,), (2, 3), (2, 3, 2)), (None, "key", "query key", "full")),
    indirect=["backend"],
)
def test_masks_of_every_shape_at_every_number_of_leading_axes(backend, lead, mask_shape):
    inputs = random_inputs(lead=lead, value_dim=3)
    shapes = {"key": (5,), "query key": (4, 5), "full": (*lead, 4, 5)}
    mask = None if mask_shape is None else torch.rand(shapes[mask_shape]) > 0.4
    if mask is not None:
        mask[..., 0] = True  # SDPA itself gives NaN for hidden rows in some of its kernels
    theirs = None if mask is None else mask.expand(*lead, 4, 5)
    found = values_and_gradients(attended_values(visible=mask, backend=backend), inputs)
    wanted = values_and_gradients(sdpa(attn_mask=theirs), inputs)
    assert_all_close(found, wanted)


def test_a_mask_per_key_of_a_batch(backend):
    inputs = random_inputs(lead=(2, 3), value_dim=3)
    mask = torch.arange(5) < torch.tensor([2, 4])[:, None, None, None]
    found = values_and_gradients(attended_values(visible=mask, backend=backend), inputs)
    assert_all_close(found, values_and_gradients(sdpa(attn_mask=mask), inputs))


@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (4, 7), (7, 4), (1, 6)])
def test_causal_attention(backend, queries, keys):
    inputs = random_inputs(queries=queries, keys=keys)
    found = values_and_gradients(attended_values(visible=causal(), backend=backend), inputs)
    assert_all_close(found, values_and_gradients(sdpa(is_causal=True), inputs))


@pytest.mark.parametrize("value_dim", [1, 3, 8])
def test_values_wider_or_narrower_than_keys(backend, value_dim):
    inputs = random_inputs(value_dim=value_dim)
    found = values_and_gradients(attended_values(backend=backend), inputs)
    assert_all_close(found, values_and_gradients(sdpa(), inputs))


@pytest.mark.parametrize(
    ("query_lead", "key_lead", "value_lead"),
    [((2, 3), (2, 1), (2, 1)), ((2, 3), (), ()), ((3,), (2, 1), (2, 3)), ((), (2,), (4, 1)), ((2, 1), (1, 3), ())],
)
def test_leading_axes_broadcast_and_gradients_come_back_in_the_given_shapes(backend, query_lead, key_lead, value_lead):
    query, key, value = torch.randn(*query_lead, 4, 3), torch.randn(*key_lead, 5, 3), torch.randn(*value_lead, 5, 2)
    inputs = [query.double(), key.double(), value.double()]

    def written_out(q, k, v):
        return (q @ k.mT / 3**0.5).softmax(-1) @ v

    found = values_and_gradients(attended_values(backend=backend), inputs)
    assert_all_close(found, values_and_gradients(written_out, inputs))


def test_grouped_heads_share_their_keys(backend):
    query = torch.randn(2, 2, 3, 4, 3).double()  # batch, groups, heads in a group
    key, value = torch.randn(2, 2, 1, 5, 3).double(), torch.randn(2, 2, 1, 5, 2).double()
    wanted = F.scaled_dot_product_attention(
        query.flatten(1, 2), key.flatten(1, 2), value.flatten(1, 2), enable_gqa=True
    )
    torch.testing.assert_close(attend(query, key, value, backend=backend).values.flatten(1, 2), wanted)


def test_dropout_drops_weights_and_keeps_their_mean(backend):
    query, key, value = torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 4000, 4), torch.ones(1, 1, 4000, 1)
    out = attend(query, key, value, dropout=0.25, backend=backend)
    assert out.values.item() == pytest.approx(1, abs=0.05)
    assert out.values.item() != 1
    torch.testing.assert_close(out.weights(), torch.full((1, 1, 1, 4000), 1 / 4000))
