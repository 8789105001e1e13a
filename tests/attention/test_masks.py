import operator

import pytest
import torch
import torch.nn.functional as F

from jumok.attention import (
    attend,
    causal,
    from_lengths,
    from_torch_mask,
    from_torch_padding,
    gaussian_window,
    to_torch_mask,
    to_torch_padding,
    whole,
    window,
)
from support.attention import random_inputs, random_score, values_and_gradients


def seen(visible, queries, keys, lead=()):
    return whole(visible, lead=lead, queries=queries, keys=keys)


def test_lengths_show_the_first_keys_of_each_sequence():
    assert seen(from_lengths([0, 2, 3]), 1, 3, (3,)).tolist() == [
        [[False, False, False]],
        [[True, True, False]],
        [[True, True, True]],
    ]


@pytest.mark.parametrize("lead", [(2,), (2, 3), (2, 3, 4)])
def test_lengths_belong_to_the_batch_however_many_axes_follow_it(lead):
    found = seen(from_lengths([1, 4]), 5, 4, lead)
    assert found.shape == (*lead, 5, 4)
    assert found[0].sum(-1).unique().tolist() == [1]
    assert found[1].sum(-1).unique().tolist() == [4]


def test_lengths_may_differ_between_heads():
    lengths = torch.tensor([[1, 2, 3], [0, 4, 1]])
    assert torch.equal(seen(from_lengths(lengths), 2, 4, (2, 3)).sum(-1), lengths[..., None].expand(2, 3, 2))


@pytest.mark.parametrize("offset", [-2, 0, 1, 3])
def test_causal_shows_keys_up_to_the_querys_own_place(offset):
    found = seen(causal(offset), 4, 5)
    for row in range(4):
        assert found[row].tolist() == [key <= row + offset for key in range(5)]


def test_causal_steps_with_offsets_are_the_rows_of_the_whole():
    every = seen(causal(), 5, 5)
    for step in range(5):
        assert torch.equal(seen(causal(offset=step), 1, 5)[0], every[step])


@pytest.mark.parametrize(("before", "after", "offset"), [(0, 0, 0), (1, 1, 0), (2, 0, 0), (0, 3, 1), (1, 2, -2)])
def test_a_window_reaches_before_and_after_the_querys_place(before, after, offset):
    found = seen(window(before, after, offset=offset), 4, 6)
    for row in range(4):
        assert found[row].tolist() == [row + offset - before <= key <= row + offset + after for key in range(6)]


def test_a_window_reaches_alike_to_both_sides_unless_told():
    assert torch.equal(seen(window(2), 6, 6), seen(window(2, 2), 6, 6))


def test_a_window_may_follow_given_centres_per_head():
    centre = torch.tensor([[0.0, 2.5], [4.0, -9.0]])
    found = seen(window(1, 1, centre=centre), 2, 5, (2,))
    wanted = [[[abs(key - c) <= 1 for key in range(5)] for c in row] for row in centre.tolist()]
    assert found.tolist() == wanted


def test_masks_without_tensors_fit_every_lead():
    assert seen(causal() & window(1), 3, 3, (2, 4)).shape == (2, 4, 3, 3)


MASKS = {
    "lengths": from_lengths([1, 3]),
    "causal": causal(),
    "window": window(1, 0),
    "per key": torch.tensor([True, False, True, True]),
    "per query and key": torch.rand(3, 4, generator=torch.Generator().manual_seed(0)) > 0.5,
    "per batch": torch.rand(2, 1, 1, 4, generator=torch.Generator().manual_seed(1)) > 0.5,
    "per query": torch.tensor([[True], [False], [True]]),
    "scalar": torch.tensor(False),
}


@pytest.mark.parametrize("combine", [operator.and_, operator.or_])
@pytest.mark.parametrize("left", MASKS)
@pytest.mark.parametrize("right", ["lengths", "causal", "window"])
def test_masks_combine_as_their_matrices_do(combine, left, right):
    def matrix(mask):
        return seen(mask, 3, 4, (2, 5))

    one, other = MASKS[left], MASKS[right]
    wanted = combine(matrix(one), matrix(other))
    assert torch.equal(matrix(combine(one, other)), wanted)
    assert torch.equal(matrix(combine(other, one)), wanted)
    assert torch.equal(matrix(~combine(one, other)), ~wanted)


def test_a_graded_window_combines_by_and_alone():
    graded = gaussian_window(torch.tensor([1.0]), 2.0)
    assert (graded & causal()).scales_weights
    assert (torch.tensor(True) & graded).scales_weights
    for refused in (
        lambda: graded | causal(),
        lambda: causal() | graded,
        lambda: ~graded,
        lambda: ~(graded & causal()),
    ):
        with pytest.raises(ValueError, match="with & only"):
            refused()


def luong_equation_10(scores, centre, reach, value):
    """α(s) · exp(−(s − p)² / 2σ²), σ = D / 2, over the positions within [p − D, p + D]; row by row."""
    rows = []
    for row, p in zip(scores, centre, strict=True):
        near = [s for s in range(len(row)) if abs(s - p.item()) <= reach]
        if not near:
            rows.append(value[0] * 0)
            continue
        align = row[near].softmax(0)
        scales_weights = align * torch.stack([(-((s - p) ** 2) / (2 * (reach / 2) ** 2)).exp() for s in near])
        rows.append(scales_weights @ value[near])
    return torch.stack(rows)


