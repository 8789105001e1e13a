"""Products of matrices by oneDNN in place of MKL."""

import warnings

import pytest
import torch
from torch import nn

from jumok.training import cpu_products
from jumok.training.cpu_products import fast_products, product, sum_and_product

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available() or torch.backends.cpu.get_cpu_capability() != "AVX512",
    reason="oneDNN with AVX-512 is not there",
)

SHAPES = [
    (64, 512, 1536),
    (1021, 257, 33),
    (8, 520, 513),
    (1, 512, 512),
    (3, 4, 5),
    (0, 4, 5),
    (4, 0, 5),
    (200, 300, 0),
]


@pytest.fixture
def anywhere(monkeypatch):
    monkeypatch.setattr(cpu_products, "is_faster", lambda: True)


def matrix(rows, columns, transposed):
    return torch.randn(columns, rows).t() if transposed else torch.randn(rows, columns)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_products_are_as_exact_as_those_of_pytorch(shape, left, right):
    rows, inner, columns = shape
    a, b, bias = matrix(rows, inner, left), matrix(inner, columns, right), torch.randn(columns)
    exact = a.double() @ b.double()
    for found, plain, wanted in (
        (product(a, b), a @ b, exact),
        (sum_and_product(bias, a, b), torch.addmm(bias, a, b), exact + bias),
        (
            sum_and_product(bias, a, b, beta=0.5, alpha=2),
            torch.addmm(bias, a, b, beta=0.5, alpha=2),
            2 * exact + bias / 2,
        ),
    ):
        assert found.shape == plain.shape
        assert found.stride() == plain.stride()
        error, theirs = ((result - wanted).square().sum() for result in (found, plain))
        # PyTorch may add in an order that loses little; a sum of n products in turn loses about ε √n of its size.
        in_turn = inner * torch.finfo(torch.float32).eps ** 2 * wanted.square().sum()
        assert error <= 4 * theirs + in_turn + 1e-12


PARTS = {
    "columns": lambda: torch.randn(512, 700)[:, :520],
    "rows": lambda: torch.randn(600, 520)[:512],
    "columns of a transposed matrix": lambda: torch.randn(520, 700)[:, :512].t(),
    "the same row": lambda: torch.randn(1, 520).expand(512, 520),
}


@pytest.mark.parametrize("part", PARTS)
def test_onednn_never_gets_part_of_a_matrix_to_multiply_by(part, monkeypatch):
    """It would compute the right numbers, hundreds of times as slowly."""
    given, usual = [], torch.ops.mkldnn._linear_pointwise

    def watched(left, right, *others):
        given.append(right)
        return usual(left, right, *others)

    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", watched)
    left, right = torch.randn(64, 512), PARTS[part]()
    torch.testing.assert_close(product(left, right), left @ right, rtol=1e-4, atol=1e-3)
    (factor,) = given
    assert factor.is_contiguous() or factor.t().is_contiguous()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_other_precisions_are_left_to_pytorch(dtype):
    a, b = torch.randn(64, 512).to(dtype), torch.randn(512, 128).to(dtype)
    assert torch.equal(product(a, b), a @ b)


def test_a_layer_has_the_same_output_and_gradients(anywhere):
    layer, x = nn.Linear(300, 500), torch.randn(7, 64, 300, requires_grad=True)

    def results():
        out = layer(x)
        return [out, *torch.autograd.grad(out.square().sum(), [x, layer.weight, layer.bias])]

    wanted = results()
    with fast_products():
        found = results()
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-3)


def test_pytorch_has_its_own_products_back_afterwards_and_says_nothing(anywhere, monkeypatch):
    calls = []
    monkeypatch.setattr(cpu_products, "_by_one_dnn", lambda left, right, bias: calls.append(1) or left @ right[:, :0])
    a, b = torch.randn(64, 512), torch.randn(512, 512)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with fast_products():
                assert (a @ b).shape == (64, 0)
    assert len(calls) == 2
    assert (a @ b).shape == (64, 512)


def test_a_processor_for_which_mkl_is_fast_keeps_it(monkeypatch):
    monkeypatch.setattr(cpu_products, "_vendor", lambda: "vendor_id : GenuineIntel")
    assert not cpu_products.is_faster()
