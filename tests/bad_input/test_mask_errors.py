"""Masks that cannot be: an error of ours that names the argument, what was seen and what was wanted."""

import pytest
import torch

from jumok.attention import (
    attend,
    causal,
    explain,
    from_lengths,
    from_torch_mask,
    from_torch_padding,
    gaussian_window,
    to_torch_mask,
    to_torch_padding,
    whole,
    window,
)
from support.attention import raises

both = pytest.mark.parametrize("function", [attend, explain])


@pytest.mark.parametrize("shape", [(4,), (5, 4), (2, 5), (3, 2, 4, 5), (1, 2, 3, 4, 5), (2, 4, 5)])
def test_masks_that_do_not_broadcast(q, k, v, shape):
    mask = torch.ones(shape, dtype=torch.bool)
    for function in (attend, explain):
        for visible in (mask, mask & causal()):
            with raises("visible", str(list(shape)), "[2, 3, 4, 5]"):
                function(q, k, v, visible=visible)
        with raises("visible", str(list(shape))):
            function(q, k, v, visible=~(causal() | mask))


@both
def test_masks_on_another_device(function, q, k, v):
    elsewhere = torch.ones(4, device="meta")
    for visible, name in (
        (torch.ones(4, 5, dtype=torch.bool, device="meta"), "visible"),
        (from_lengths(torch.ones(2, dtype=torch.long, device="meta")), "lengths"),
        (gaussian_window(elsewhere, 2.0), "centre"),
        (window(1, centre=elsewhere), "centre"),
    ):
        with raises(name, "meta", "cpu"):
            function(q, k, v, visible=visible)


def test_lengths_that_cannot_be(q, k, v):
    for lengths, facts in (
        ([3, -1], ["negative", "-1"]),
        ([1.5, 2.0], ["integers", "1.5"]),
        (torch.ones(2, dtype=torch.bool), ["integers", "torch.bool"]),
        ([3, 6], ["6", "5 keys"]),
        ([1, 2, 3], ["[3]", "[2, 3]"]),
        (torch.ones(2, 3, 4, dtype=torch.long), ["[2, 3, 4]", "[2, 3]"]),
    ):
        with raises("lengths", *facts):
            attend(q, k, v, visible=from_lengths(lengths))
    with raises("lengths", "[2]", "[]"):
        attend(q[0, 0], k[0, 0], v[0, 0], visible=from_lengths([1, 2]))


@pytest.mark.parametrize(
    "join",
    [lambda one, other: one and other, lambda one, other: one or other, lambda one, other: not one],
    ids=["and", "or", "not"],
)
def test_masks_joined_by_words_instead_of_signs(join):
    for mask in (causal(), from_lengths([1]), window(1), ~causal(), causal() & window(1)):
        with raises("a mask has no truth value", "&, | and ~"):
            join(mask, causal())


def test_windows_that_cannot_be(q, k, v):
    for make, facts in (
        (lambda: window(-1, 2), ["before = -1", "after = 2", "negative"]),
        (lambda: window(1, -2), ["after = -2", "negative"]),
        (lambda: gaussian_window(torch.ones(4), 0.0), ["reach", "greater than 0", "0.0"]),
        (lambda: gaussian_window(torch.ones(4), float("nan")), ["reach", "greater than 0", "nan"]),
        (lambda: gaussian_window(torch.ones(4, dtype=torch.long), 1.0), ["centre", "floating-point", "torch.int64"]),
    ):
        with raises(*facts):
            make()
    for visible in (gaussian_window(torch.ones(5), 1.0), window(1, centre=torch.ones(5))):
        with raises("centre", "[5]", "[*lead, query]", "[2, 3, 4]"):
            attend(q, k, v, visible=visible)


def test_torch_masks_that_cannot_be_read():
    visible = torch.ones(2, 2, dtype=torch.bool)
    for mask, true_means, facts in (
        (visible, "masked", ["true_means", "'masked'", "hidden", "visible"]),
        (torch.full((2, 2), 0.5), "hidden", ["attn_mask", "torch.float32", "0 and -inf"]),
        (torch.full((2, 2), torch.nan), "hidden", ["attn_mask", "torch.float32", "0 and -inf"]),
        (torch.zeros(2, 2, dtype=torch.long), "hidden", ["attn_mask", "torch.int64", "boolean"]),
    ):
        with raises(*facts):
            from_torch_mask(mask, true_means=true_means)
    with raises("true_means", "None", "hidden", "visible"):
        to_torch_mask(causal(), true_means=None, queries=2, keys=2)
    with raises("key_padding_mask", "boolean", "torch.float32"):
        from_torch_padding(torch.zeros(2, 5))
    with raises("key_padding_mask", "[batch, key]", "[5]"):
        from_torch_padding(visible[0].repeat(3)[:5])


def test_a_whole_mask_of_a_size_that_cannot_be():
    for sizes, fact in (
        ({"queries": -1, "keys": 3}, "queries = -1"),
        ({"queries": 2, "keys": "3"}, "keys = '3'"),
        ({"queries": 2, "keys": None}, "keys = None"),
        ({"queries": 2, "keys": 3, "lead": (2, -1)}, "lead[1] = -1 must be at least 0"),
    ):
        for function in (whole, lambda mask, **sizes: to_torch_mask(mask, true_means="hidden", **sizes)):
            with raises(fact):
                function(causal(), **sizes)
    with raises("batch = 2.5"):
        to_torch_padding(causal(), batch=2.5, keys=3)


def test_a_whole_mask_of_the_wrong_size():
    with raises("visible", "[4]", "[2, 3]"):
        whole(torch.ones(4, dtype=torch.bool), queries=2, keys=3)


@both
def test_masks_that_are_not_boolean_tensors(function, q, k, v):
    for dtype in (torch.float32, torch.int64, torch.uint8):
        with raises("visible", "boolean", str(dtype), "mask.bool()"):
            function(q, k, v, visible=torch.ones(4, 5, dtype=dtype))
    with raises("visible", "a tensor", "list"):
        function(q, k, v, visible=[[True] * 5] * 4)
    with raises("visible", "a tensor", "str"):
        function(q, k, v, visible=causal() & "causal")
