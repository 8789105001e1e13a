"""Monotonic attention (Raffel et al. 2017): from where the last word stopped, move on until a source item is chosen.

    e(t, j) = g · v/‖v‖ · tanh(W s(t) + U h(j)) + r        p(t, j) = σ(e(t, j)): the probability of stopping at j
    α(t, j) = p(t, j) Σ over k ≤ j of α(t-1, k) Π over k ≤ l < j of (1 - p(t, l))

α is the expected alignment, by which training attends; Gaussian noise on e drives p towards 0 and 1. Outside training
it may be hard: the first item from the last one on with p above ½ gets all the weight; without one, all are 0.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from jumok.layers import Recurrence
from jumok.layers.recurrent import States, Stepper
from jumok.models.encoder_decoder import Encoding
from jumok.models.rnn.attention import DecoderAttention, PreparedSource, StepOutput, StepState

NOWHERE = -1e4
"""The logarithm of a weight of 0 that has a finite gradient."""


class MonotonicSource(NamedTuple):
    """U h and h of every source item."""

    keys: Float[Tensor, "sentence source hidden"]
    values: Float[Tensor, "sentence source width"]
    visible: Bool[Tensor, "sentence source"]

    def keep(self, rows: Int[Tensor, " kept"]) -> "MonotonicSource":
        """Only these sentences."""
        return MonotonicSource(self.keys[rows], self.values[rows], self.visible[rows])


class MonotonicStep(DecoderAttention):
    """Monotonic attention after the step: s̃ = tanh(W [c; s]) predicts the word.

    With input feeding, s̃ goes into the next step beside its word.
    """

    def __init__(self, *, width: int, encoder_width: int, input_feeding: bool, hard: bool, noise: float) -> None:
        super().__init__()
        self.to_query = nn.Linear(width, width)
        self.to_key = nn.Linear(encoder_width, width, bias=False)
        self.v = nn.Parameter(torch.randn(width) * width**-0.5)
        self.g = nn.Parameter(torch.tensor(1.0))
        self.r = nn.Parameter(torch.tensor(-1.0))  # at first it rather goes on
        self.to_state = nn.Linear(encoder_width + width, width, bias=False)
        self.input_feeding, self.fed_width = input_feeding, width if input_feeding else 0
        self.hard, self.noise = hard, noise

    def prepare(self, encoding: Encoding, stepper: Stepper) -> MonotonicSource:
        """U h of every source item."""
        return MonotonicSource(self.to_key(encoding.states), encoding.states, encoding.visible)

    def first_state(self, encoding: Encoding, states: States) -> StepState:
        """The first word starts from the first item."""
        precision = torch.promote_types(encoding.states.dtype, torch.float32)
        weights = torch.full_like(encoding.states[:, None, :, 0], NOWHERE, dtype=precision)
        weights[..., 0] = 0
        fed = torch.zeros_like(states[-1][0]) if self.input_feeding else None
        return StepState(states, fed=fed, log_weights=weights)

    def step(
        self, stepper: Stepper, source: PreparedSource, word_gates: Tensor, before: StepState, position: int
    ) -> tuple[StepOutput, StepState]:
        """Step, then attend."""
        assert isinstance(source, MonotonicSource)
        assert before.log_weights is not None
        gates = word_gates if before.fed is None else word_gates + stepper.fed_gates(before.fed)
        states = stepper.step(gates, before.states)
        log_weights = self._next(before.log_weights, self._energies(states[-1][0], source), source.visible[:, None])
        output = self._attend(states[-1][0], source, log_weights)
        fed = output.state if self.input_feeding else None
        return output, StepState(states, fed=fed, log_weights=log_weights)

    def all_steps(self, recurrence: Recurrence, encoding: Encoding, words: Tensor, before: StepState) -> StepOutput:
        """One run of the recurrence and one of all energies, unless s̃ is fed back; then the weights word by word."""
        if self.input_feeding:
            return super().all_steps(recurrence, encoding, words, before)
        assert before.log_weights is not None
        source, weights = self.prepare(encoding, recurrence.stepper()), before.log_weights
        states = recurrence(words, before.each(lambda part: part.squeeze(1)).states)
        steps = []
        for energies in self._energies(states, source).split(1, 1):  # type: ignore[no-untyped-call]
            weights = self._next(weights, energies, source.visible[:, None])
            steps.append(weights)
        return self._attend(states, source, torch.cat(steps, 1))

    def _energies(
        self, states: Float[Tensor, "sentence position width"], source: MonotonicSource
    ) -> Float[Tensor, "sentence position source"]:
        """e, with noise in training."""
        v = self.g * self.v / self.v.norm()
        energies: Tensor = (self.to_query(states)[:, :, None] + source.keys[:, None]).tanh() @ v + self.r
        energies = energies.to(torch.promote_types(energies.dtype, torch.float32))
        return energies + self.noise * torch.randn_like(energies) if self.training and self.noise else energies

    def _next(self, before: Tensor, energies: Tensor, visible: Tensor) -> Float[Tensor, "sentence position source"]:
        stop = F.logsigmoid(energies).masked_fill(~visible, NOWHERE)
        if self.hard and not self.training:
            return hard_weights(before, (energies > 0) & visible)
        return expected_weights(before, stop, F.logsigmoid(-energies).masked_fill(~visible, 0))

    def _attend(self, states: Tensor, source: MonotonicSource, log_weights: Tensor) -> StepOutput:
        weights = log_weights.exp()
        context = weights.to(source.values.dtype) @ source.values
        state = self.to_state(torch.cat([context, states], -1)).tanh()
        return StepOutput(state, context, (weights,))


def expected_weights(
    before: Float[Tensor, "*row source"], stop: Float[Tensor, "*row source"], go_on: Float[Tensor, "*row source"]
) -> Float[Tensor, "*row source"]:
    """log α(t) from log α(t-1), log p and log(1 - p), for all source items at once.

    With P(j) the product of 1 - p before j, α(t, j) = p(j) P(j) Σ over k ≤ j of α(t-1, k) / P(k).
    """
    passed = go_on.cumsum(-1) - go_on
    return (stop + passed + torch.logcumsumexp(before - passed, -1)).clamp(min=NOWHERE)


def hard_weights(
    before: Float[Tensor, "*row source"], stops: Bool[Tensor, "*row source"]
) -> Float[Tensor, "*row source"]:
    """0 at the first item from the last one on that stops, and very low elsewhere."""
    reached = before.cummax(-1).values > NOWHERE / 2
    candidates = (stops & reached).to(torch.uint8)
    first = (candidates.cumsum(-1) == 1) & (candidates == 1)
    return torch.where(first, 0.0, NOWHERE).to(before.dtype)
