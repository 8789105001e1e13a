import pytest
import torch

from jumok.training.optimiser import MovingAverage, trained
from support.tiny import TinyModel


@torch.no_grad()
def changed(model, step):
    for number, weight in enumerate(trained(model).values()):
        weight.fill_(step * 10.0 + number)


def test_the_average_follows_its_formula():
    model = TinyModel()
    average = MovingAverage(model, 0.9)
    want = {name: weight.detach().double() for name, weight in trained(model).items()}
    for step in range(1, 201):
        changed(model, step)
        average.update(model, step)
        decay = min(0.9, (1 + step) / (10 + step))
        want = {name: decay * want[name] + (1 - decay) * weight for name, weight in trained(model).items()}
    for name, tensor in average.average.items():
        torch.testing.assert_close(tensor.double(), want[name].detach(), rtol=1e-5, atol=1e-5)


def test_the_model_has_its_own_weights_again_after_the_block_whatever_happens_in_it():
    model = TinyModel()
    average = MovingAverage(model, 0.9)
    changed(model, 5)
    before = {name: weight.clone() for name, weight in trained(model).items()}

    def interrupted():
        with average.in_place(model):
            assert all(torch.equal(weight, average.average[name]) for name, weight in trained(model).items())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert all(torch.equal(weight, before[name]) for name, weight in trained(model).items())


def test_tied_weights_are_averaged_once_and_stay_tied():
    model = TinyModel()
    average = MovingAverage(model, 0.9)
    assert "decoder.output.weight" not in average.average
    with average.in_place(model):
        assert model.decoder.output.weight is model.decoder.table.weight
