"""torch.func and forward-mode differentiation: the numbers of one call after another, and of finite differences."""

import pytest
import torch
from torch.func import functional_call, grad, jvp, vmap

from jumok.attention import additive, attend, causal, explain, from_lengths, precompute_keys, window
from jumok.layers import AdditiveAttention, MultiHeadAttention

SCORES = {
    "scaled_dot": lambda v: "scaled_dot",
    "cosine": lambda v: "cosine",
    "gaussian": lambda v: "gaussian",
    "additive": additive,
}
MASKS = {
    "nothing hidden": None,
    "causal": causal(1),
    "window": window(1),
    "a tensor": torch.arange(30).reshape(5, 6) % 4 > 0,
}


def draw():
    """Three entries of [head, time, dim], and v."""
    return torch.randn(3, 2, 5, 8), torch.randn(3, 2, 6, 8), torch.randn(3, 2, 6, 7), torch.randn(8)


def one_by_one(function, *tensors):
    return torch.stack([function(*entry) for entry in zip(*tensors, strict=True)])


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("score", SCORES)
def test_vmap_gives_what_entries_give_one_by_one(score, mask):
    *tensors, v = draw()

    def answer(query, key, value):
        found = attend(query, key, value, score=SCORES[score](v), visible=MASKS[mask])
        return torch.cat([found.values, found.weights()], -1)

    torch.testing.assert_close(vmap(answer)(*tensors), one_by_one(answer, *tensors))


def test_vmap_goes_over_lengths_too():
    *tensors, v = draw()
    lengths = torch.tensor([[1, 6], [0, 3], [2, 2]])

    def answer(query, key, value, lengths):
        return attend(query, key, value, score=additive(v), visible=from_lengths(lengths)).values

    torch.testing.assert_close(vmap(answer)(*tensors, lengths), one_by_one(answer, *tensors, lengths))


@pytest.mark.parametrize("score", SCORES)
def test_nan_behind_a_mask_stays_there_under_vmap(score):
    query, key, value, v = draw()
    key[:, :, 4:], value[:, :, 4:] = torch.nan, torch.inf
    visible = from_lengths(torch.tensor([4, 0]))

    def total(query, key, value):
        return attend(query, key, value, score=SCORES[score](v), visible=visible).values.sum()

    for gradient in vmap(grad(total, argnums=(0, 1, 2)))(query, key, value):
        assert gradient.isfinite().all()


class Looking(torch.nn.Module):
    """A recurrent decoder's attention, from states to what a query sees of them."""

    def __init__(self):
        super().__init__()
        self.attention = AdditiveAttention(query_width=8, key_width=8, hidden=4)

    def forward(self, query, states):
        return self.attention(query, self.attention.memory(states))


@pytest.mark.parametrize("layer", [Looking(), MultiHeadAttention(width=8, heads=2)], ids=["additive", "multi-head"])
def test_each_entry_has_gradients_of_its_own(layer):
    query, states = torch.randn(3, 5, 8), torch.randn(3, 6, 8)
    parameters = dict(layer.named_parameters())

    def loss(parameters, query, states):
        return functional_call(layer, parameters, (query[None], states[None])).values.square().sum()

    found = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, query, states)
    for at in range(3):
        wanted = torch.autograd.grad(loss(parameters, query[at], states[at]), list(parameters.values()))
        torch.testing.assert_close([found[name][at] for name in parameters], list(wanted))


@pytest.mark.slow
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("score", ["scaled_dot", "cosine", "additive"])
def test_forward_mode_agrees_with_finite_differences(score, mask):
    *tensors, v = (tensor.double() for tensor in draw())
    leaves = [tensor[0].requires_grad_() for tensor in tensors] + [v.requires_grad_()]

    def answer(query, key, value, v):
        return attend(query, key, value, score=SCORES[score](v), visible=MASKS[mask]).values

    assert torch.autograd.gradcheck(answer, leaves, check_forward_ad=True, check_backward_ad=False, fast_mode=True)


def test_jvp_of_the_score_s_vector_alone():
    query, key, value, v = draw()
    step = torch.randn(8)

    def answer(v):
        return attend(query, key, value, score=additive(v)).values

    _, found = jvp(answer, (v,), (step,))
    wanted = (answer(v.double().float() + 1e-3 * step) - answer(v - 1e-3 * step)) / 2e-3
    torch.testing.assert_close(found, wanted, atol=2e-3, rtol=2e-3)


def test_a_source_is_looked_at_under_vmap():
    query, key, value, v = draw()
    source = precompute_keys(key[:, 0], value[:, 0], score=additive(v))
    found = vmap(lambda query: source.attend(query).values)(query.transpose(0, 1))
    torch.testing.assert_close(found[0], source.attend(query[:, 0]).values)
    torch.testing.assert_close(found[1], source.attend(query[:, 1]).values)


def test_explain_says_why_the_kernels_do_not_run():
    query, key, value, v = draw()
    plans = []

    def answer(query):
        plans.append(explain(query, key[0], value[0], score=additive(v)))
        return query

    vmap(answer)(query)
    assert plans[0].backend == "direct"
    assert all("torch.func" in plans[0].against[name] for name in ("sdpa", "fused", "blocked"))
