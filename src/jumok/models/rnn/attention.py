"""When a recurrent decoder looks at the source: never, before its step (Bahdanau) or after it (Luong).

The three have one interface. `open` makes a source ready, once for each sentence; `step` is one step of every
hypothesis, and `all_steps` a whole known target: one step after another, or at once where nothing of a step but the
state goes into the next.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from jumok.attention import PrecomputedKeys, Weights
from jumok.layers import AdditiveAttention, CoverageAttention, LuongAttention, Memory, Recurrence, coverage_loss
from jumok.layers.recurrent import States, Stepper
from jumok.models.encoder_decoder import Encoding


class FixedSource(NamedTuple):
    """The summary of the source, and what the cell's gates get from it."""

    context: Float[Tensor, "sentence 1 width"]
    gates: Float[Tensor, "sentence 1 gates"]

    def keep(self, rows: Int[Tensor, " kept"]) -> "FixedSource":
        """Only these sentences."""
        return FixedSource(self.context[rows], self.gates[rows])


Opened = PrecomputedKeys | Memory | FixedSource
"""A source made ready for the steps of a decoder."""


class Carried(NamedTuple):
    """What each hypothesis takes from one step to the next."""

    states: States
    fed: Float[Tensor, "sentence beam width"] | None = None
    """s̃ of the step before, where it is fed to the next."""
    coverage: Float[Tensor, "sentence beam source"] | None = None
    """The sum of the weights so far, where that is looked at."""

    def each(self, change: Callable[[Tensor], Tensor]) -> "Carried":
        """The same change to every tensor."""
        states = tuple(tuple(change(part) for part in layer) for layer in self.states)
        fed, coverage = (None if part is None else change(part) for part in (self.fed, self.coverage))
        return Carried(states, fed, coverage)


class Seen(NamedTuple):
    """A decoder at some places: its state, and what it looked at from there."""

    state: Float[Tensor, "sentence place width"]
    context: Float[Tensor, "sentence #place encoder_width"]
    weights: tuple[Weights | Float[Tensor, "sentence some source"], ...] = ()
    """One for all places or one for each; none without attention."""
    penalty: Float[Tensor, "sentence place"] | None = None

    @staticmethod
    def joined(steps: "list[Seen]") -> "Seen":
        """One after another."""
        states, contexts, weights, penalties = zip(*steps, strict=True)
        penalty = None if penalties[0] is None else torch.cat(penalties, 1)
        return Seen(torch.cat(states, 1), torch.cat(contexts, 1), sum(weights, ()), penalty)


class Look(nn.Module, ABC):
    """How a decoder and its source come together."""

    fed_width: int
    """Size of what goes into the cell beside the word."""

    @abstractmethod
    def open(self, encoding: Encoding, stepper: Stepper) -> Opened:
        """What every step needs of the source."""

    def first(self, encoding: Encoding, states: States) -> Carried:
        """What the first step is given, with a beam of one."""
        return Carried(states)

    @abstractmethod
    def step(
        self, stepper: Stepper, opened: Opened, word_gates: Tensor, carried: Carried, place: int
    ) -> tuple[Seen, Carried]:
        """One step; `word_gates` [sentence, beam, gates] is what the cell gets from the words."""

    def all_steps(self, recurrence: Recurrence, encoding: Encoding, words: Tensor, carried: Carried) -> Seen:
        """Every step, one after another; `words` are [batch, target, embedding]."""
        stepper = recurrence.stepper()
        opened, steps = self.open(encoding, stepper), []
        for place, gates in enumerate(stepper.input_gates(words)[:, :, None].unbind(1)):
            seen, carried = self.step(stepper, opened, gates, carried, place)
            steps.append(seen)
        return Seen.joined(steps)


class FixedContext(Look):
    """s(t) = f(s(t-1), y(t-1), c), c the same at every step (Sutskever et al. 2014, Cho et al. 2014)."""

    def __init__(self, *, encoder_width: int) -> None:
        super().__init__()
        self.fed_width = encoder_width

    def open(self, encoding: Encoding, stepper: Stepper) -> FixedSource:
        """The summary is the context."""
        context = encoding.summary[:, None]
        return FixedSource(context, stepper.fed_gates(context))

    def step(
        self, stepper: Stepper, opened: Opened, word_gates: Tensor, carried: Carried, place: int
    ) -> tuple[Seen, Carried]:
        """The cell alone."""
        assert isinstance(opened, FixedSource)
        states = stepper.step(word_gates + opened.gates, carried.states)
        context = opened.context.expand(-1, word_gates.shape[1], -1)
        return Seen(states[-1][0], context), Carried(states)

    def all_steps(self, recurrence: Recurrence, encoding: Encoding, words: Tensor, carried: Carried) -> Seen:
        """One run of the recurrence over [y; c]."""
        context = encoding.summary[:, None].expand(-1, words.shape[1], -1)
        return Seen(recurrence(torch.cat([words, context], -1), _flat(carried)), context)