@pytest.mark.parametrize("backend", ["direct", "blocked"], indirect=True)
def test_a_gaussian_window_is_luongs_equation_10_and_its_gradient_reaches_the_centre(backend):
    query, key, value = random_inputs(lead=(), queries=4, keys=7)
    centre = torch.tensor([0.3, 2.9, 5.1, 40.0], dtype=torch.float64)
    found = values_and_gradients(
        lambda q, k, v, p: attend(q, k, v, score="dot", visible=gaussian_window(p, 2.0), backend=backend).values,
        [query, key, value, centre],
    )
    wanted = values_and_gradients(
        lambda q, k, v, p: luong_equation_10(q @ k.mT, p, 2.0, v), [query, key, value, centre]
    )
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)
    assert (found[4][:3] != 0).all()
    assert found[4][3] == 0


def test_a_gaussian_window_with_heads_picks_the_asked_rows_and_heads():
    query, key, value = random_inputs(lead=(2, 3))
    centre = torch.rand(2, 3, 4, dtype=torch.float64) * 5
    out = attend(query, key, value, visible=gaussian_window(centre, 2.0) & causal(1), backend="blocked")
    full = out.weights()
    torch.testing.assert_close(out.weights(heads=[2, 0], rows=[3, 1]), full[:, [2, 0]][:, :, [3, 1]])
    away = torch.arange(5) - centre[..., None]
    mask = (away.abs() <= 2) & (torch.arange(5) <= torch.arange(4)[:, None] + 1)
    plain = attend(query, key, value, visible=mask).weights()
    torch.testing.assert_close(full, plain * (-(away**2) / 2).exp())


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
def test_a_centre_that_is_not_finite_sees_nothing_and_spoils_nothing(broken):
    query, key, value = random_inputs(lead=())
    centre = torch.tensor([1.0, broken, 2.0, 3.0], dtype=torch.float64)
    values, *gradients = values_and_gradients(
        lambda q, k, v, p: attend(q, k, v, visible=gaussian_window(p, 1.5)).values, [query, key, value, centre]
    )
    assert (values[1] == 0).all()
    assert seen(window(1, centre=centre), 4, 5).any(-1).tolist() == [True, False, True, True]
    assert all(gradient.isfinite().all() for gradient in [values, *gradients])


@pytest.mark.parametrize("true_means", ["hidden", "visible"])
@pytest.mark.parametrize("mask", [causal(), window(1), causal() & window(2), from_lengths([1, 3])])
def test_to_torch_and_back_is_the_same_mask(true_means, mask):
    lead = (2,)
    theirs = to_torch_mask(mask, true_means=true_means, lead=lead, queries=3, keys=3)
    assert torch.equal(seen(from_torch_mask(theirs, true_means=true_means), 3, 3, lead), seen(mask, 3, 3, lead))


@pytest.mark.parametrize("true_means", ["hidden", "visible"])
def test_additive_torch_masks_mean_the_same_in_both_conventions(true_means):
    additive_mask = torch.tensor([[0.0, -torch.inf], [0.0, 0.0]])
    found = seen(from_torch_mask(additive_mask, true_means=true_means), 2, 2)
    assert found.tolist() == [[True, False], [True, True]]


def test_the_visible_convention_is_scaled_dot_product_attentions(backend):
    query, key, value = random_inputs()
    mask = to_torch_mask(causal() & window(2), true_means="visible", queries=4, keys=5)
    wanted = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    ours = attend(query, key, value, visible=from_torch_mask(mask, true_means="visible"), backend=backend)
    torch.testing.assert_close(ours.values, wanted)


@pytest.mark.parametrize("kind", ["boolean", "additive"])
def test_the_hidden_convention_is_multihead_attentions(kind):
    layer = torch.nn.MultiheadAttention(6, 2, bias=False, batch_first=True, dtype=torch.float64)
    x = torch.randn(3, 5, 6, dtype=torch.float64)
    hidden = to_torch_mask(causal(), true_means="hidden", queries=5, keys=5)
    padding = torch.arange(5) >= torch.tensor([5, 2, 4])[:, None]
    attn_mask = hidden if kind == "boolean" else torch.zeros(5, 5).double().masked_fill(hidden, -torch.inf)
    theirs, their_weights = layer(
        x,
        x,
        x,
        attn_mask=attn_mask,
        key_padding_mask=padding if kind == "boolean" else None,
        average_attn_weights=False,
    )
    visible = from_torch_mask(attn_mask, true_means="hidden")
    if kind == "boolean":
        visible = visible & from_torch_padding(padding)
    query, key, value = (
        part.unflatten(-1, (2, 3)).transpose(1, 2) for part in (x @ layer.in_proj_weight.T).chunk(3, -1)
    )
    ours = attend(query, key, value, visible=visible)
    torch.testing.assert_close(ours.weights(), their_weights)
    torch.testing.assert_close(ours.values.transpose(1, 2).flatten(-2) @ layer.out_proj.weight.T, theirs)


def test_a_mask_is_cut_to_the_asked_heads_and_rows():
    query, key, value = random_inputs(lead=(2, 3))
    mask = torch.rand(2, 3, 4, 5) > 0.3
    for visible in (mask, mask[:1], mask[:, :1], mask[:, :, :1], mask[0, 0], from_lengths([2, 5]), mask[0, 0, 0]):
        out = attend(query, key, value, score=random_score("gaussian", 3), visible=visible, backend="blocked")
        torch.testing.assert_close(out.weights(heads=[1, 2], rows=[0, 3]), out.weights()[:, 1:][:, :, [0, 3]])


def test_torch_padding_masks_fit_with_and_without_heads_and_come_back():
    padding = torch.tensor([[False, False, True], [False, True, True]])
    visible = from_torch_padding(padding)
    for lead in ((2,), (2, 4)):
        seen = whole(visible, lead=lead, queries=5, keys=3)
        assert torch.equal(seen, ~padding.reshape(2, *[1] * (len(lead)), 3).expand(*lead, 5, 3))
    assert torch.equal(to_torch_padding(visible, batch=2, keys=3), padding)
