"""Flash attention sees what a mask shows, and nothing else, not even NaN.

test_flash.py runs this file in a process of its own.
"""

import pytest
import torch

from jumok.attention import attend, causal, from_lengths, packed, window
from jumok.attention.flash.ranges import Ranges
from jumok.attention.masks import Tile, as_visible
from support.attention import values_and_gradients
from support.flash import DEVICE, assert_as_accurate_as_plain_torch, draw, with_backend

QUERIES, KEYS = 35, 40


def tensor(*numbers):
    return torch.tensor(numbers, device=DEVICE)


def masks():
    drawn = (torch.rand(2, 1, QUERIES, KEYS, generator=torch.Generator().manual_seed(1)) > 0.5).to(DEVICE)
    return {
        "nothing hidden": None,
        "lengths": from_lengths(tensor(23, 0)),
        "lengths of both": from_lengths(tensor(23, 40), query_lengths=tensor(35, 9)),
        "lengths of heads": from_lengths(tensor([23, 40], [1, 32])),
        "causal": causal(),
        "causal with earlier keys": causal(5),
        "a causal mask that hides the first queries' keys": causal(-20),
        "window": window(5, 2),
        "a narrow window with an offset": window(0, 1, offset=3),
        "a window without an end": window(3, float("inf")),
        "a window around centres": window(1.5, 2, centre=torch.linspace(-3, 50, QUERIES, device=DEVICE)),
        "all of them": from_lengths(tensor(33, 20)) & causal(2) & window(17),
        "packed": packed(tensor(7, 0, 20), tensor(10, 8, 16)),
        "packed and causal": packed(tensor(7, 0, 20, 3)) & causal(),
        "packed twice": packed(tensor(7, 20)) & packed(tensor(15, 12)),
        "a tensor": drawn,
        "the same keys for all": drawn[:, :, :1],
        "one mask for all": drawn[0, 0],
        "a tensor and lengths": from_lengths(tensor(33, 20)) & drawn,
        "or": causal(-4) | drawn,
        "not": ~causal(3),
    }


@pytest.mark.parametrize("name", masks())
def test_it_sees_what_the_mask_shows(name):
    heads = 2 if "heads" in name else 1
    assert_as_accurate_as_plain_torch(draw((2, heads), QUERIES, KEYS), visible=masks()[name])


@pytest.mark.parametrize("name", [name for name, mask in masks().items() if mask is not None])
def test_what_is_not_finite_reaches_those_who_see_it_and_nobody_else(name):
    query, key, value = draw(queries=QUERIES, keys=KEYS)
    query[0, 0, 30] = key[1, 0, 20] = value[1, 1, 5, 1] = torch.nan
    value[0, 1, 33, 2], value[0, 0, 39], key[1, 1, 38] = torch.inf, -torch.inf, torch.nan
    assert_as_accurate_as_plain_torch([query, key, value], visible=masks()[name])


@pytest.mark.parametrize("name", [name for name, mask in masks().items() if mask is not None])
def test_ranges_hold_the_mask(name):
    visible, tile = as_visible(masks()[name]), Tile((2, 2), QUERIES, KEYS, torch.device(DEVICE))
    found = Ranges.of(visible, tile).matrix(QUERIES, KEYS, tile.device)
    assert (found.expand(2, 2, QUERIES, KEYS) == visible.tile(tile).expand(2, 2, QUERIES, KEYS)).all()


def test_a_query_that_sees_nothing_gets_zeros_and_no_gradient():
    found = values_and_gradients(with_backend("fused", visible=from_lengths(tensor(0, 0))), draw())
    assert all((tensor == 0).all() for tensor in found)


def test_padding_so_large_that_it_would_overflow_leaves_no_trace():
    clean = draw(queries=QUERIES, keys=KEYS)
    large = [tensor.clone() for tensor in clean]
    large[1][0, :, 23:] = large[2][0, :, 23:] = 3e38
    compute = with_backend("fused", visible=from_lengths(tensor(23, 40)))
    for one, other in zip(values_and_gradients(compute, large), values_and_gradients(compute, clean), strict=True):
        torch.testing.assert_close(one, other)


def test_a_key_whose_score_is_minus_infinity_is_hidden():
    query, key, value = (tensor.abs() for tensor in draw())
    key[0, 0, 20] = -torch.inf
    found = values_and_gradients(with_backend("fused", visible=causal()), [query, key, value])
    mask = torch.ones(2, 2, 33, 33, dtype=torch.bool, device=DEVICE).tril()
    mask[0, 0, :, 20] = False
    wanted = values_and_gradients(with_backend("direct", visible=mask), [query, key, value])
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_weights_on_demand_are_those_of_the_reference():
    query, key, value = draw(queries=QUERIES, keys=KEYS)
    key[0, 0, 30], value[1, 1, 20] = torch.nan, torch.nan
    found, wanted = (
        attend(query, key, value, visible=causal(), backend=backend).weights for backend in ("fused", "direct")
    )
    for name in ("__call__", "entropy", "column_sums"):
        torch.testing.assert_close(getattr(found, name)(), getattr(wanted, name)(), equal_nan=True)
    torch.testing.assert_close(found(heads=[1], rows=[3, 20]), wanted(heads=[1], rows=[3, 20]), equal_nan=True)
