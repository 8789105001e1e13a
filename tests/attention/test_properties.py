"""What must hold for every input: hypothesis looks for one for which it does not."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jumok.attention import Visible, attend, blocks, causal, distribution, from_lengths, whole, window
from jumok.attention.masks import as_visible
from support.attention import NORMALISERS, SCORES, backends_of

seeds = st.integers(0, 2**20)
sizes = st.integers(1, 6)
names = st.sampled_from(sorted(SCORES))
ways = st.sampled_from(NORMALISERS)


@st.composite
def calls(draw):
    """Query, key and value, a score and a mask, of any small size."""
    make = torch.Generator().manual_seed(draw(seeds))
    lead = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    queries, keys, dim = draw(sizes), draw(sizes), draw(sizes)
    spread = draw(st.sampled_from([0.01, 1.0, 30.0]))
    inputs = [
        torch.randn((*lead, *shape), generator=make).double() * spread
        for shape in ((queries, dim), (keys, dim), (keys, 2))
    ]
    name = draw(names)
    with torch.random.fork_rng():
        torch.manual_seed(draw(seeds))
        score = SCORES[name].build(*SCORES[name].parameters(dim))
    visible = draw(st.none() | st.just(torch.rand((*lead, queries, keys), generator=make) > 0.4))
    return inputs, name, score, visible


def backends(name, normalise):
    return st.sampled_from(backends_of(name, normalise))


@given(calls(), ways, st.data())
def test_weights_are_not_negative_and_sum_to_one_or_zero(call, normalise, data):
    inputs, name, score, visible = call
    backend = data.draw(backends(name, normalise))
    weights = attend(*inputs, score=score, normalise=normalise, visible=visible, backend=backend).weights()
    sums = weights.sum(-1)
    assert (weights >= 0).all()
    assert (((sums - 1).abs() < 1e-9) | (sums == 0)).all()
    if visible is not None:
        assert (weights[~visible] == 0).all()
        assert (sums[~visible.any(-1)] == 0).all()
    if name not in ("boxcar", "epanechnikov", "triangular"):
        seen = torch.ones_like(sums, dtype=torch.bool) if visible is None else visible.any(-1)
        assert (sums[seen] > 0).all()


@given(calls(), ways, st.data())
def test_the_order_of_keys_does_not_matter(call, normalise, data):
    (query, key, value), name, score, visible = call
    order = torch.tensor(data.draw(st.permutations(range(key.shape[-2]))))
    if name == "location":
        score = SCORES["dot"].build()
    moved = None if visible is None else visible[..., order]
    one = attend(query, key, value, score=score, normalise=normalise, visible=visible)
    other = attend(query, key[..., order, :], value[..., order, :], score=score, normalise=normalise, visible=moved)
    torch.testing.assert_close(one.values, other.values)
    torch.testing.assert_close(one.weights()[..., order], other.weights())


@given(calls(), ways, st.data())
def test_under_a_causal_mask_later_keys_do_not_change_earlier_rows(call, normalise, data):
    (query, key, value), name, score, _ = call
    backend = data.draw(backends(name, normalise))
    first = data.draw(st.integers(0, key.shape[-2]))
    later = torch.arange(key.shape[-2])[:, None] >= first
    garbage = data.draw(st.sampled_from([0.0, 7.0, torch.nan, torch.inf]))
    options = {"score": score, "normalise": normalise, "visible": causal(), "backend": backend}
    before = attend(query, key, value, **options).values
    after = attend(query, key.masked_fill(later, garbage), value.masked_fill(later, garbage), **options).values
    torch.testing.assert_close(after[..., :first, :], before[..., :first, :], rtol=0, atol=1e-12)


@given(seeds, sizes, sizes, st.floats(-1e3, 1e3), st.sampled_from(["softmax", "sparsemax", "entmax15", "mean"]))
def test_a_number_added_to_every_score_of_a_row_changes_nothing(seed, rows, keys, shift, normalise):
    scores = torch.randn(rows, keys, generator=torch.Generator().manual_seed(seed)).double()
    torch.testing.assert_close(distribution(scores + shift, normalise), distribution(scores, normalise))


@st.composite
def masks(draw, batch=2, queries=3, keys=4):
    """Functions that make a mask: the checker of types draws random numbers, which a strategy must not."""
    make = torch.Generator().manual_seed(draw(seeds))
    lengths = st.lists(st.integers(0, keys), min_size=batch, max_size=batch)
    shapes = st.sampled_from([(keys,), (queries, keys), (batch, 1, keys), (queries, 1), (batch, queries, keys), ()])
    return draw(
        lengths.map(lambda found: partial(from_lengths, found))
        | st.builds(partial, st.just(causal), st.integers(-3, 4))
        | st.builds(partial, st.just(window), st.integers(0, 4), st.integers(0, 4), offset=st.integers(-2, 2))
        | shapes.map(lambda shape: lambda: torch.rand(shape, generator=make) > 0.5)
    )


@given(masks(), masks(), masks())
def test_masks_compose_as_booleans_do(one, other, third):
    def matrix(mask):
        return whole(mask, lead=(2,), queries=3, keys=4)

    one, other, third = one(), other(), third()
    a, b, c = (as_visible(mask) for mask in (one, other, third))
    x, y, z = matrix(one), matrix(other), matrix(third)
    assert torch.equal(matrix(a & b), x & y)
    assert torch.equal(matrix(a | b), x | y)
    assert torch.equal(matrix(~a), ~x)
    assert torch.equal(matrix(~(a & b) | c), ~(x & y) | z)
    assert isinstance(a & other, Visible)


@given(masks(), seeds, ways, names, st.data())
def test_any_mask_does_what_its_matrix_does_for_every_row_and_backend(mask, seed, normalise, name, data):
    make = torch.Generator().manual_seed(seed)
    inputs = [torch.randn(2, *shape, generator=make).double() for shape in ((3, 2), (4, 2), (4, 2))]
    score = SCORES[name].build(*SCORES[name].parameters(2))
    backend, mask = data.draw(backends(name, normalise)), mask()
    matrix = whole(mask, lead=(2,), queries=3, keys=4)
    found = attend(*inputs, score=score, normalise=normalise, visible=mask, backend=backend)
    wanted = attend(*inputs, score=score, normalise=normalise, visible=matrix, backend="direct")
    torch.testing.assert_close(found.values, wanted.values)
    torch.testing.assert_close(found.weights(rows=[2, 0]), wanted.weights()[:, [2, 0]])


@given(calls(), ways, st.integers(0, 400))
def test_blocked_equals_direct(call, normalise, block_bytes):
    inputs, _, score, visible = call
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_BYTES", block_bytes)
        blocked = attend(*inputs, score=score, normalise=normalise, visible=visible, backend="blocked")
        direct = attend(*inputs, score=score, normalise=normalise, visible=visible, backend="direct")
        torch.testing.assert_close(blocked.values, direct.values)
        torch.testing.assert_close(blocked.weights(), direct.weights())
        torch.testing.assert_close(blocked.weights.entropy(), direct.weights.entropy())


@given(calls(), ways, seeds, st.sampled_from([torch.nan, torch.inf, -torch.inf]), st.data())
def test_only_rows_that_see_something_broken_are_nan_and_no_gradient_is(call, normalise, seed, broken, data):
    inputs, name, score, visible = call
    if visible is None:
        visible = torch.rand((inputs[0].shape[-2], inputs[1].shape[-2])) > 0.4
    backend = data.draw(backends(name, normalise))
    make = torch.Generator().manual_seed(seed)
    bad = [torch.rand(tensor.shape[:-1], generator=make) < 0.3 for tensor in inputs]
    broken = [
        tensor.masked_fill(rows[..., None], broken).requires_grad_() for tensor, rows in zip(inputs, bad, strict=True)
    ]
    out = attend(*broken, score=score, normalise=normalise, visible=visible, backend=backend)
    seen = (visible & (bad[1] | bad[2])[..., None, :]).any(-1) | (visible.any(-1) & bad[0])
    assert torch.equal(out.values.isnan().any(-1), seen.expand(out.values.shape[:-1]))
    if out.values.requires_grad:
        gradients = torch.autograd.grad(
            out.values[~seen.expand(out.values.shape[:-1])].sum(), broken, allow_unused=True
        )
        assert all(gradient is None or gradient.isfinite().all() for gradient in gradients)
