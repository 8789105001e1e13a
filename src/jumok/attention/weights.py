"""The result of attention: the values, and the weights, which are computed only on demand."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, is_dataclass
from functools import reduce
from typing import Any, NamedTuple, SupportsIndex, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.attention.blocks import in_blocks
from jumok.attention.call import AttentionCall
from jumok.attention.checks import as_integer
from jumok.attention.scores import Custom, Location
from jumok.errors import ArgumentError

Copied = TypeVar("Copied")


def copied(fields: Copied, memo: dict[int, Any]) -> Copied:
    """A deep copy of a dataclass or a tuple; tensors computed by autograd, which PyTorch cannot copy, are cloned."""
    for tensor in _tensors_in(fields):
        if not tensor.is_leaf:
            memo[id(tensor)] = tensor.detach().clone()
    return deepcopy(fields, memo)


def _tensors_in(thing: Any) -> Iterator[Tensor]:
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, tuple):
        for part in thing:
            yield from _tensors_in(part)
    elif is_dataclass(thing):
        yield from _tensors_in(tuple(vars(thing).values()))


class Version(NamedTuple):
    """A tensor, and how often it had been modified in place."""

    name: str
    tensor: Tensor
    changes: int

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy starts a new count; the copy of a tensor that was already modified must stay marked as modified.
        return _copied_version, (self.name, self.tensor, self.tensor._version == self.changes)


def _copied_version(name: str, tensor: Tensor, unchanged: bool) -> Version:
    return Version(name, tensor, tensor._version if unchanged else -1)


def versions(call: AttentionCall) -> tuple[Version, ...]:
    """The versions of all tensors that the weights are computed from; none under a compiler."""
    if torch.compiler.is_compiling():
        return ()
    return tuple(Version(name, tensor, tensor._version) for name, tensor in _inputs(call) if _has_version(tensor))


def check_unchanged(inputs: tuple[Version, ...]) -> None:
    """Raise ArgumentError for a tensor that was modified in place since."""
    for name, tensor, changes in inputs:
        if tensor._version != changes:
            raise ArgumentError(
                f"{name} was modified in place after attend, so the weights can no longer be computed; call weights() "
                "before the change (such as an optimiser step), or pass attend a clone()"
            )


def _inputs(call: AttentionCall) -> Iterator[tuple[str, Tensor]]:
    yield "query", call.query
    if isinstance(call.caller_score, Location):
        yield f"weight of {call.caller_score}", call.caller_score.weight  # its rows are the keys
    else:
        yield "key", call.key
    for name in call.score.parameter_axes:
        parameter = getattr(call.score, name)
        if isinstance(parameter, Tensor):
            yield f"{name} of {call.score_name}", parameter
    if call.visible is not None:
        yield from (("visible", tensor) for _, tensor in call.visible.tensors())


def _has_version(tensor: Tensor) -> bool:
    """Whether the tensor has its own count: inference tensors have none, and a slice shares that of the whole."""
    if tensor.is_inference():
        return False
    return tensor._base is None or tensor._base.numel() <= tensor.numel()


Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Weights:
    """The attention weights before dropout. Call it to get the matrix or parts of it.

    The reductions work on blocks of rows and never hold the whole matrix. All results but positions are differentiable.
    """

    call: AttentionCall
    matrix: Float[Tensor, "*lead query key"] | None = None
    """The whole matrix, if the backend built it."""
    inputs: tuple[Version, ...] = ()
    """Tensors that must be unmodified when the matrix is computed."""

    def __call__(
        self, *, heads: slice | Sequence[int] | None = None, rows: slice | Sequence[int] | None = None
    ) -> Float[Tensor, "*lead rows key"]:
        """The weights of the given heads (entries of the last leading axis) and query rows; both default to all."""
        *lead, queries, _ = self.call.query.shape
        if heads is not None and not lead:
            raise ArgumentError(f"heads = {heads!r}, but query has no head axis, only [query, dim]")
        call, matrix, device = (
            self.call.isolate() if self.matrix is None else self.call,
            self.matrix,
            self.call.query.device,
        )
        if rows is not None:
            row_index = _positions(rows, queries, "rows", device)
            call = call.for_rows(row_index)
            matrix = None if matrix is None else matrix.index_select(-2, row_index)
        if heads is not None:
            head_index = _positions(heads, lead[-1], "heads", device)
            if matrix is None and isinstance(call.score, Custom):
                matrix = self._computed(call)  # a function may depend on the order of heads: it gets all of them
            call = call.for_heads(head_index)
            matrix = None if matrix is None else matrix.index_select(-3, head_index)
        return self._computed(call) if matrix is None else matrix

    def _computed(self, call: AttentionCall) -> Float[Tensor, "*lead rows key"]:
        check_unchanged(self.inputs)
        return _weights(call)

    def argmax(self) -> Int[Tensor, "*lead query"]:
        """The key with the largest weight for each query."""
        return self.top_k(1)[1].squeeze(-1)

    def top_k(self, k: int) -> tuple[Float[Tensor, "*lead query k"], Int[Tensor, "*lead query k"]]:
        """The k largest weights of each row and their keys, largest first."""
        k, keys = as_integer("k", k), self.call.key.shape[-2]
        if not 0 < k <= keys:
            raise ArgumentError(f"k = {k} must be from 1 to {keys}, the number of keys")
        weights, positions = zip(*(self._in_blocks(lambda block: block.topk(k))), strict=True)
        return torch.cat(weights, -2), torch.cat(positions, -2)

    def entropy(self) -> Float[Tensor, "*lead query"]:
        """−Σ α log α of each row, in nats: 0 for all weight on one key, log n for equal weights on n keys."""
        # The slope of α log α at α = 0 is infinite, so keys without weight are left out.
        return torch.cat(list(self._in_blocks(lambda block: -(block * block.where(block > 0, 1).log()).sum(-1))), -1)

    def column_sums(self) -> Float[Tensor, "*lead key"]:
        """The total weight of each key over all queries."""
        return reduce(torch.add, self._in_blocks(lambda block: block.sum(-2)))

    def __repr__(self) -> str:
        shape = [*self.call.query.shape[:-1], self.call.key.shape[-2]]
        return f"Weights({self.call.score_name}, {shape}{', computed when called' if self.matrix is None else ''})"

    def __deepcopy__(self, memo: dict[int, Any]) -> "Weights":
        return Weights(*copied((self.call, self.matrix, self.inputs), memo))

    def _in_blocks(self, reduction: Callable[[Tensor], Result]) -> Iterator[Result]:
        if self.matrix is not None:
            return iter([reduction(self.matrix)])
        check_unchanged(self.inputs)
        return in_blocks(lambda block: reduction(_weights(block)), self.call.isolate())


class Attended(NamedTuple):
    """The values Σ α v, and the weights α.

    With every backend `weights()` gives the matrix and `weights(heads=…, rows=…)` a part of it; fused kernels do not
    build it before it is asked for.
    """

    values: Float[Tensor, "*lead query value_dim"]
    weights: Weights

    def __repr__(self) -> str:
        return f"Attended(values={type(self.values).__name__}({list(self.values.shape)}), weights={self.weights})"

    def __deepcopy__(self, memo: dict[int, Any]) -> "Attended":
        values, weights = copied((self.values, self.weights), memo)
        return Attended(values, weights)


def _weights(call: AttentionCall) -> Float[Tensor, "*lead query key"]:
    weights = call.weights()
    return weights if call.sees_nonfinite is None else weights.masked_fill(call.sees_nonfinite[..., None], torch.nan)


def _positions(chosen: slice | Sequence[int], size: int, name: str, device: torch.device) -> Int[Tensor, " chosen"]:
    if isinstance(chosen, slice):
        chosen = range(size)[chosen]
    if not isinstance(chosen, Iterable):
        raise ArgumentError(f"{name} must be a list of positions or a slice, but it is {chosen!r}")
    for position in chosen:
        if isinstance(position, Tensor):
            position = position.item()
        # True and False are no positions: a boolean mask of rows would otherwise give rows 1 and 0.
        valid = isinstance(position, SupportsIndex) and not isinstance(position, bool)
        if not (valid and -size <= position < size):
            raise ArgumentError(f"{name} must be a list of positions below {size} or a slice, but it has {position!r}")
    return torch.tensor([position % size for position in chosen], dtype=torch.long, device=device)
