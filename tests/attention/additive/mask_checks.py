"""Fused additive attention sees what a mask shows, and nothing else: not even NaN, nor what dropout takes away.

test_gpu.py runs this file in a process of its own.
"""

import pytest
import torch

from jumok.attention import additive, attend, causal, from_lengths, window
from jumok.attention.additive.gpu import forward
from jumok.attention.additive.gpu.mask_intervals import MaskIntervals
from support.additive import DEVICE, draw, with_backend
from support.attention import assert_all_close, values_and_gradients


def masks():
    lengths = torch.tensor([4, 0], device=DEVICE)
    drawn = torch.rand(2, 6, 9, generator=torch.Generator().manual_seed(1)) > 0.5
    return {
        "lengths": from_lengths(lengths),
        "causal": causal(1),
        "a causal mask that hides the first queries' keys": causal(-2),
        "window": window(2, 1),
        "a window around centres": window(1.5, 2, centre=torch.linspace(-3, 12, 12, device=DEVICE).reshape(2, 6)),
        "centres in double precision": window(1, centre=torch.arange(6, device=DEVICE).double() + 1e-9),
        "all of them": from_lengths(lengths + 4) & causal(2) & window(3),
        "a tensor": drawn.to(DEVICE),
        "the same keys for all": drawn[0, 0].to(DEVICE),
        "a tensor and lengths": from_lengths(lengths + 3) & drawn.to(DEVICE),
        "or": causal(-4) | drawn[0].to(DEVICE),
        "not": ~causal(3),
    }


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("name", masks())
@pytest.mark.parametrize("queries", [1, 6])
def test_it_sees_what_the_mask_shows(name, queries):
    visible = masks()[name]
    if queries == 1 and name not in ("lengths", "causal", "window", "the same keys for all", "not"):
        pytest.skip("a mask of six queries")
    inputs = draw(2, queries, 9)
    wanted = values_and_gradients(with_backend("direct", visible=visible), inputs)
    assert_all_close(values_and_gradients(with_backend("fused", visible=visible), inputs), wanted, atol=5e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("queries", "visible"),
    [
        (1, None),
        (1, window(3, 50)),
        *((count, from_lengths(torch.tensor([70, 0, 33], device=DEVICE))) for count in (1, 4)),
    ],
)
def test_keys_cut_into_parts_for_few_queries_come_together(monkeypatch, queries, visible):
    monkeypatch.setattr(forward, "parts_for", lambda *_: 3)
    inputs = draw(3, queries, 70)
    if visible is not None:
        inputs[1][2, 60:] = inputs[2][2, 60:] = torch.nan
    wanted = values_and_gradients(with_backend("direct", visible=visible), inputs)
    assert_all_close(values_and_gradients(with_backend("fused", visible=visible), inputs), wanted, atol=5e-6, rtol=1e-5)


@pytest.mark.parametrize("lead", [(2, 1), (1, 2), (2, 2), (2,), ()])
@pytest.mark.parametrize("queries", [1, 6])
def test_heads_may_share_a_mask_or_have_their_own(lead, queries):
    query, key, value, v = draw(4, queries, 9)
    inputs = [*(tensor.unflatten(0, (2, 2)) for tensor in (query, key, value)), v]
    visible = (torch.rand(*lead, queries, 9, generator=torch.Generator().manual_seed(2)) > 0.5).to(DEVICE)
    wanted = values_and_gradients(with_backend("direct", visible=visible), inputs)
    assert_all_close(values_and_gradients(with_backend("fused", visible=visible), inputs), wanted, atol=5e-6, rtol=1e-5)


def test_a_mask_that_heads_share_is_not_copied():
    mask = torch.ones(2, 1, 5, 7, dtype=torch.bool)
    flat = MaskIntervals(mask=mask).flat((2, 3))
    assert flat.first is flat.beyond is None
    assert flat.mask.shape == (2, 5, 7)
    assert flat.mask.data_ptr() == mask.data_ptr()


@pytest.mark.parametrize("queries", [2, 6])
def test_a_query_that_sees_nothing_gets_zeros_and_nan_behind_a_mask_stays_there(queries):
    inputs = draw(2, queries, 9)
    for tensor in inputs[1:3]:
        tensor[:, 5:] = torch.nan
    values, *gradients = values_and_gradients(
        with_backend("fused", visible=from_lengths(torch.tensor([5, 0], device=DEVICE))), inputs
    )
    assert values.isfinite().all()
    assert not values[1].any()
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert not gradients[0][1].any()


