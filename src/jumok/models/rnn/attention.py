"""How a recurrent decoder uses its source: a fixed context, attention before its step (Bahdanau) or after it (Luong).

The three share one interface, `DecoderAttention`. `prepare` computes what depends on the source alone, once for each
sentence; `step` is one step of every hypothesis; `all_steps` runs over a whole known target, step by step, or at once
where only the recurrent state passes from one step to the next.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from jumok.attention import PrecomputedKeys, Weights, attend
from jumok.attention.backends import runs_on_kernels
from jumok.layers import AdditiveAttention, CoverageAttention, LuongAttention, Memory, Recurrence, coverage_loss
from jumok.layers.recurrent import States, Stepper
from jumok.models.encoder_decoder import Encoding


class FixedSource(NamedTuple):
    """The summary of the source, and its part in the gates of the cell."""

    context: Float[Tensor, "sentence 1 width"]
    gates: Float[Tensor, "sentence 1 gates"]

    def keep(self, rows: Int[Tensor, " kept"]) -> "FixedSource":
        """Only these sentences."""
        return FixedSource(self.context[rows], self.gates[rows])


@runtime_checkable
class SourceRows(Protocol):
    """What other kinds of attention, such as monotonic, prepare of a source."""

    def keep(self, rows: Int[Tensor, " kept"]) -> "SourceRows": ...


PreparedSource = PrecomputedKeys | Memory | FixedSource | SourceRows
"""What the steps of a decoder need of a source."""


class StepState(NamedTuple):
    """What each hypothesis passes from one step to the next."""

    states: States
    fed: Float[Tensor, "sentence beam width"] | None = None
    """s̃ of the step before, with input feeding."""
    coverage: Float[Tensor, "sentence beam source"] | None = None
    """The sum of the weights so far, with coverage."""
    log_weights: Float[Tensor, "sentence beam source"] | None = None
    """The logarithms of the weights of the step before, with monotonic attention."""

    def each(self, change: Callable[[Tensor], Tensor]) -> "StepState":
        """Apply a function to every tensor."""
        states = tuple(tuple(change(part) for part in layer) for layer in self.states)
        others = (None if part is None else change(part) for part in (self.fed, self.coverage, self.log_weights))
        return StepState(states, *others)


class StepOutput(NamedTuple):
    """The state, context and attention weights of a decoder at one position or several."""

    state: Float[Tensor, "sentence position width"]
    context: Float[Tensor, "sentence #position encoder_width"]
    weights: tuple[Weights | Float[Tensor, "sentence steps source"], ...] = ()
    """One entry for all positions or one for each; none without attention."""
    penalty: Float[Tensor, "sentence position"] | None = None

    @staticmethod
    def joined(steps: "list[StepOutput]") -> "StepOutput":
        """The outputs of consecutive steps as one."""
        states, contexts, weights, penalties = zip(*steps, strict=True)
        penalty = None if penalties[0] is None else torch.cat(penalties, 1)
        return StepOutput(torch.cat(states, 1), torch.cat(contexts, 1), sum(weights, ()), penalty)


class DecoderAttention(nn.Module, ABC):
    """How the steps of a decoder use its source."""

    fed_width: int
    """Size of the cell's input beside the word."""

    @abstractmethod
    def prepare(self, encoding: Encoding, stepper: Stepper) -> PreparedSource:
        """What every step needs of the source."""

    def first_state(self, encoding: Encoding, states: States) -> StepState:
        """The input of the first step, with a beam of one."""
        return StepState(states)

    @abstractmethod
    def step(
        self, stepper: Stepper, source: PreparedSource, word_gates: Tensor, before: StepState, position: int
    ) -> tuple[StepOutput, StepState]:
        """One step; `word_gates` [sentence, beam, gates] is the part of the words in the gates of the cell."""

    def all_steps(self, recurrence: Recurrence, encoding: Encoding, words: Tensor, before: StepState) -> StepOutput:
        """Every step, one after another; `words` are [batch, target, embedding]."""
        stepper = recurrence.stepper()
        source, outputs = self.prepare(encoding, stepper), []
        for position, gates in enumerate(stepper.input_gates(words)[:, :, None].unbind(1)):
            output, before = self.step(stepper, source, gates, before, position)
            outputs.append(output)
        return StepOutput.joined(outputs)


