"""Weights on demand: the same whichever backend ran, in whole or in part, differentiable, and reduced in blocks."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from helpers import (
    SCORES,
    assert_all_close,
    every_combination,
    every_score_and_backend,
    random_inputs,
    random_score,
    values_and_gradients,
)
from jumok.attention import attend, blocks, causal, mix

MASK = causal(1) & (torch.arange(5) != 2)


@every_combination
def test_weights_mix_the_values_whichever_backend_ran(name, normalise, backend):
    inputs, score = random_inputs(), random_score(name, 3)
    out = attend(*inputs, score=score, normalise=normalise, visible=MASK, backend=backend)
    assert out.weights().shape == (2, 3, 4, 5)
    torch.testing.assert_close(mix(out.weights(), inputs[2]), out.values)
    direct = attend(*inputs, score=score, normalise=normalise, visible=MASK, backend="direct")
    torch.testing.assert_close(out.weights(), direct.weights())


@pytest.mark.parametrize(
    "rows",
    [[0], [3, 1], [-1, 0], [2, 2], [], (1,), range(3, -1, -1), slice(1, 3), slice(None, None, -1), slice(9, 12)],
    ids=str,
)
@pytest.mark.parametrize("heads", [None, [0], [2, 0], [-1], [1, 1], [], slice(1, None)], ids=str)
def test_any_heads_and_rows(backend, rows, heads):
    out = attend(*random_inputs(), visible=MASK, backend=backend)
    wanted = out.weights()[:, :, list(range(4)[rows]) if isinstance(rows, slice) else list(rows)]
    if heads is not None:
        wanted = wanted[:, heads]
    torch.testing.assert_close(out.weights(rows=rows, heads=heads), wanted)


@every_score_and_backend
def test_parts_of_a_score_with_parameters_per_head(name, backend):
    score = random_score(name, 3, lead=(3,)) if SCORES[name].shapes(3) else random_score(name, 3)
    out = attend(*random_inputs(), score=score, backend=backend)
    torch.testing.assert_close(out.weights(heads=[2, 0], rows=[1, 3]), out.weights()[:, [2, 0]][:, :, [1, 3]])


@every_combination
def test_the_gradient_of_weights_is_that_of_the_direct_form(name, normalise, backend):
    inputs, parameters = random_inputs(), SCORES[name].parameters(3)

    def weights(backend):
        return lambda q, k, v, *p: attend(
            q, k, v, score=SCORES[name].build(*p), normalise=normalise, visible=MASK, backend=backend
        ).weights(heads=[2, 1], rows=[0, 3])

    found = values_and_gradients(weights(backend), [*inputs, *parameters])
    assert_all_close(found, values_and_gradients(weights("direct"), [*inputs, *parameters]))


@every_score_and_backend
def test_reductions_are_those_of_the_whole_matrix(name, backend):
    out = attend(*random_inputs(), score=random_score(name, 3), visible=MASK, backend=backend)
    weights = out.weights()
    top, keys = out.weights.top_k(3)
    torch.testing.assert_close(top, weights.topk(3).values)
    torch.testing.assert_close(weights.gather(-1, keys), top)
    torch.testing.assert_close(weights.gather(-1, out.weights.argmax()[..., None])[..., 0], weights.amax(-1))
    torch.testing.assert_close(out.weights.column_sums(), weights.sum(-2))
    torch.testing.assert_close(out.weights.entropy(), torch.special.entr(weights).sum(-1))
    assert out.weights.argmax().shape == out.weights.entropy().shape == (2, 3, 4)


def test_entropy_of_one_key_is_zero_and_of_equal_keys_their_logarithm():
    query, key, value = torch.zeros(3, 2), torch.zeros(5, 2), torch.zeros(5, 1)
    entropy = attend(query, key, value, visible=causal()).weights.entropy()
    torch.testing.assert_close(entropy, torch.tensor([1.0, 2, 3]).log())


class LargestTensor(TorchDispatchMode):
    """The largest number of elements of any tensor that an operation gives back, views of inputs aside."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        sizes = [
            leaf.untyped_storage().nbytes() // leaf.element_size()
            for leaf in tree_leaves(result)
            if isinstance(leaf, torch.Tensor)
        ]
        self.numel = max(self.numel, *sizes, 0)
        return result


REDUCTIONS = {
    "argmax": lambda weights: weights.argmax(),
    "entropy": lambda weights: weights.entropy(),
    "column_sums": lambda weights: weights.column_sums(),
    "top_k": lambda weights: weights.top_k(2)[0],
}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("name", "backend"),
    [("scaled_dot", "sdpa"), ("scaled_dot", "blocked"), ("additive", "blocked"), ("gaussian", "blocked")],
)
@pytest.mark.parametrize("backward", [False, True])
def test_no_reduction_builds_the_whole_matrix(monkeypatch, reduction, name, backend, backward):
    queries, keys, rows = 128, 96, 4
    monkeypatch.setattr(blocks, "BLOCK_BYTES", rows * keys * 8)
    query, key, value = random_inputs(lead=(), queries=queries, keys=keys, dim=2)
    query.requires_grad_(backward)
    with LargestTensor() as largest:
        weights = attend(query, key, value, score=random_score(name, 2), backend=backend, visible=causal()).weights
        largest.numel = 0
        found = REDUCTIONS[reduction](weights)
        if backward and reduction != "argmax":
            found.sum().backward()
    assert 0 < largest.numel <= 2 * rows * keys


def test_the_largest_tensor_is_seen_by_the_check_above():
    with LargestTensor() as largest:
        attend(*random_inputs(lead=(), queries=128, keys=96), backend="direct").weights.entropy()
    assert largest.numel >= 128 * 96


def test_weights_are_those_before_dropout(backend):
    inputs = random_inputs()
    out = attend(*inputs, dropout=0.5, backend=backend)
    torch.testing.assert_close(out.weights(), attend(*inputs).weights())


def test_a_result_unpacks_into_values_and_weights():
    values, weights = attend(*random_inputs())
    assert values.shape == (2, 3, 4, 2)
    assert weights().shape == (2, 3, 4, 5)
