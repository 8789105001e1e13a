"""Recurrent layers h(t) = f(h(t-1), x(t)): plain RNN, GRU and LSTM, over a whole sequence or one step at a time.

The weights are those of torch.nn.RNN, GRU or LSTM, so whole sequences run in PyTorch's own loop, and the same weights
can be used step by step.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from jumok.attention.backends import runs_on_kernels
from jumok.attention.checks import check_choice, check_probabilities, check_sizes, is_autocast

LayerState = tuple[Tensor, ...]
"""(h,), or (h, c) for an LSTM; each is [*row, width]."""
States = tuple[LayerState, ...]
"""The state of every layer, the lowest first."""

TORCH: dict[str, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


class Recurrence(nn.Module):
    """A stack of recurrent layers of one cell type, with dropout between them.

    The input of the first layer has `inputs` features, and `fed` more that may depend on the step before, as the
    context vector or input feeding.
    """

    def __init__(
        self, *, cell: str, inputs: int, fed: int = 0, width: int, layers: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_choice("cell", cell, TORCH)
        inputs, width, layers = check_sizes(inputs=inputs, width=width, layers=layers)
        (fed,) = check_sizes(fed=fed, least=0)
        check_probabilities(dropout=dropout)
        between = dropout if layers > 1 else 0.0  # PyTorch warns about dropout with a single layer
        self.rnn = TORCH[cell](inputs + fed, width, layers, batch_first=True, dropout=between)
        self.cell, self.inputs, self.width, self.layers, self.dropout = cell, inputs, width, layers, dropout

    @property
    def parts(self) -> int:
        """The number of state tensors of a layer."""
        return 2 if self.cell == "lstm" else 1

    @property
    def state_width(self) -> int:
        """The size of the states of all layers in one vector."""
        return self.layers * self.parts * self.width

    def forward(
        self, x: Float[Tensor, "batch time inputs_and_fed"], states: States | None = None
    ) -> Float[Tensor, "batch time width"]:
        """The state of the top layer after every step; `states`, each [batch, width], are the initial ones."""
        if has_kernels(x):
            return self._all_steps(x, states)
        # Autocast would run PyTorch's loop in float16 whatever its dtype setting, and long sums overflow there.
        with torch.autocast(x.device.type, enabled=False):
            precision = next(self.rnn.parameters()).dtype
            outputs: Tensor = self.rnn(x.to(precision), self._initial(states, precision))[0]
        return outputs

    def _initial(self, states: States | None, precision: torch.dtype) -> Tensor | LayerState | None:
        """The states as PyTorch takes them: layers stacked, a pair for an LSTM, otherwise one tensor."""
        if states is None:
            return None
        parts = tuple(torch.stack(part).to(precision) for part in zip(*states, strict=True))
        return parts if self.cell == "lstm" else parts[0]

    def _all_steps(self, x: Tensor, states: States | None) -> Tensor:
        """The same in the precision of autocast, layer by layer with the operator for all steps."""
        from jumok.layers.gpu.recurrence import recurrent_steps

        outputs = x.transpose(0, 1)
        for layer, (weight, recurrent, bias, recurrent_bias) in enumerate(self.rnn.all_weights):
            if layer:
                outputs = F.dropout(outputs, self.dropout, self.training)
            gates = F.linear(outputs, weight, bias)[:, None]
            first = self._zeros(gates[0]) if states is None else tuple(part[None] for part in states[layer])
            outputs = recurrent_steps(self.cell, gates, first, recurrent[None], recurrent_bias[None])[:, 0]
        return outputs.transpose(0, 1)

    def _zeros(self, gates: Float[Tensor, "direction batch gates"]) -> LayerState:
        return (gates.new_zeros(*gates.shape[:2], self.width),) * self.parts

    def stepper(self) -> "Stepper":
        """The same layers, for running one step at a time."""
        dropout = self.dropout if self.training else 0.0
        return Stepper(self.cell, self.inputs, dropout, self.rnn.all_weights)


def split_states(joined: Float[Tensor, "*row state_width"], *, layers: int, parts: int) -> States:
    """The states of all layers of a recurrence, given in one vector; `parts` is 2 for an LSTM and 1 for other cells."""
    by_layer = joined.view(*joined.shape[:-1], layers, parts, -1)
    return tuple(tuple(layer.unbind(-2)) for layer in by_layer.unbind(-3))


def side_by_side(
    layers: Sequence[Recurrence], inputs: Sequence[Float[Tensor, "batch time inputs"]]
) -> list[Float[Tensor, "batch time width"]]:
    """The outputs of some recurrences of the same size and one layer, each over its own inputs.

    On a GPU they run at the same time, as the directions of an encoder.
    """
    if not has_kernels(inputs[0]):
        return [layer(x) for layer, x in zip(layers, inputs, strict=True)]
    from jumok.layers.gpu.recurrence import recurrent_steps

    weights, recurrent, bias, recurrent_bias = zip(*(layer.rnn.all_weights[0] for layer in layers), strict=True)
    parts = zip(inputs, weights, bias, strict=True)
    gates = torch.stack([F.linear(x.transpose(0, 1), weight, added) for x, weight, added in parts], 1)
    first = layers[0]._zeros(gates[0])
    outputs = recurrent_steps(layers[0].cell, gates, first, torch.stack(recurrent), torch.stack(recurrent_bias))
    return list(outputs.transpose(0, 2).unbind(1))


def has_kernels(x: Tensor) -> bool:
    """Whether the operator for all steps runs: under autocast on a GPU.

    Elsewhere PyTorch's own loop does, on a GPU that of cuDNN.
    """
    return (
        is_autocast(x.device)
        and runs_on_kernels(x, torch.get_autocast_dtype(x.device.type))
        and not torch.compiler.is_compiling()
    )


class Stepper:
    """Runs a recurrence one step at a time; the caller keeps the states.

    The inputs of the first layer are projected to gates beforehand: `input_gates` for all steps at once, `fed_gates`
    at each step.
    """

    def __init__(self, cell: str, inputs: int, dropout: float, weights: list[list[nn.Parameter]]) -> None:
        self.cell, self.dropout, self.weights = STEPS[cell], dropout, weights
        first, _, self.bias, _ = weights[0]
        # Split once, because the gradient of every slice is padded to the size of the whole matrix.
        self.for_inputs, self.for_fed = first.split([inputs, first.shape[1] - inputs], 1)  # type: ignore[no-untyped-call]

    def input_gates(self, x: Float[Tensor, "*row inputs"]) -> Float[Tensor, "*row gates"]:
        """W x + b."""
        return F.linear(x, self.for_inputs, self.bias)

    def fed_gates(self, fed: Float[Tensor, "*row fed"]) -> Float[Tensor, "*row gates"]:
        """C c, to be added to the input gates."""
        return F.linear(fed, self.for_fed)

    def step(self, gates: Float[Tensor, "*row gates"], states: States) -> States:
        """One step of every layer; `gates` are those of the first layer."""
        after: list[LayerState] = []
        for layer, (state, (weight, recurrent, bias, recurrent_bias)) in enumerate(
            zip(states, self.weights, strict=True)
        ):
            if layer:
                gates = F.linear(F.dropout(after[-1][0], self.dropout), weight, bias)
            after.append(self.cell(gates, F.linear(state[0], recurrent, recurrent_bias), state))
        return tuple(after)


def rnn_step(from_input: Tensor, from_state: Tensor, state: LayerState) -> LayerState:
    """h = tanh(W x + U h)."""
    return ((from_input + from_state).tanh(),)


def gru_step(from_input: Tensor, from_state: Tensor, state: LayerState) -> LayerState:
    """h = (1 − z) n + z h, with n = tanh(W x + r · U h) (Cho et al. 2014, r after the product as in cuDNN)."""
    width = state[0].shape[-1]
    gates = (from_input[..., : 2 * width] + from_state[..., : 2 * width]).sigmoid()
    reset, update = gates.split(width, -1)  # type: ignore[no-untyped-call]
    new = torch.addcmul(from_input[..., 2 * width :], reset, from_state[..., 2 * width :]).tanh()
    return (torch.lerp(new, state[0], update),)


def lstm_step(from_input: Tensor, from_state: Tensor, state: LayerState) -> LayerState:
    """c = f · c + i · g, h = o · tanh(c) (Hochreiter & Schmidhuber 1997, with Gers et al.'s forget gate)."""
    into, forget, new, out = (from_input + from_state).chunk(4, -1)
    cell = forget.sigmoid() * state[1] + into.sigmoid() * new.tanh()
    return out.sigmoid() * cell.tanh(), cell


STEPS: dict[str, Callable[[Tensor, Tensor, LayerState], LayerState]] = {
    "rnn": rnn_step,
    "gru": gru_step,
    "lstm": lstm_step,
}