class BeforeStep(Look):
    """Bahdanau's: the state before the step looks, and what it sees goes into the step (Bahdanau et al. 2015).

    α from s(t-1), c(t) = Σ αᵢ hᵢ, s(t) = f(s(t-1), y(t-1), c(t)).
    """

    def __init__(self, *, width: int, encoder_width: int, coverage: bool, coverage_weight: float) -> None:
        super().__init__()
        kind = CoverageAttention if coverage else AdditiveAttention
        self.attention = kind(query_width=width, key_width=encoder_width, hidden=width)
        self.fed_width, self.coverage_weight = encoder_width, coverage_weight

    def open(self, encoding: Encoding, stepper: Stepper) -> PrecomputedKeys | Memory:
        """U h of every source state."""
        visible = encoding.visible[:, None]
        if isinstance(self.attention, CoverageAttention):
            return self.attention.memory(encoding.states, visible)
        return self.attention.precompute(encoding.states, visible)

    def first(self, encoding: Encoding, states: States) -> Carried:
        """Nothing is covered yet."""
        if not isinstance(self.attention, CoverageAttention):
            return Carried(states)
        return Carried(states, coverage=encoding.states.new_zeros(encoding.visible[:, None].shape))

    def step(
        self, stepper: Stepper, opened: Opened, word_gates: Tensor, carried: Carried, place: int
    ) -> tuple[Seen, Carried]:
        """Look, then step."""
        before = carried.states[-1][0]
        if carried.coverage is None:
            context, weights = self.attention(before, opened)
            coverage = penalty = None
        else:
            assert isinstance(self.attention, CoverageAttention)
            assert isinstance(opened, Memory)
            context, weights, coverage = self.attention.attend(before, opened, carried.coverage)
            penalty = self.coverage_weight * coverage_loss(weights, carried.coverage)
        states = stepper.step(word_gates + stepper.fed_gates(context), carried.states)
        return Seen(states[-1][0], context, (weights,), penalty), Carried(states, coverage=coverage)


class AfterStep(Look):
    """Luong's: the state after the step looks, s̃ = tanh(W [c; s]) predicts the word (Luong et al. 2015).

    With input feeding, s̃ goes into the next step beside its word.
    """

    def __init__(self, attention: LuongAttention, *, width: int, input_feeding: bool) -> None:
        super().__init__()
        self.attention = attention
        self.input_feeding, self.fed_width = input_feeding, width if input_feeding else 0

    def open(self, encoding: Encoding, stepper: Stepper) -> PrecomputedKeys | Memory:
        """The source states, projected where the score does that."""
        return self.attention.precompute(encoding.states, encoding.visible[:, None])

    def first(self, encoding: Encoding, states: States) -> Carried:
        """Zeros are fed to the first step."""
        return Carried(states, fed=torch.zeros_like(states[-1][0]) if self.input_feeding else None)

    def step(
        self, stepper: Stepper, opened: Opened, word_gates: Tensor, carried: Carried, place: int
    ) -> tuple[Seen, Carried]:
        """Step, then look."""
        assert isinstance(opened, PrecomputedKeys | Memory)
        gates = word_gates if carried.fed is None else word_gates + stepper.fed_gates(carried.fed)
        states = stepper.step(gates, carried.states)
        seen = self._look(states[-1][0], opened, start=place, together=True)
        return seen, Carried(states, fed=seen.state if self.input_feeding else None)

    def all_steps(self, recurrence: Recurrence, encoding: Encoding, words: Tensor, carried: Carried) -> Seen:
        """One run of the recurrence, then one call of attention from all its states, unless those are fed back."""
        if self.input_feeding:
            return super().all_steps(recurrence, encoding, words, carried)
        states = recurrence(words, _flat(carried))
        memory = self.attention.memory(encoding.states, encoding.visible[:, None])
        return self._look(states, memory, start=0, together=False)

    def _look(self, states: Tensor, memory: PrecomputedKeys | Memory, *, start: int, together: bool) -> Seen:
        context, weights = self.attention(states, memory, start=start, together=together)
        return Seen(self.attention.attentional_state(context, states), context, (weights,))


def _flat(carried: Carried) -> States:
    """Without the axis of a beam of one."""
    return carried.each(lambda part: part.squeeze(1)).states
