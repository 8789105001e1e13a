"""Rows that are mostly zeros, such as words of a document: dropped out and multiplied where they are not zero.

A citation graph's features are 99% zeros; a layer over them costs a hundredth of what it costs over the full matrix.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from jumok.errors import ArgumentError


class SparseRows(NamedTuple):
    """A matrix [row, column] as its entries, row after row; and their order column after column, for gradients."""

    starts: Int[Tensor, " row_and_one"]
    columns: Int[Tensor, " entry"]
    values: Float[Tensor, " entry"]
    column_starts: Int[Tensor, " column_and_one"]
    rows: Int[Tensor, " entry"]
    by_column: Int[Tensor, " entry"]
    """Where in `values` the entries are, column after column; `rows` are theirs."""

    @classmethod
    def of(
        cls,
        starts: Int[Tensor, " row_and_one"],
        columns: Int[Tensor, " entry"],
        values: Float[Tensor, " entry"],
        width: int,
    ) -> "SparseRows":
        """From compressed rows: those of row n are the entries starts[n] to starts[n + 1]."""
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
        """Where it is."""
        return self.values.device

    @property
    def dtype(self) -> torch.dtype:
        """Of the values."""
        return self.values.dtype

    def to(self, device: torch.device | str) -> "SparseRows":
        """The same on another device."""
        return SparseRows(*(part.to(device, non_blocking=True) for part in self))

    def dropout(self, probability: float) -> "SparseRows":
        """Some entries set to zero, the others raised; zeros stay zeros whether dropped or not."""
        return self._replace(values=F.dropout(self.values, probability)) if probability else self

    def dense(self) -> Float[Tensor, "row column"]:
        """The full matrix."""
        places = torch.repeat_interleave(torch.arange(self.shape[0], device=self.device), self.starts.diff())
        return self.values.new_zeros(self.shape).index_put((places, self.columns), self.values, accumulate=True)


def linear(
    x: Float[Tensor, "row column"] | SparseRows,
    weight: Float[Tensor, "out column"],
    bias: Float[Tensor, " out"] | None = None,
) -> Float[Tensor, "row out"]:
    """x Wᵀ + b, as torch.nn.functional.linear, for either kind of rows."""
    if isinstance(x, Tensor):
        return F.linear(x, weight, bias)
    product: Tensor = _Product.apply(weight, *x)  # type: ignore[no-untyped-call]
    return product if bias is None else product + bias


class _Product(Function):
    """X Wᵀ; a function of its own, as torch's gradient looks for the entries of every column anew, ten times slower."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, *parts: Tensor) -> Tensor:
        x = SparseRows(*parts)
        ctx.save_for_backward(*x)
        return _sums(x.columns, weight.t().to(x.dtype), x.starts, x.values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x = SparseRows(*ctx.saved_tensors)
        return _sums(x.rows, grad.to(x.dtype), x.column_starts, x.values[x.by_column]).t(), *(None,) * len(x)


def _sums(at: Tensor, table: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    """For every stretch of `at`, the sum of the table's rows there times their weights."""
    return F.embedding_bag(at, table.contiguous(), starts[:-1], mode="sum", per_sample_weights=weights)
