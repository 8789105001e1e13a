"""Matrix products of single precision by oneDNN while a model trains on a CPU for which PyTorch's choice is slow.

PyTorch multiplies float32 matrices on a CPU by Intel's MKL, which uses only half the width of the vector registers of
an AMD processor with AVX-512. oneDNN, which is part of PyTorch too, uses all of it. During a training run its products
take the place of `mm` and `addmm`, forward and backward, in all layers; small ones stay with MKL.
"""

import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

FEW_ROWS = 8
SMALL = 2**21
"""Multiplications of a product for which the call of oneDNN takes longer than it saves."""


@contextmanager
def fast_products() -> Iterator[None]:
    """Multiply matrices by oneDNN until the block ends, where that is faster."""
    if not is_faster():
        yield
        return
    with torch.library._scoped_library("aten", "IMPL") as library:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that a kernel of PyTorch is replaced
            library.impl("mm", product, "CPU")
            library.impl("addmm", sum_and_product, "CPU")
        yield


def is_faster() -> bool:
    """Whether this is an AMD processor with AVX-512, and PyTorch has both libraries; never a matter of measurement."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    has_both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if not (has_both and torch.backends.mkldnn.enabled):
        return False
    return hasattr(torch.ops.mkldnn, "_linear_pointwise") and "AuthenticAMD" in _vendor()


def product(left: Tensor, right: Tensor) -> Tensor:
    """left · right, for [rows, inner] and [inner, columns]."""
    if _is_large(left, right):
        return _by_one_dnn(left, right, None)
    return torch.mm(left, right, out=left.new_empty(left.shape[0], right.shape[1]))


def sum_and_product(bias: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta · bias + alpha · left · right."""
    plain = beta == 1 and alpha == 1 and bias.shape == right.shape[1:] and bias.dtype == left.dtype
    if plain and _is_large(left, right):
        return _by_one_dnn(left, right, bias)
    return torch.addmm(bias, left, right, beta=beta, alpha=alpha, out=left.new_empty(left.shape[0], right.shape[1]))


def _is_large(left: Tensor, right: Tensor) -> bool:
    if left.dtype is not torch.float32 or right.dtype is not torch.float32:
        return False
    rows, inner = left.shape
    return inner == right.shape[0] and rows >= FEW_ROWS and rows * inner * right.shape[1] >= SMALL


def _by_one_dnn(left: Tensor, right: Tensor, bias: Tensor | None) -> Tensor:
    if not (right.is_contiguous() or right.t().is_contiguous()):
        right = right.contiguous()  # oneDNN multiplies by part of a matrix a thousand times as slowly
    product: Tensor = torch.ops.mkldnn._linear_pointwise(left, right.t(), bias, "none", [], "")
    return product


def _vendor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            return next((line for line in file if line.startswith("vendor_id")), "")
    except OSError:
        return platform.processor()  # names the vendor on Windows
