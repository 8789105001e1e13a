"""A static state of a decoder whose state has the same shape after every step, such as a recurrent one."""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, cast
from weakref import proxy

import torch
from jaxtyping import Int
from torch import Tensor

from jumok.models.encoder_decoder import Decoder, Encoding, Hidden, State, StaticState


class RecurrentStaticState(StaticState):
    """The tensors of a `State`, which every step overwrites with those of the next state.

    `changing` gives the part of a state that a step changes; the rest belongs to the sources.
    """

    def __init__(self, decoder: Decoder, encoding: Encoding, changing: Callable[[Any], Any], *, beam: int) -> None:
        # A weak reference, so that a state does not keep its decoder alive.
        self.decoder, self.changing, self.beam = proxy(decoder), changing, beam
        self.encoding, self.state = encoding, self._first(encoding)

    @torch.no_grad()
    def begin(self, encoding: Encoding) -> None:
        """The first state for other sources."""
        self.encoding = encoding
        self._become(self._first(encoding))

    def advance(self, tokens: Int[Tensor, "sentence beam"], parents: Int[Tensor, "sentence beam"]) -> Hidden:
        """A step of the decoder."""
        advanced: tuple[Hidden, State] = self.decoder.advance(self.state.reorder(parents), tokens)
        hidden, after = advanced
        if tokens.is_cuda:
            copy_into(self.changing(self.state), self.changing(after))
        else:
            self.state = after
        return hidden

    @torch.no_grad()
    def take(self, other: StaticState, sentences: Int[Tensor, " sentence"]) -> None:
        """Copy the state of some sentences of another."""
        self._become(cast(RecurrentStaticState, other).state.keep(sentences))

    @torch.no_grad()
    def put(self, other: StaticState, rows: Int[Tensor, " row"]) -> None:
        """Replace these sentences by the first ones of another; what belongs to the sources is prepared anew."""
        begun = cast(RecurrentStaticState, other)
        _put(self.encoding, begun.encoding, rows)
        state = self._first(self.encoding)
        copy_into(self.changing(state), self.changing(self.state))
        _put(self.changing(state), self.changing(begun.state), rows)
        self._become(state)

    def _become(self, state: State) -> None:
        """Take over a state; on a GPU it is copied in place, because a CUDA graph refers to the tensors."""
        if next(tensors_of(state)).is_cuda:
            copy_into(self.state, state)
        else:
            self.state = state

    def _first(self, encoding: Encoding) -> State:
        state: State = self.decoder.start(encoding, capacity=1)
        sentences = len(encoding.states)
        return state.reorder(torch.zeros(sentences, self.beam, dtype=torch.long, device=encoding.states.device))


def copy_into(there: Any, value: Any) -> None:
    """Copy every tensor of a value into the corresponding tensor of another value of the same structure."""
    for old, new in zip(tensors_of(there), tensors_of(value), strict=True):
        old.copy_(new)


def _put(there: Any, value: Any, rows: Int[Tensor, " row"]) -> None:
    """Copy the first rows of every tensor of a value into these rows of the corresponding tensor."""
    for old, new in zip(tensors_of(there), tensors_of(value), strict=True):
        old.index_copy_(0, rows, new[: len(rows)])


def tensors_of(value: Any) -> Iterator[Tensor]:
    """The tensors in tuples and dataclasses, from the first to the last."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from tensors_of(part)
    elif is_dataclass(value):
        for field in fields(value):
            yield from tensors_of(getattr(value, field.name))
