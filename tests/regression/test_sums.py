"""Sums over the points near each query: their order and blocks, and the Triton kernels' own checks."""

import pytest
import torch

from jumok.regression import gpu
from jumok.regression.sums import PointBlocks, gaps, near_order, surely_within
from support.kernels import needs_triton, run_checks


@pytest.mark.long
@needs_triton
def test_the_kernels_do_what_they_must():
    run_checks("regression/gpu_checks.py")


@pytest.mark.parametrize(
    ("points", "dim", "size"), [(1, 1, 4), (1, 3, 4), (64, 2, 8), (65, 2, 8), (100, 3, 7), (9, 1, 4)]
)
def test_blocks_hold_every_point_once_and_within_its_box(points, dim, size):
    x = torch.rand(points, dim)
    blocks = PointBlocks.of(x, size)
    assert sorted(blocks.order[:points].tolist()) == list(range(points))
    assert torch.equal(blocks.of_points(blocks.x), x)
    assert torch.equal(blocks.of_points(blocks.at_places(x)), x)
    assert not blocks.at_places(x)[points:].any()
    held = blocks.x.view(blocks.count, size, dim)
    inside = (held >= blocks.low[:, None]) & ((held <= blocks.high[:, None]) | held.isinf())
    assert inside.all()


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_neighbours_stand_together(dim):
    blocks = PointBlocks.of(torch.rand(4096, dim), 64)
    volume = (blocks.high - blocks.low).prod(1).mean() * blocks.count
    assert volume < 1.2, "boxes of 64 neighbours cover the cube about once; of any 64 points, about 64 times"


def test_boxes_tell_how_near_points_can_be_and_surely_are():
    x, query = torch.rand(200, 2), torch.rand(30, 2) + 0.5
    blocks = PointBlocks.of(x, 16)
    gap = gaps(query, query, blocks)
    squared = torch.cdist(query, blocks.x.nan_to_num(posinf=1e9)).square().view(30, -1, 16)
    assert (gap <= squared.amin(-1) + 1e-6).all()
    assert (surely_within(query, query, blocks) >= squared.amin((1, 2)) - 1e-6).all()


def test_the_order_of_equal_points_is_an_order_too():
    assert sorted(near_order(torch.ones(20, 2), 4)[:20].tolist()) == list(range(20))


@pytest.mark.long
@pytest.mark.parametrize(
    ("x", "values", "reason"),
    [
        (torch.zeros(3, 2), 1, "the points are on cpu"),
        (torch.zeros(3, 2, device="meta"), 1, "the points are on meta"),
    ],
)
def test_the_kernels_say_why_they_cannot_run(x, values, reason, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert reason in gpu.why_not(x, values)


@pytest.mark.long
@pytest.mark.parametrize(
    ("x", "values", "reason"),
    [
        (torch.zeros(3, 2, dtype=torch.float16), 1, "float16"),
        (torch.zeros(3, 9), 1, "8 dimensions"),
        (torch.zeros(3, 2), 9, "8 outputs"),
    ],
)
def test_the_kernels_say_what_they_do_not_take(x, values, reason, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert reason in gpu.why_not(x, values)
    assert "cannot be divided into tiles" in gpu.why_not(torch.zeros(3, 2), 1, 60)
