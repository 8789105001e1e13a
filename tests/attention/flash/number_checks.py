"""Flash attention gives the numbers of the equation, for awkward sizes, dtypes, layouts and modified scores.

test_flash.py runs this file in a process of its own.
"""

import pytest
import torch

from jumok.attention import alibi, attend, causal, from_lengths, scaled_dot
from support.attention import assert_all_close, values_and_gradients
from support.flash import DEVICE, assert_as_accurate_as_plain_torch, draw, with_backend


@pytest.mark.parametrize("time", [1, 15, 16, 17, 33])
def test_every_size(time):
    assert_as_accurate_as_plain_torch(draw(queries=time, keys=time), visible=causal())


@pytest.mark.parametrize(("dim", "values"), [(1, 3), (8, 24), (20, 16)])
def test_widths_that_are_no_powers_of_two(dim, values):
    assert_as_accurate_as_plain_torch(draw(queries=17, keys=20, dim=dim, values=values))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    if dtype == torch.bfloat16 and DEVICE == "cpu":
        pytest.skip("Triton's interpreter multiplies the bits of bfloat16")
    assert_as_accurate_as_plain_torch(draw(queries=17, keys=20, dtype=dtype), floor=1e-3, visible=causal(3))


@pytest.mark.parametrize("lead", [(), (3,), (2, 1, 2)])
def test_any_leading_axes(lead):
    assert_as_accurate_as_plain_torch(draw(lead, 17, 20), visible=causal(3))


@pytest.mark.skipif(DEVICE == "cpu", reason="too many programs for Triton's interpreter")
@pytest.mark.parametrize("time", [3, 70])
def test_more_than_65535_pairs_of_sentence_and_head(time):
    assert_as_accurate_as_plain_torch(draw((8_200, 8), time, time, dim=8, values=8), visible=causal())


def test_leading_axes_that_broadcast():
    query, key, value = draw((2, 2), 17, 20)
    assert_as_accurate_as_plain_torch([query, key[:1], value[0, 0]], visible=causal(3))


def test_heads_that_were_split_from_one_vector_stay_together_in_memory():
    query, key, value = (tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in draw())
    values = attend(query, key, value, visible=causal(), backend="fused").values
    assert values.transpose(1, 2).is_contiguous()
    assert_as_accurate_as_plain_torch([query, key, value], visible=causal())


@pytest.mark.parametrize("time", [17, 70])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_gradients_of_a_stacked_product_lie_side_by_side_in_memory(time, dtype):
    torch.manual_seed(time)
    stacked = torch.randn(2, time, 3, 2, 8, device=DEVICE).to(dtype)
    inputs = [part.transpose(1, 2).requires_grad_() for part in stacked.unbind(2)]
    apart = [part.detach().clone().requires_grad_() for part in inputs]
    upstream = torch.randn(2, 2, time, 8, device=DEVICE).to(dtype)
    found, want = (
        torch.autograd.grad(attend(*some, visible=causal(), backend="fused").values, some, upstream)
        for some in (inputs, apart)
    )
    assert_all_close(found, want, rtol=0, atol=0)
    start, size = found[0].data_ptr(), 16 * stacked.element_size()
    assert [gradient.data_ptr() for gradient in found] == [start, start + size, start + 2 * size]
    assert all(gradient.stride() == (time * 48, 8, 48, 1) for gradient in found)


@pytest.mark.parametrize("scale", [-0.5, 0.0, 2.0])
def test_any_scale(scale):
    assert_as_accurate_as_plain_torch(draw(queries=17, keys=20), score=lambda: scaled_dot(scale), visible=causal())


@pytest.mark.parametrize("shape", [(2, 17, 20), (17, 20), (2, 1, 1, 20), (2, 2, 17, 1)])
def test_a_bias_and_its_gradient(shape):
    inputs = [*draw(queries=17, keys=20), torch.randn(shape).to(DEVICE)]
    assert_as_accurate_as_plain_torch(inputs, score=lambda bias: scaled_dot(bias=bias), visible=causal(3))


