import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jumok.layers.positions import (
    AddedPositions,
    ConcatenatedPositions,
    LearnedPositions,
    RotaryPositions,
    sinusoids,
)

torch.set_num_threads(1)

MODULES = {
    "added": AddedPositions(width=6),
    "concatenated": ConcatenatedPositions(width=9, position_width=3),
    "learned": LearnedPositions(width=6, longest=100),
    "rotary": RotaryPositions(head_dim=6),
}


@pytest.mark.parametrize("width", [1, 2, 7, 64])
def test_sinusoids_follow_the_formula(width):
    want = np.empty((50, width))
    for position in range(50):
        for column in range(width):
            angle = position / math.pow(10000, (column - column % 2) / width)
            want[position, column] = math.cos(angle) if column % 2 else math.sin(angle)
    got = sinusoids(torch.arange(50), width, dtype=torch.float64)
    np.testing.assert_allclose(got.numpy(), want, atol=1e-12)


def test_sinusoids_of_positions_in_any_shape():
    positions = torch.tensor([[[3, 1]], [[0, 3]]])
    table = sinusoids(torch.arange(4), 5)
    assert torch.equal(sinusoids(positions, 5), table[positions])


def test_sinusoids_stay_exact_a_million_tokens_in():
    assert sinusoids(torch.tensor(1_000_001), 4)[0].item() == pytest.approx(math.sin(1_000_001), abs=1e-6)


@pytest.mark.parametrize("name", MODULES)
def test_ten_tokens_at_once_equal_ten_tokens_one_by_one(name):
    place = MODULES[name]
    x = torch.randn(2, 10, 6)
    steps = [place(x[:, t : t + 1], start=t) for t in range(10)]
    torch.testing.assert_close(torch.cat(steps, 1), place(x), rtol=0, atol=0)


@pytest.mark.parametrize("name", MODULES)
def test_every_sequence_of_a_batch_may_start_elsewhere(name):
    place = MODULES[name]
    x = torch.randn(3, 4, 6)
    together = place(x, start=torch.tensor([0, 7, 2]))
    positions = place(x, start=torch.tensor([[0, 1, 2, 3], [7, 8, 9, 10], [2, 3, 4, 5]]))
    for row, start in enumerate([0, 7, 2]):
        torch.testing.assert_close(together[row], place(x[row], start=start), rtol=0, atol=0)
    assert torch.equal(positions, together)


@pytest.mark.parametrize("name", MODULES)
def test_starts_per_sequence_reach_through_the_axis_of_heads(name):
    place = MODULES[name]
    x = torch.randn(2, 3, 4, 6)
    together = place(x, start=torch.tensor([5, 1]))
    torch.testing.assert_close(together[0], place(x[0], start=5), rtol=0, atol=0)
    torch.testing.assert_close(together[1], place(x[1], start=1), rtol=0, atol=0)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_the_dtype_is_that_of_the_input(name, dtype):
    x = torch.randn(2, 3, 6)
    out = MODULES[name](x.to(dtype), start=9)
    assert out.dtype == dtype
    torch.testing.assert_close(out.float(), MODULES[name](x, start=9), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", MODULES)
def test_no_tokens_are_fine(name):
    assert MODULES[name](torch.zeros(2, 0, 6)).shape[:2] == (2, 0)


def test_only_learned_positions_have_anything_to_save():
    assert {name: list(module.state_dict()) for name, module in MODULES.items()} == {
        "added": [],
        "concatenated": [],
        "learned": ["table"],
        "rotary": [],
    }


def test_a_module_made_half_precision_keeps_exact_sinusoids():
    x = torch.zeros(1, 5000, 6)
    assert torch.equal(AddedPositions(width=6).half()(x), AddedPositions(width=6)(x))


def test_concatenated_positions_follow_the_token():
    out = MODULES["concatenated"](x := torch.randn(2, 5, 6), start=4)
    assert torch.equal(out[..., :6], x)
    assert torch.equal(out[1, :, 6:], sinusoids(torch.arange(4, 9), 3))


def test_learned_positions_get_gradients_at_the_positions_used():
    learned = LearnedPositions(width=2, longest=5)
    learned(torch.zeros(3, 2, 2), start=1).sum().backward()
    assert learned.table.grad[:, 0].tolist() == [0, 3, 3, 0, 0]


@pytest.mark.parametrize("head_dim", [2, 8, 64])
def test_rotary_positions_multiply_complex_numbers(head_dim):
    x = torch.randn(2, 3, 11, head_dim, dtype=torch.float64)
    angle = np.arange(5, 16)[:, None] * 500.0 ** (-np.arange(0, head_dim, 2) / head_dim)
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))).numpy() * np.exp(1j * angle)
    want = torch.view_as_real(torch.from_numpy(turned)).flatten(-2)
    torch.testing.assert_close(RotaryPositions(head_dim=head_dim, base=500.0)(x, start=5), want)


@settings(max_examples=25, deadline=None)
@given(
    head_dim=st.integers(1, 17),
    query_at=st.integers(0, 5000),
    key_at=st.integers(0, 5000),
    shift=st.integers(0, 5000),
)
def test_rotated_dot_products_depend_only_on_the_distance(head_dim, query_at, key_at, shift):
    make = torch.Generator().manual_seed(head_dim)
    query, key = torch.randn(2, 1, head_dim, generator=make, dtype=torch.float64)
    turn = RotaryPositions(head_dim=head_dim)
    here = turn(query, start=query_at) @ turn(key, start=key_at).T
    there = turn(query, start=query_at + shift) @ turn(key, start=key_at + shift).T
    torch.testing.assert_close(here, there)


def test_an_odd_head_dim_leaves_its_last_number_alone():
    x = torch.randn(4, 7)
    out = RotaryPositions(head_dim=7)(x, start=3)
    assert torch.equal(out[:, 6], x[:, 6])
    torch.testing.assert_close(out[:, :6], RotaryPositions(head_dim=6)(x[:, :6], start=3))


def test_rotation_is_differentiable():
    turn = RotaryPositions(head_dim=5)
    x = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: turn(x, start=2), (x,))
