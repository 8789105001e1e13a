"""Functions of the caller's own as scores: what looks at positions is never given some of them without being told."""

import pytest
import torch

from jumok.attention import attend, causal, explain, positional, score_pairs
from support.attention import assert_all_close, random_inputs, values_and_gradients

SLOPES = torch.tensor([1.0, 0.1, -2.0], dtype=torch.float64)[:, None, None]


def nearer_is_better(query, key, rows):
    """Every head has its own slope, as in ALiBi."""
    distance = (rows[:, None] - torch.arange(key.shape[-2])).abs()
    return query @ key.mT - SLOPES * distance


def written_out(query, key):
    return nearer_is_better(query, key, torch.arange(query.shape[-2]))


@pytest.mark.usefixtures("small_blocks")
def test_a_positional_function_gives_the_same_in_blocks_as_at_once():
    def compute(backend):
        def run(*inputs):
            out = attend(*inputs, score=positional(nearer_is_better), visible=causal(), backend=backend)
            parts = [out.values, out.weights(), out.weights.entropy()[..., None], out.weights.top_k(2)[0]]
            return torch.cat(parts, -1)

        return run

    inputs = random_inputs(lead=(2, 3), queries=7)
    wanted = values_and_gradients(compute("direct"), inputs)
    assert_all_close(values_and_gradients(compute("blocked"), inputs), wanted)
    assert_all_close(values_and_gradients(compute("auto"), inputs), wanted)
    assert explain(*inputs, score=positional(nearer_is_better)).backend == "blocked"


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("backend", ["auto", "blocked", "direct"])
@pytest.mark.parametrize(
    "picked", [{"rows": [3, 1]}, {"heads": [2, 0, 1]}, {"heads": [1], "rows": slice(2, None)}], ids=str
)
def test_weights_of_some_rows_and_heads_are_those_of_all(backend, picked):
    out = attend(*random_inputs(lead=(2, 3)), score=positional(nearer_is_better), backend=backend)
    heads, rows = picked.get("heads", slice(None)), picked.get("rows", slice(None))
    torch.testing.assert_close(out.weights(**picked), out.weights()[:, heads][:, :, rows])


def test_a_positional_function_is_the_function_of_query_and_key_that_counts_for_itself():
    query, key, value = random_inputs(lead=(2, 3))
    assert_all_close(
        attend(query, key, value, score=positional(nearer_is_better)).values,
        attend(query, key, value, score=written_out).values,
    )
    assert_all_close(score_pairs(query, key, positional(nearer_is_better)), written_out(query, key))


@pytest.mark.usefixtures("small_blocks")
def test_a_function_that_draws_numbers_draws_the_same_for_the_gradient():
    def noisy(query, key, rows):
        return query @ key.mT * torch.rand(len(rows), key.shape[-2])

    query, key, value = random_inputs(lead=())
    query = query.requires_grad_()
    values = attend(query, key, value, score=positional(noisy), backend="blocked").values
    first = torch.autograd.grad(values.sum(), query, retain_graph=True)
    torch.rand(10)
    assert_all_close(torch.autograd.grad(values.sum(), query), first)
