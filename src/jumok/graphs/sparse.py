"""Sparse node features, such as the words of a document: dropout and matrix products over nonzero entries only.

A citation graph's features are 99% zeros; a layer over them costs a hundredth of what it costs over the full matrix.
"""

from itertools import chain
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from jumok.attention.backends import runs_on_kernels
from jumok.errors import ArgumentError

WIDE = 512
"""Dense rows of at least so many columns are multiplied by several matrices at once on a CPU."""


class SparseRows(NamedTuple):
    """A sparse matrix [row, column]: its entries by row, and their order by column for gradients."""

    starts: Int[Tensor, " row_and_one"]
    columns: Int[Tensor, " entry"]
    values: Float[Tensor, " entry"]
    column_starts: Int[Tensor, " column_and_one"]
    rows: Int[Tensor, " entry"]
    by_column: Int[Tensor, " entry"]
    """Indices into `values`, column by column; `rows` are their rows."""

    @classmethod
    def of(
        cls,
        starts: Int[Tensor, " row_and_one"],
        columns: Int[Tensor, " entry"],
        values: Float[Tensor, " entry"],
        width: int,
    ) -> "SparseRows":
        """From compressed sparse rows: row n has the entries starts[n] to starts[n + 1]."""
        if len(columns) != len(values) or len(starts) < 1 or int(starts[-1]) != len(columns):
            raise ArgumentError(
                f"starts ends at {int(starts[-1]) if len(starts) else 'nothing'}, but there are {len(columns)} columns "
                f"and {len(values)} values"
            )
        by_column = torch.argsort(columns, stable=True)
        rows = torch.repeat_interleave(torch.arange(len(starts) - 1, device=starts.device), starts.diff())
        counts = torch.bincount(columns, minlength=width)
        if len(counts) > width:
            raise ArgumentError(f"columns goes up to {len(counts) - 1}, but there are {width} columns")
        column_starts = F.pad(counts.cumsum(0), (1, 0))
        return cls(starts, columns, values, column_starts, rows[by_column], by_column)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.starts) - 1, len(self.column_starts) - 1

    @property
    def device(self) -> torch.device:
        """Device of the values."""
        return self.values.device

    @property
    def dtype(self) -> torch.dtype:
        """Type of the values."""
        return self.values.dtype

    def to(self, device: torch.device | str) -> "SparseRows":
        """The same on another device."""
        return SparseRows(*(part.to(device, non_blocking=True) for part in self))

    def dropout(self, probability: float) -> "SparseRows":
        """Dropout on the entries; zeros stay zeros whether dropped or not."""
        return self._replace(values=F.dropout(self.values, probability)) if probability else self

    def scaled(self, factors: Float[Tensor, " row"]) -> "SparseRows":
        """Every row times its factor."""
        of_entries = torch.repeat_interleave(factors, self.starts.diff(), output_size=len(self.values))
        return self._replace(values=self.values * of_entries)

    def dense(self) -> Float[Tensor, "row column"]:
        """The full matrix."""
        places = torch.repeat_interleave(torch.arange(self.shape[0], device=self.device), self.starts.diff())
        return self.values.new_zeros(self.shape).index_put((places, self.columns), self.values, accumulate=True)


def project_rows(
    x: Float[Tensor, "row column"] | SparseRows,
    weight: Float[Tensor, "out column"],
    bias: Float[Tensor, " out"] | None = None,
) -> Float[Tensor, "row out"]:
    """x Wᵀ + b, as torch.nn.functional.linear, for dense or sparse x."""
    if isinstance(x, Tensor):
        return F.linear(x, weight, bias)
    product: Tensor = _Product.apply(weight, *x)  # type: ignore[no-untyped-call]
    return product if bias is None else product + bias


def project_rows_by_each(
    x: Float[Tensor, "row column"] | SparseRows,
    *pairs: tuple[Float[Tensor, "out column"], Float[Tensor, " out"] | None],
) -> tuple[Float[Tensor, "row out"], ...]:
    """`project_rows` for several pairs of weight and bias.

    Many rows in single precision on a GPU go to its tensor cores; wide rows on a CPU are multiplied by all at once.
    """
    if isinstance(x, Tensor) and x.is_cuda and not torch.compiler.is_compiling():
        weights = [weight for weight, _ in pairs]
        if runs_on_kernels(x):
            from jumok.graphs import gpu_products

            if gpu_products.suits(x, *weights):
                products: tuple[Tensor, ...] = gpu_products.Linears.apply(x, *chain(*pairs))  # type: ignore[no-untyped-call]
                return products
    if isinstance(x, Tensor) and x.is_cpu and x.shape[1] >= WIDE and len(pairs) > 1:
        return _side_by_side(x, pairs)
    return tuple(project_rows(x, weight, bias) for weight, bias in pairs)


def _side_by_side(x: Tensor, pairs: tuple[tuple[Tensor, Tensor | None], ...]) -> tuple[Tensor, ...]:
    """All products as one, which reads wide rows and adds up their gradient once."""
    biases = [bias for _, bias in pairs if bias is not None]
    product = F.linear(x, torch.cat([weight for weight, _ in pairs]), torch.cat(biases) if biases else None)
    parts = torch.split(product, [len(weight) for weight, _ in pairs], dim=1)
    return tuple(part.contiguous() for part in parts)


class _Product(Function):
    """X Wᵀ; a custom function, for PyTorch's gradient searches the entries of every column anew, ten times slower."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, *parts: Tensor) -> Tensor:
        x = SparseRows(*parts)
        ctx.save_for_backward(*x)
        return _weighted_sums(x.columns, weight.t().to(x.dtype), x.starts, x.values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x = SparseRows(*ctx.saved_tensors)
        return _weighted_sums(x.rows, grad.to(x.dtype), x.column_starts, x.values[x.by_column]).t(), *(None,) * len(x)


def _weighted_sums(indices: Tensor, table: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    """For every segment of `indices`, the weighted sum of those rows of the table."""
    return F.embedding_bag(indices, table.contiguous(), starts[:-1], mode="sum", per_sample_weights=weights)