class FixedContext(DecoderAttention):
    """s(t) = f(s(t-1), y(t-1), c), with the same c at every step (Sutskever et al. 2014, Cho et al. 2014)."""

    def __init__(self, *, encoder_width: int) -> None:
        super().__init__()
        self.fed_width = encoder_width

    def prepare(self, encoding: Encoding, stepper: Stepper) -> FixedSource:
        """The summary is the context."""
        context = encoding.summary[:, None]
        return FixedSource(context, stepper.fed_gates(context))

    def step(
        self, stepper: Stepper, source: PreparedSource, word_gates: Tensor, before: StepState, position: int
    ) -> tuple[StepOutput, StepState]:
        """The cell alone."""
        assert isinstance(source, FixedSource)
        states = stepper.step(word_gates + source.gates, before.states)
        context = source.context.expand(-1, word_gates.shape[1], -1)
        return StepOutput(states[-1][0], context), StepState(states)

    def all_steps(self, recurrence: Recurrence, encoding: Encoding, words: Tensor, before: StepState) -> StepOutput:
        """One run of the recurrence over [y; c]."""
        context = encoding.summary[:, None].expand(-1, words.shape[1], -1)
        return StepOutput(recurrence(torch.cat([words, context], -1), _without_beam(before)), context)


class BahdanauStep(DecoderAttention):
    """Attention before the step: its context goes into the step (Bahdanau et al. 2015).

    α from s(t-1), c(t) = Σ αᵢ hᵢ, s(t) = f(s(t-1), y(t-1), c(t)).
    """

    def __init__(self, *, width: int, encoder_width: int, coverage: bool, coverage_weight: float) -> None:
        super().__init__()
        kind = CoverageAttention if coverage else AdditiveAttention
        self.attention = kind(query_width=width, key_width=encoder_width, hidden=width)
        self.fed_width, self.coverage_weight = encoder_width, coverage_weight

    def prepare(self, encoding: Encoding, stepper: Stepper) -> PrecomputedKeys | Memory:
        """U h of every source state."""
        visible = encoding.visible[:, None]
        if isinstance(self.attention, CoverageAttention):
            return self.attention.memory(encoding.states, visible)
        return self.attention.precompute(encoding.states, visible)

    def first_state(self, encoding: Encoding, states: States) -> StepState:
        """Nothing is covered yet."""
        if not isinstance(self.attention, CoverageAttention):
            return StepState(states)
        precision = torch.promote_types(encoding.states.dtype, torch.float32)
        return StepState(states, coverage=encoding.states.new_zeros(encoding.visible[:, None].shape, dtype=precision))

    def step(
        self, stepper: Stepper, source: PreparedSource, word_gates: Tensor, before: StepState, position: int
    ) -> tuple[StepOutput, StepState]:
        """Attend, then step."""
        query = before.states[-1][0]
        if before.coverage is None:
            context, weights = self.attention(query, source)
            coverage = penalty = None
        else:
            assert isinstance(self.attention, CoverageAttention)
            assert isinstance(source, Memory)
            context, weights, coverage = self.attention.attend(query, source, before.coverage)
            penalty = self.coverage_weight * coverage_loss(weights, before.coverage)
        states = stepper.step(word_gates + stepper.fed_gates(context), before.states)
        return StepOutput(states[-1][0], context, (weights,), penalty), StepState(states, coverage=coverage)

    def all_steps(self, recurrence: Recurrence, encoding: Encoding, words: Tensor, before: StepState) -> StepOutput:
        """Every step, on a GPU by one operator with kernels of its own."""
        if not has_step_kernels(recurrence, encoding):
            return super().all_steps(recurrence, encoding, words, before)
        from jumok.models.rnn.gpu.bahdanau import bahdanau_steps

        attention, stepper = self.attention, recurrence.stepper()
        _, recurrent, _, recurrent_bias = stepper.weights[0]
        coverage = attention.w if isinstance(attention, CoverageAttention) else None
        steps = bahdanau_steps(
            recurrence.cell,
            stepper.input_gates(words.transpose(0, 1)),
            attention.to_key(encoding.states),
            encoding.states,
            encoding.visible,
            _without_beam(before)[0],
            attention.to_query.weight,
            attention.v,
            recurrent,
            recurrent_bias,
            stepper.for_fed,
            coverage,
        )
        states, contexts, weights = (part.transpose(0, 1) for part in steps)
        penalty = None
        if coverage is not None:
            covered = torch.cat([torch.zeros_like(weights[:, :1]), weights.cumsum(1)[:, :-1]], 1)
            penalty = self.coverage_weight * coverage_loss(weights, covered)
        return StepOutput(states, contexts, (weights,), penalty)


