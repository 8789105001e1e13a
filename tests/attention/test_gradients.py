"""Every analytic gradient against finite differences, in float64, under a mask that hides a whole row."""

import pytest
import torch
from torch.autograd import gradcheck

from jumok.attention import attend, gaussian_window
from jumok.attention.additive import cpu
from jumok.attention.additive.cpu import TiledAdditive
from jumok.attention.additive.reference import Additive
from support.attention import DOT_PRODUCTS, KERNELS, SCORES, every_normaliser, every_score, random_inputs


def check(compute, inputs):
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    assert gradcheck(compute, leaves, eps=1e-6, atol=1e-6, rtol=1e-4, check_undefined_grad=False, fast_mode=True)


def inputs_and_mask(heads=2):
    mask = torch.tensor([[True, True, True, False], [False, False, False, False], [True, False, True, True]])
    return random_inputs(lead=(heads,), queries=3, keys=4, dim=2, value_dim=1), mask


@every_score
@every_normaliser
def test_values_and_weights_of_every_score_and_normaliser(name, normalise):
    inputs, mask = inputs_and_mask()
    parameters = SCORES[name].parameters(2, lead=(2, 1) if name in KERNELS else (2,))
    if name in KERNELS:
        parameters = [parameters[0][:, 0] / 1.5]

    def compute(query, key, value, *parameters):
        out = attend(
            query,
            key,
            value,
            score=SCORES[name].build(*parameters),
            normalise=normalise,
            visible=mask,
            backend="direct",
        )
        return out.values, out.weights()

    check(compute, [*inputs, *parameters])


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_on_a_line(name):
    query, key, value = random_inputs(lead=(), queries=3, keys=4, dim=1)
    (bandwidth,) = SCORES[name].parameters(1)
    check(lambda q, k, b: attend(q, k, value, score=SCORES[name].build(b)).values, [query, key, bandwidth / 3])


@every_score
def test_values_of_every_score_in_blocks(name, small_blocks):
    inputs, mask = inputs_and_mask()

    def compute(query, key, value, *parameters):
        return attend(query, key, value, score=SCORES[name].build(*parameters), visible=mask, backend="blocked").values

    check(compute, [*inputs, *SCORES[name].parameters(2)])


@pytest.mark.parametrize("name", DOT_PRODUCTS)
def test_values_through_pytorchs_fused_kernel(name):
    inputs, mask = inputs_and_mask()

    def compute(query, key, value, *parameters):
        return attend(query, key, value, score=SCORES[name].build(*parameters), visible=mask, backend="sdpa").values

    check(compute, [*inputs, *SCORES[name].parameters(2)])


@pytest.mark.parametrize("tile", [1, 5, 2**20])
@pytest.mark.parametrize("shift", [0.0, 50.0])
def test_the_additive_kernel(monkeypatch, tile, shift):
    monkeypatch.setattr(cpu, "TILE", tile)
    (query, key, _), _ = inputs_and_mask()
    v = torch.randn(2, dtype=torch.float64)
    check(lambda q, k, v: TiledAdditive(v)(q + shift, k - shift), [query, key, v])
    check(lambda q, k, v: Additive(v)(q + shift, k - shift), [query, key, v])


def test_the_centre_of_a_gaussian_window():
    inputs, _ = inputs_and_mask()
    centre = torch.tensor([[0.2, 1.7, 9.0], [2.6, 1.1, 0.4]], dtype=torch.float64)
    check(lambda q, k, v, p: attend(q, k, v, visible=gaussian_window(p, 1.5)).values, [*inputs, centre])


def test_entropy_top_weights_and_column_sums(small_blocks):
    (query, key, value), mask = inputs_and_mask()

    def compute(query, key):
        weights = attend(query, key, value, visible=mask, backend="sdpa").weights
        return weights.entropy(), weights.column_sums(), weights.top_k(2)[0]

    check(compute, [query, key])