@pytest.mark.parametrize("queries", [3, 7])
@pytest.mark.parametrize("broken", [1, 2])
def test_what_is_not_a_number_shows_in_values_weights_and_gradients_as_in_the_direct_form(queries, broken):
    inputs = draw(1, queries, 9)
    inputs[broken][0, 4] = torch.nan
    found = []
    for backend in ("direct", "fused"):
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        out = attend(*leaves[:3], score=additive(leaves[3]), backend=backend)
        gradients = torch.autograd.grad(out.values.sum(), leaves)
        found.append([out.values, *([out.weights()] if broken == 1 else []), *gradients[:2]])
    for direct, fused in zip(*found, strict=True):
        assert torch.equal(direct.isnan(), fused.isnan())


@pytest.mark.parametrize("queries", [2, 6])
@pytest.mark.parametrize("wrong", [torch.nan, torch.inf])
def test_under_a_mask_a_value_that_is_not_finite_spoils_the_whole_answer_of_those_who_see_it(queries, wrong):
    inputs = draw(2, queries, 9)
    inputs[2][0, 3, 1] = wrong
    values = with_backend("fused", visible=from_lengths(torch.tensor([9, 5], device=DEVICE)))(*inputs)
    assert values[0].isnan().all()
    assert values[1].isfinite().all()


def test_nan_behind_a_mask_stays_there_where_there_is_nothing_to_compare():
    inputs = draw(2, 6, 9, dim=0)
    inputs[2][:, 5:] = torch.nan
    found = attend(*inputs[:3], score=additive(inputs[3]), visible=from_lengths(torch.tensor([5, 0], device=DEVICE)))
    torch.testing.assert_close(found.values[0], inputs[2][0, :5].mean(0).expand(6, -1))
    assert not found.values[1].any()


def test_nan_behind_a_mask_reaches_no_gradient_of_weights_where_values_have_no_width():
    inputs = draw(2, 6, 9, values=0)
    inputs[1][:, 5:] = torch.nan
    query, key, value, v = (tensor.requires_grad_() for tensor in inputs)
    visible = from_lengths(torch.tensor([5, 0], device=DEVICE))
    weights = attend(query, key, value, score=additive(v), visible=visible).weights()
    assert all(slope.isfinite().all() for slope in torch.autograd.grad(weights.square().sum(), (query, key, v)))


def test_a_nan_that_is_seen_spoils_its_row_only():
    inputs = draw(1, 6, 9)
    inputs[0][0, 2, 1] = torch.nan
    broken = with_backend("fused")(*inputs).isnan()
    assert broken[0, 2].all()
    assert broken.sum() == broken[0, 2].numel()


@pytest.mark.parametrize("queries", [3, 9])
@pytest.mark.parametrize("broken", [0, 1, 2])
def test_a_query_whose_answer_is_nan_passes_no_gradient_on(queries, broken):
    inputs = draw(1, queries, 9, values=140)
    inputs[broken][0, 1] = torch.nan
    gradients = []
    for backend in ("direct", "fused"):
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        values = with_backend(backend, visible=causal())(*leaves)
        assert values[0, 1].isnan().all()
        gradients.append(torch.autograd.grad(values.square().sum(), leaves))  # NaN for the answers that are
    assert all(gradient.isfinite().all() for gradient in gradients[0])
    assert_all_close(*gradients, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("queries", [3, 9])
def test_a_nan_that_comes_from_behind_is_passed_on(queries):
    inputs = draw(1, queries, 9)
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    upstream = torch.ones(1, queries, 3, device=DEVICE)
    upstream[0, 1, 1] = torch.nan
    for gradient in torch.autograd.grad(with_backend("fused")(*leaves), leaves, upstream):
        assert gradient.isnan().any()


@pytest.mark.parametrize(("queries", "values", "parts"), [(3, 8, 1), (3, 8, 2), (9, 8, 1), (9, 300, 1)])
def test_dropout_drops_some_weights_and_passes_the_gradient_of_the_others(monkeypatch, queries, values, parts):
    monkeypatch.setattr(forward, "parts_for", lambda *_: parts)
    query, key, value, v = draw(2, queries, 80, values=80)
    value = torch.eye(80, device=DEVICE).expand(2, 80, 80)  # values show the weights
    value = torch.nn.functional.pad(value, (0, values)) if values > 256 else value
    leaves = [tensor.clone().requires_grad_() for tensor in (query, key, value, v)]
    dropped = with_backend("fused", dropout=0.25)(*leaves)
    whole = attend(*leaves[:3], score=additive(leaves[3]), backend="direct").weights()
    kept = (dropped[..., :80] > 0).float()
    assert 0.6 < kept.mean() < 0.9
    wanted = (whole * kept / 0.75) @ leaves[2]
    torch.testing.assert_close(dropped, wanted, atol=2e-6, rtol=1e-5)
    upstream = torch.randn_like(dropped)
    gradients = [torch.autograd.grad(values, leaves, upstream) for values in (dropped, wanted)]
    assert_all_close(*gradients, atol=1e-5, rtol=1e-4)


def test_dropout_follows_the_seed():
    inputs, runs = draw(queries=9, keys=30), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append(with_backend("fused", dropout=0.5)(*inputs))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
