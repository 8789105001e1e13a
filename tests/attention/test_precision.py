"""Half precision stays near the exact answer, under autocast too."""

import pytest
import torch

from jumok.attention import additive, attend, causal, from_lengths, gaussian, gaussian_window, window
from support.attention import SCORES, every_score_backend_and, random_inputs, values_and_gradients


@every_score_backend_and(dtype=[torch.bfloat16, torch.float16])
def test_half_precision_is_near_the_exact_answer(name, backend, dtype):
    inputs = [tensor.to(dtype) for tensor in random_inputs(queries=6, keys=7, dim=4)]
    parameters = [parameter.to(dtype) for parameter in SCORES[name].parameters(4)]
    visible = causal() & from_lengths([7, 3])

    def run(backend):
        return lambda q, k, v, *p: (
            attend(q, k, v, score=SCORES[name].build(*p), visible=visible, backend=backend).values
        )

    given = [*inputs, *parameters]
    exact = values_and_gradients(run("direct"), [tensor.double() for tensor in given])
    found = values_and_gradients(run(backend), given)
    for number, (got, want) in enumerate(zip(found, exact, strict=True)):
        assert got.dtype == dtype
        # Scores of a few units, rounded to 8 or 11 bits, then exponentiated and summed over some dozens of pairs.
        bound = 16 * torch.finfo(dtype).eps * max(1.0, want.abs().max().item())
        assert (got.double() - want).abs().max() <= bound, number


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_distances_are_taken_in_full_precision(dtype):
    query, key = torch.full((1, 600), 0.5, dtype=dtype), torch.zeros(1, 600, dtype=dtype)
    weights = attend(query, torch.cat([key, query]), torch.eye(2, dtype=dtype), score=gaussian(8.0)).weights()
    kernel = torch.tensor([-150 / 128, 0.0]).softmax(-1)
    torch.testing.assert_close(weights[0].float(), kernel, rtol=0, atol=2 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("make", [lambda centre: window(2, centre=centre), lambda centre: gaussian_window(centre, 2.0)])
def test_windows_far_into_a_sequence_stand_where_they_should(make):
    query, key = torch.ones(1, 4, dtype=torch.bfloat16), torch.ones(600, 4, dtype=torch.bfloat16)
    seen = attend(query, key, key, visible=make(torch.tensor([452.0], dtype=torch.bfloat16))).weights().nonzero()[:, 1]
    assert seen.tolist() == [450, 451, 452, 453, 454]


def test_autocast_computes_in_half_precision_and_learns_in_full():
    query, key, value = random_inputs(dtype=torch.float32, dim=4)
    v = torch.randn(4, requires_grad=True)
    wanted = attend(query, key, value, score=additive(v)).values
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for inputs in ((query, key, value), [tensor.bfloat16() for tensor in (query, key, value)]):
            out = attend(*inputs, score=additive(v)).values
            torch.testing.assert_close(out.float(), wanted, rtol=0.1, atol=0.1)
            (gradient,) = torch.autograd.grad(out.float().sum(), v)
            assert gradient.dtype == torch.float32


@pytest.mark.parametrize("options", [{}, {"score": "gaussian"}, {"score": "cosine", "normalise": "sparsemax"}], ids=str)
def test_every_device_gives_the_exact_answer(device, options):
    inputs = random_inputs(dim=4)
    found = attend(*(tensor.float().to(device) for tensor in inputs), visible=causal(), **options).values
    wanted = attend(*inputs, visible=causal(), **options).values
    torch.testing.assert_close(found.double().cpu(), wanted, rtol=1e-4, atol=1e-4)
