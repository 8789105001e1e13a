"""Weights on demand: the same whichever backend ran, in whole or in part, differentiable, and reduced in blocks."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from jumok.attention import additive, attend, blocks, causal, location, mix
from jumok.errors import ArgumentError
from support.attention import (
    SCORES,
    assert_all_close,
    every_combination,
    every_score_and_backend,
    random_inputs,
    random_score,
    values_and_gradients,
)
from support.combinations import in_pairs

MASK = causal(1) & (torch.arange(5) != 2)


@every_combination
def test_weights_mix_the_values_whichever_backend_ran(name, normalise, backend):
    inputs, score = random_inputs(), random_score(name, 3)
    out = attend(*inputs, score=score, normalise=normalise, visible=MASK, backend=backend)
    assert out.weights().shape == (2, 3, 4, 5)
    torch.testing.assert_close(mix(out.weights(), inputs[2]), out.values)
    direct = attend(*inputs, score=score, normalise=normalise, visible=MASK, backend="direct")
    torch.testing.assert_close(out.weights(), direct.weights())


ROWS = [[0], [3, 1], [-1, 0], [2, 2], [], (1,), range(3, -1, -1), slice(1, 3), slice(None, None, -1), slice(9, 12)]
HEADS = [None, [0], [2, 0], [-1], [1, 1], [], slice(1, None)]


@pytest.mark.parametrize(
    ("backend", "rows", "heads"),
    in_pairs(("direct", "blocked", "sdpa"), ROWS, HEADS),
    indirect=["backend"],
    ids=str,
)
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


@pytest.mark.parametrize(
    ("reduction", "call", "backward"),
    in_pairs(
        tuple(REDUCTIONS),
        (("scaled_dot", "sdpa"), ("scaled_dot", "blocked"), ("additive", "blocked"), ("gaussian", "blocked")),
        (False, True),
    ),
)
def test_no_reduction_builds_the_whole_matrix(monkeypatch, reduction, call, backward):
    (name, backend), queries, keys, rows = call, 64, 48, 4
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


CHANGED = {
    "query": lambda query, key, v, mask: query.zero_(),
    "key": lambda query, key, v, mask: key[0, 0].mul_(2),
    'v of score "additive"': lambda query, key, v, mask: v.neg_(),
    "visible": lambda query, key, v, mask: mask.logical_not_(),
}


@pytest.mark.parametrize("what", CHANGED)
@pytest.mark.parametrize(
    "ask", [lambda w: w(), lambda w: w(rows=[0]), lambda w: w.argmax(), lambda w: w.entropy()], ids=range(4)
)
def test_weights_after_a_change_in_place_are_refused_by_the_name_of_what_changed(what, ask):
    (query, key, value), v, mask = random_inputs(), torch.randn(3).double(), torch.rand(4, 5) > 0.3
    out = attend(query, key, value, score=additive(v), visible=causal(9) & mask, backend="blocked")
    ask(out.weights)
    CHANGED[what](query, key, v, mask)
    with pytest.raises(ArgumentError, match=f"{what} was modified in place after attend"):
        ask(out.weights)


def test_weights_after_the_step_of_an_optimiser_are_refused_and_before_it_are_not():
    weight, inputs = torch.nn.Parameter(torch.randn(9, 3)), random_inputs(dtype=torch.float32)
    out = attend(*inputs, score=location(weight))
    out.weights().square().sum().backward()
    torch.optim.SGD([weight], lr=0.1).step()
    with pytest.raises(ArgumentError, match='weight of score "location" was modified in place'):
        out.weights()


@pytest.mark.parametrize("name", ["general", "concat"])
def test_a_matrix_that_was_used_before_may_change_after(name):
    parameters = SCORES[name].parameters(3)
    out = attend(*random_inputs(), score=SCORES[name].build(*parameters), backend="blocked")
    wanted = out.weights()
    parameters[-1].zero_()
    torch.testing.assert_close(out.weights(), wanted)


def test_weights_that_are_built_already_stay_whatever_changes():
    query, key, value = random_inputs()
    out = attend(query, key, value, backend="direct")
    wanted = out.weights().clone()
    key.zero_()
    assert torch.equal(out.weights(), wanted)


def test_a_cache_may_grow_between_attention_and_its_weights():
    room = torch.randn(2, 3, 9, 4)
    query, value = torch.randn(2, 3, 1, 4), torch.randn(2, 3, 5, 4)
    with torch.no_grad():
        out = attend(query, room[:, :, :5], value)
        wanted = out.weights()
        room[:, :, 5] = 7
        assert torch.equal(out.weights(), wanted)


def test_tensors_of_inference_mode_give_their_weights():
    with torch.inference_mode():
        query, key, value = random_inputs()
        out = attend(query, key, value)
    torch.testing.assert_close(mix(out.weights(), value), out.values)


@every_score_and_backend
def test_results_are_shown_in_one_line_with_their_shapes(name, backend):
    out = attend(*random_inputs(), score=random_score(name, 3), backend=backend)
    assert repr(out).startswith("Attended(values=Tensor([2, 3, 4, ")
    assert "\n" not in repr(out)
    assert repr(out).endswith(f"weights={out.weights!r})")
    assert f"{out.weights.call.score_name}, {list(out.weights().shape)}" in repr(out.weights)
