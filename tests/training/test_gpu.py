"""On a GPU: bf16 by default, no step waits for the device, and a resumed run continues exactly."""

import warnings
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from jumok.training import TrainingConfig, train
from jumok.training.optimiser import make_optimiser
from jumok.training.state import Sums
from jumok.training.step import train_step
from support.runs import metrics_of
from support.tiny import TinyBatches, TinyModel, validate

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CONFIG = TrainingConfig(steps=8, warmup=2, ema=0.9, validate_every=2, log_every=2, metric="loss", learning_rate=0.01)


@contextmanager
def waiting_is_an_error():
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a prototype, which may miss some waits
            torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("precision", ["auto", "float32", "bf16"])
def test_no_step_waits_for_the_device(precision):
    model, config = TinyModel().cuda(), replace(CONFIG, precision=precision)
    optimiser, sums = make_optimiser(model, config), Sums()
    batches = [TinyBatches().batch(0, step) for step in range(2)]
    batches = [batch.each(lambda part: part.pin_memory()) for batch in batches]
    sums.add(train_step(model, optimiser, batches, config, step=1, say=print))
    with waiting_is_an_error():
        sums.add(train_step(model, optimiser, batches, config, step=2, say=print))
    assert sums.read().skipped == 0


def test_a_resumed_run_continues_exactly(tmp_path):
    def run(folder, config, *, resume=False):
        model = TinyModel().cuda()
        train(model, TinyBatches(), config, folder=tmp_path / folder, validate=validate, resume=resume)
        return metrics_of(tmp_path / folder)

    whole = run("whole", CONFIG)
    run("twice", replace(CONFIG, steps=4))
    twice = run("twice", CONFIG, resume=True)
    assert [line["step"] for line in twice] == [line["step"] for line in whole]
    assert twice[-1]["validation"] == whole[-1]["validation"]
