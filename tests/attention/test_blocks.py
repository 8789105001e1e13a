"""Blocks of rows, recomputed for the gradient, give what the direct form gives."""

import pytest
import torch

from jumok.attention import attend, blocks, causal, from_lengths
from jumok.attention.blocks import rows_per_block
from support.attention import (
    NORMALISERS,
    SCORES,
    assert_all_close,
    random_inputs,
    random_score,
    values_and_gradients,
)
from support.combinations import in_pairs


@pytest.fixture
def counted(monkeypatch):
    """How many blocks ran."""
    count = []

    def checkpoint(compute, block, **options):
        count.append(block.query.shape[-2])
        return torch.utils.checkpoint.checkpoint(compute, block, **options)

    monkeypatch.setattr(blocks, "checkpoint", checkpoint)
    return count


@pytest.mark.parametrize(
    ("name", "normalise", "block_bytes"), in_pairs(tuple(SCORES), NORMALISERS, (1, 300, 1000))
)  # a row, some rows, more rows
def test_blocked_equals_direct(name, normalise, block_bytes, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", block_bytes)
    inputs, parameters = random_inputs(lead=(2,), queries=7), SCORES[name].parameters(3)

    def compute(backend):
        def run(query, key, value, *parameters):
            score = SCORES[name].build(*parameters)
            visible = causal() & from_lengths([5, 2])
            out = attend(query, key, value, score=score, normalise=normalise, visible=visible, backend=backend)
            entropy = out.weights.entropy()[..., None]
            return torch.cat([out.values, out.weights(), entropy, out.weights.top_k(2)[0]], -1)

        return run

    found = values_and_gradients(compute("blocked"), [*inputs, *parameters])
    wanted = values_and_gradients(compute("direct"), [*inputs, *parameters])
    assert_all_close(found, wanted)


def test_several_blocks_really_run_and_cover_every_row_once(monkeypatch, counted):
    query, key, value = random_inputs(lead=(2,), queries=7)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 3 * 2 * 5 * 8)  # three rows of two sequences, five keys, eight bytes
    attend(query.requires_grad_(), key, value, backend="blocked")
    assert counted == [3, 3, 1]


@pytest.mark.usefixtures("small_blocks")
def test_without_gradients_nothing_is_checkpointed(counted):
    with torch.no_grad():
        attend(*random_inputs(), backend="blocked")
    assert counted == []


def test_a_block_has_at_least_one_row_and_no_more_than_fit(monkeypatch):
    call = attend(*random_inputs(lead=(), queries=4, keys=5), backend="blocked").weights.call
    for limit, rows in [(0, 1), (1, 1), (5 * 8, 1), (10 * 8, 2), (14 * 8, 2), (10**9, 10**9 // 40)]:
        monkeypatch.setattr(blocks, "BLOCK_BYTES", limit)
        assert rows_per_block(call) == rows


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", ["scaled_dot", "additive", "gaussian"])
def test_the_recomputation_drops_the_same_weights_as_the_forward_pass(name):
    query, key, value = random_inputs(lead=(2,))
    score = random_score(name, 3)

    def loss(value, query):
        torch.manual_seed(3)
        return attend(query, key, value, score=score, dropout=0.5, backend="blocked").values

    value.requires_grad_()
    values = loss(value, query)
    upstream = torch.randn_like(values)
    (gradient,) = torch.autograd.grad(values, value, upstream)
    # Values are linear in `value` for fixed weights, so another mask in the backward pass would break this equality.
    torch.testing.assert_close((gradient * value).sum(), (values * upstream).sum())
    assert torch.autograd.gradcheck(lambda q: loss(value.detach(), q), [query.requires_grad_()], fast_mode=True)


@pytest.mark.usefixtures("small_blocks")
def test_each_block_drops_other_weights():
    query, key, value = torch.zeros(6, 2), torch.zeros(40, 2), torch.eye(40)
    dropped = attend(query, key, value, dropout=0.5, backend="blocked").values == 0
    assert len({tuple(row) for row in dropped.tolist()}) == 6


@pytest.mark.usefixtures("small_blocks")
def test_random_numbers_after_the_backward_pass_are_what_they_would_have_been():
    inputs = [tensor.requires_grad_() for tensor in random_inputs(lead=())]
    values = attend(*inputs, dropout=0.5, backend="blocked").values
    state = torch.get_rng_state()
    values.sum().backward()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
def test_blocks_can_be_differentiated_twice():
    query, key, value = random_inputs(lead=())
    for score in ("dot", random_score("general", 3)):
        assert torch.autograd.gradgradcheck(
            lambda q, k, score=score: attend(q, k, value, score=score, backend="blocked").values,
            [query.clone().requires_grad_(), key.clone().requires_grad_()],
            fast_mode=True,
        )