@pytest.mark.parametrize("shape", [(2,), (2, 1), (2, 2)])
def test_sinks_and_their_gradient(shape):
    inputs = [*draw(queries=17, keys=20), torch.randn(shape).to(DEVICE)]
    assert_as_accurate_as_plain_torch(inputs, score=lambda sinks: scaled_dot(sinks=sinks), visible=causal(-3))


def test_soft_cap_and_slopes():
    def score():
        return scaled_dot(soft_cap=1.5, slopes=alibi(2).to(DEVICE), offset=2)

    assert_as_accurate_as_plain_torch(draw(queries=17, keys=20), score=score, visible=causal(2))


def test_all_modifications_at_once():
    inputs = [*draw(queries=17, keys=20), torch.randn(2, 17, 20).to(DEVICE)]

    def score(bias):
        return scaled_dot(0.7, bias=bias, sinks=bias[:, 0, 0], soft_cap=2.0, slopes=alibi(2).to(DEVICE))

    assert_as_accurate_as_plain_torch(inputs, score=score)


def test_dropout_drops_its_share_and_the_gradient_drops_the_same():
    query, key, _ = draw((1, 2), 64, 64)
    value = torch.eye(64, device=DEVICE).expand(1, 2, 64, 64).clone().requires_grad_()

    def compute(value):
        torch.manual_seed(5)
        return attend(query, key, value, visible=causal(), dropout=0.25, backend="fused").values

    dropped = compute(value)
    weights = attend(query, key, value, visible=causal(), backend="fused").values
    seen = weights > 0
    assert ((dropped == 0) & seen).sum() / seen.sum() == pytest.approx(0.25, abs=0.03)
    kept = seen & (dropped > 0)
    torch.testing.assert_close(dropped[kept], weights[kept] / 0.75)
    (gradient,) = torch.autograd.grad(dropped, value, torch.ones_like(dropped))
    torch.testing.assert_close(gradient[..., 0], dropped.sum(-2))


def test_second_gradients_come_from_the_equation():
    inputs = draw((1, 2), 6, 7)

    def slope(backend):
        def compute(query, key, value):
            values = with_backend(backend, visible=causal(1))(query, key, value)
            (d_query,) = torch.autograd.grad(values.square().sum(), query, create_graph=True)
            return d_query

        return compute

    assert_all_close(
        values_and_gradients(slope("fused"), inputs),
        values_and_gradients(slope("direct"), inputs),
        atol=1e-4,
        rtol=1e-4,
    )


def test_compiled_code_calls_the_operators():
    compiled = torch.compile(
        with_backend(
            "fused",
            score=lambda bias: scaled_dot(bias=bias),
            visible=from_lengths(torch.tensor([20, 3], device=DEVICE)),
        ),
        fullgraph=True,
        backend="aot_eager",
    )
    inputs = [*draw(queries=17, keys=20), torch.randn(2, 17, 20).to(DEVICE)]
    plain = with_backend(
        "direct", score=lambda bias: scaled_dot(bias=bias), visible=from_lengths(torch.tensor([20, 3], device=DEVICE))
    )
    assert_all_close(values_and_gradients(compiled, inputs), values_and_gradients(plain, inputs), atol=1e-5, rtol=1e-4)


def test_two_runs_are_equal_bit_for_bit():
    inputs = draw(queries=40, keys=40)
    one, other = (values_and_gradients(with_backend("fused", visible=causal()), inputs) for _ in range(2))
    assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))


def test_compiled_code_takes_a_function_of_the_caller():
    score = scaled_dot(soft_cap=3.0, change=lambda score, batch, head, query, key: score + head)
    compiled = torch.compile(with_backend("auto", score=lambda: score), fullgraph=True, backend="aot_eager")
    inputs = draw(queries=4, keys=5)
    plain = with_backend("direct", score=lambda: score)
    assert_all_close(values_and_gradients(compiled, inputs), values_and_gradients(plain, inputs), atol=1e-5, rtol=1e-4)