class LuongStep(DecoderAttention):
    """Attention after the step: s̃ = tanh(W [c; s]) predicts the word (Luong et al. 2015).

    With input feeding, s̃ goes into the next step beside its word.
    """

    def __init__(self, attention: LuongAttention, *, width: int, input_feeding: bool) -> None:
        super().__init__()
        self.attention = attention
        self.input_feeding, self.fed_width = input_feeding, width if input_feeding else 0

    def prepare(self, encoding: Encoding, stepper: Stepper) -> PrecomputedKeys | Memory:
        """The source states, projected if the score projects them."""
        return self.attention.precompute(encoding.states, encoding.visible[:, None])

    def first_state(self, encoding: Encoding, states: States) -> StepState:
        """Input feeding begins with zeros."""
        return StepState(states, fed=torch.zeros_like(states[-1][0]) if self.input_feeding else None)

    def step(
        self, stepper: Stepper, source: PreparedSource, word_gates: Tensor, before: StepState, position: int
    ) -> tuple[StepOutput, StepState]:
        """Step, then attend."""
        assert isinstance(source, PrecomputedKeys | Memory)
        gates = word_gates if before.fed is None else word_gates + stepper.fed_gates(before.fed)
        states = stepper.step(gates, before.states)
        output = self._attend(states[-1][0], source, start=position, together=True)
        return output, StepState(states, fed=output.state if self.input_feeding else None)

    def all_steps(self, recurrence: Recurrence, encoding: Encoding, words: Tensor, before: StepState) -> StepOutput:
        """One run of the recurrence, then one call of attention from all its states, unless those are fed back.

        With input feeding every step, on a GPU by one operator.
        """
        if self.input_feeding:
            if self._has_kernels(recurrence, encoding):
                return self._all_fed_steps(recurrence, encoding, words, before)
            return super().all_steps(recurrence, encoding, words, before)
        states = recurrence(words, _without_beam(before))
        memory = self.attention.memory(encoding.states, encoding.visible[:, None])
        return self._attend(states, memory, start=0, together=False)

    def _has_kernels(self, recurrence: Recurrence, encoding: Encoding) -> bool:
        usual = self.attention.reach == "global" and self.attention.score in ("dot", "general", "concat")
        return usual and has_step_kernels(recurrence, encoding)

    def _all_fed_steps(
        self, recurrence: Recurrence, encoding: Encoding, words: Tensor, before: StepState
    ) -> StepOutput:
        """Every step with input feeding, by one operator with kernels of its own."""
        from jumok.models.rnn.gpu.luong import luong_steps

        attention, stepper = self.attention, recurrence.stepper()
        _, recurrent, _, recurrent_bias = stepper.weights[0]
        concat = attention.score == "concat"
        steps = luong_steps(
            recurrence.cell,
            stepper.input_gates(words.transpose(0, 1)),
            attention.memory(encoding.states).keys,
            encoding.states,
            encoding.visible,
            _without_beam(before)[0],
            recurrent,
            recurrent_bias,
            stepper.for_fed,
            attention.to_state.weight,
            attention.to_query.weight if concat else None,
            attention.v if concat else None,
        )
        states, contexts, weights = (part.transpose(0, 1) for part in steps)
        return StepOutput(states, contexts, (weights,))

    def _attend(self, states: Tensor, source: PrecomputedKeys | Memory, *, start: int, together: bool) -> StepOutput:
        context, weights = self.attention(states, source, start=start, together=together)
        return StepOutput(self.attention.attentional_state(context, states), context, (weights,))


class WholeSource(nn.Module):
    """A soft context beside hard attention, c(t) = Σ softmax(s(t)ᵀ Q h / √d) h, over the whole source."""

    def __init__(self, *, width: int, encoder_width: int) -> None:
        super().__init__()
        self.to_query = nn.Linear(width, encoder_width, bias=False)

    def forward(
        self, states: Float[Tensor, "batch position width"], encoding: Encoding
    ) -> Float[Tensor, "batch position encoder_width"]:
        """The context of every state."""
        keys = encoding.states
        context, _ = attend(self.to_query(states), keys, keys, visible=encoding.visible[:, None])
        return context


MOST_KEYS = 512
"""Source tokens that the step kernels can attend to."""


def has_step_kernels(recurrence: Recurrence, encoding: Encoding) -> bool:
    """Whether the kernels for all steps of a decoder can run: on a GPU, with one layer, for sources of usual length."""
    states = encoding.states
    return (
        recurrence.layers == 1
        and states.shape[1] <= MOST_KEYS
        and runs_on_kernels(states)
        and not torch.compiler.is_compiling()
    )


def _without_beam(before: StepState) -> States:
    """The recurrent states without the axis of a beam of one."""
    return before.each(lambda part: part.squeeze(1)).states
