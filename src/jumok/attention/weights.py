"""What attention gives back: the mixed values, and the weights that mixed them, rebuilt only when asked for."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, is_dataclass
from functools import reduce
from typing import Any, NamedTuple, SupportsIndex, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.attention.arguments import whole_number
from jumok.attention.blocks import in_blocks
from jumok.attention.call import AttentionCall
from jumok.attention.masks import Visible
from jumok.attention.scores import Custom, Location
from jumok.errors import ArgumentError

Copied = TypeVar("Copied")


def copied(fields: Copied, memo: dict[int, Any]) -> Copied:
    """A deep copy of a dataclass or a tuple; PyTorch copies no tensor that autograd computed, so those go first."""
    for tensor in _with_tensors_copied(fields):
        if not tensor.is_leaf:
            memo[id(tensor)] = tensor.detach().clone()
    return deepcopy(fields, memo)


def _with_tensors_copied(thing: Any) -> Iterator[Tensor]:
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, tuple):
        for part in thing:
            yield from _with_tensors_copied(part)
    elif is_dataclass(thing):
        yield from _with_tensors_copied(tuple(vars(thing).values()))


class Version(NamedTuple):
    """A tensor, and how often it had been changed in place."""

    name: str
    tensor: Tensor
    changes: int

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy counts its changes anew; one of a tensor that was changed already must go on saying so.
        return _counted_anew, (self.name, self.tensor, self.tensor._version == self.changes)


def _counted_anew(name: str, tensor: Tensor, unchanged: bool) -> Version:
    return Version(name, tensor, tensor._version if unchanged else -1)


def versions(call: AttentionCall) -> tuple[Version, ...]:
    """Those of all that weights are computed from; none where a compiler would have to trace them."""
    if torch.compiler.is_compiling():
        return ()
    return tuple(Version(name, tensor, tensor._version) for name, tensor in _read(call) if _tells(tensor))


def check_unchanged(known: tuple[Version, ...]) -> None:
    """Raise ArgumentError for a tensor that was changed in place since."""
    for name, tensor, changes in known:
        if tensor._version != changes:
            raise ArgumentError(
                f"{name} was changed in place after attend, so its weights cannot be computed any more; ask for them "
                "before the change (an optimiser's step is one), or give attend a clone()"
            )


def _read(call: AttentionCall) -> Iterator[tuple[str, Tensor]]:
    yield "query", call.query
    if isinstance(call.given, Location):
        yield f"weight of {call.given}", call.given.weight  # its rows are the keys
    else:
        yield "key", call.key
    for name in call.score.parameter_axes:
        parameter = getattr(call.score, name)
        if isinstance(parameter, Tensor):
            yield f"{name} of {call.named}", parameter
    if call.visible is not None:
        yield from (("visible", tensor) for tensor in _tensors(call.visible))


def _tensors(visible: Visible) -> Iterator[Tensor]:
    for part in vars(visible).values():
        if isinstance(part, Tensor):
            yield part
        elif isinstance(part, Visible):
            yield from _tensors(part)


def _tells(tensor: Tensor) -> bool:
    """Whether its count speaks of it: inference tensors have none, and a part of a larger tensor shares that one's."""
    if tensor.is_inference():
        return False
    return tensor._base is None or tensor._base.numel() <= tensor.numel()


Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Weights:
    """The attention weights, before dropout. Call it for the matrix or parts of it.

    The reductions work a block of rows at a time and never hold the whole matrix. Everything but positions is
    differentiable.
    """

    call: AttentionCall
    built: Float[Tensor, "*lead query key"] | None = None
    """The whole matrix, where the backend had to build it anyway."""
    known: tuple[Version, ...] = ()
    """Tensors that must not have changed when the matrix is built."""

    def __call__(
        self, *, heads: slice | Sequence[int] | None = None, rows: slice | Sequence[int] | None = None
    ) -> Float[Tensor, "*lead rows key"]:
        """The weights of the chosen heads (the last leading axis) and query rows; all of them unless told."""
        *lead, queries, _ = self.call.query.shape
        if heads is not None and not lead:
            raise ArgumentError(f"heads = {heads!r} was asked for, but query has no head axis, only [query, dim]")
        call, built, device = self.call, self.built, self.call.query.device
        if rows is not None:
            row_index = _positions(rows, queries, "rows", device)
            call = call.for_rows(row_index)
            built = None if built is None else built.index_select(-2, row_index)
        if heads is not None:
            head_index = _positions(heads, lead[-1], "heads", device)
            if built is None and isinstance(call.score, Custom):
                built = self._rebuilt(call)  # a function may know the heads by their order: it gets all of them
            call = call.for_heads(head_index)
            built = None if built is None else built.index_select(-3, head_index)
        return self._rebuilt(call) if built is None else built

    def _rebuilt(self, call: AttentionCall) -> Float[Tensor, "*lead rows key"]:
        check_unchanged(self.known)
        return _weights(call)

    def argmax(self) -> Int[Tensor, "*lead query"]:
        """The key each query looks at most."""
        return self.top_k(1)[1].squeeze(-1)

    def top_k(self, k: int) -> tuple[Float[Tensor, "*lead query k"], Int[Tensor, "*lead query k"]]:
        """The k largest weights of each row and their keys, largest first."""
        k = whole_number("k", k)
        if not 0 < k <= self.call.key.shape[-2]:
            raise ArgumentError(f"the {k} largest weights of {self.call.key.shape[-2]} keys were asked for")
        weights, keys = zip(*(self._in_blocks(lambda block: block.topk(k))), strict=True)
        return torch.cat(weights, -2), torch.cat(keys, -2)

    def entropy(self) -> Float[Tensor, "*lead query"]:
        """−Σ α log α of each row, in nats: 0 for a query that looks at one key, log n for one that looks at n alike."""
        # The slope of α log α at α = 0 is infinite; a key without weight contributes nothing instead.
        return torch.cat(list(self._in_blocks(lambda block: -(block * block.where(block > 0, 1).log()).sum(-1))), -1)

    def column_sums(self) -> Float[Tensor, "*lead key"]:
        """How much each key was looked at by all queries together."""
        return reduce(torch.add, self._in_blocks(lambda block: block.sum(-2)))

    def __deepcopy__(self, memo: dict[int, Any]) -> "Weights":
        return Weights(*copied((self.call, self.built, self.known), memo))

    def _in_blocks(self, reduction: Callable[[Tensor], Result]) -> Iterator[Result]:
        if self.built is not None:
            return iter([reduction(self.built)])
        check_unchanged(self.known)
        return in_blocks(lambda block: reduction(_weights(block)), self.call)


class Attended(NamedTuple):
    """The mixed values, and the weights that mixed them.

    A fused kernel never builds the weights; whichever ran, `weights()` gives them, `weights(heads=…, rows=…)` parts.
    """

    values: Float[Tensor, "*lead query value_dim"]
    weights: Weights

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
        # True and False are no positions: a mask of rows would otherwise give rows 1 and 0.
        if isinstance(position, bool) or not isinstance(position, SupportsIndex):
            raise ArgumentError(f"{name} must be a list of positions or a slice, but one of them is {position!r}")
        if not -size <= position < size:
            raise ArgumentError(f"{name} asks for number {position}, but there are {size}")
    return torch.tensor([position % size for position in chosen], dtype=torch.long, device=device)
