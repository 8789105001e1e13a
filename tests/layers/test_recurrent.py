"""Recurrent layers one step at a time against PyTorch's own loop."""

import pytest
import torch

from jumok.layers import Recurrence


def first_states(recurrence, *rows):
    return tuple(
        tuple(torch.randn(*rows, recurrence.width, dtype=torch.double) for _ in range(recurrence.parts))
        for _ in range(recurrence.layers)
    )


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("layers", [1, 3])
def test_step_by_step_equals_torch(cell, layers):
    torch.manual_seed(0)
    recurrence = Recurrence(cell=cell, inputs=4, fed=3, width=5, layers=layers).double()
    x, states = torch.randn(2, 6, 7, dtype=torch.double), first_states(recurrence, 2)
    whole = recurrence(x, states)
    stepper = recurrence.stepper()
    for place in range(6):
        gates = stepper.input_gates(x[:, place, :4]) + stepper.fed_gates(x[:, place, 4:])
        states = stepper.step(gates, states)
        torch.testing.assert_close(states[-1][0], whole[:, place])


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_gradients_step_by_step_equal_torch(cell):
    torch.manual_seed(1)
    recurrence = Recurrence(cell=cell, inputs=4, fed=3, width=5, layers=2).double()
    x, states = torch.randn(2, 6, 7, dtype=torch.double, requires_grad=True), first_states(recurrence, 2)
    inputs = [x, *recurrence.parameters()]
    whole = torch.autograd.grad((recurrence(x, states) ** 2).sum(), inputs)
    stepper, total = recurrence.stepper(), 0
    for place in range(6):
        gates = stepper.input_gates(x[:, place, :4]) + stepper.fed_gates(x[:, place, 4:])
        states = stepper.step(gates, states)
        total = total + (states[-1][0] ** 2).sum()
    for mine, torchs in zip(torch.autograd.grad(total, inputs), whole, strict=True):
        torch.testing.assert_close(mine, torchs)


def test_dropout_falls_between_the_layers_while_training_only():
    torch.manual_seed(2)
    recurrence = Recurrence(cell="gru", inputs=4, width=50, layers=2, dropout=0.5)
    states = tuple((torch.zeros(1, 50),) for _ in range(2))
    gates = torch.randn(1, 150)

    def step():
        return recurrence.stepper().step(gates, states)

    lower, upper = zip(step(), step(), strict=True)
    assert torch.equal(*(state[0] for state in lower))
    assert not torch.equal(*(state[0] for state in upper))
    recurrence.eval()
    assert torch.equal(step()[1][0], step()[1][0])
