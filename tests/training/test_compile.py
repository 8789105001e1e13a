"""Compiled layers: the same losses and gradients, two graphs for all layers and shapes, and none where it fails."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from jumok.layers import EncoderLayer
from jumok.models import RnnDecoderConfig, RnnEncoderConfig, build_model
from jumok.training import TrainingConfig
from jumok.training.compile import compiled_layers, why_not

PROGRAM = """
from contextlib import nullcontext
from functools import partial

import torch

import jumok.layers.multi_head
from jumok.data import Batch
from jumok.models import TransformerDecoderConfig, TransformerEncoderConfig, build_model
from jumok.training import TrainingConfig, batch_loss
from jumok.training.compile import compiled_layers
from jumok.training.loss import TargetTokens

jumok.layers.multi_head.gains_from_stacking = lambda x: True  # as on a GPU
torch.compile = partial(torch.compile, backend="aot_eager", fullgraph=True)  # as inductor, but for the code it writes
options = {"width": 8, "heads": 2, "hidden": 12, "layers": 2, "dropout": 0.0, "norm": "NORM"}
model = build_model(
    TransformerEncoderConfig(**options), TransformerDecoderConfig(**options), source_vocabulary=9, target_vocabulary=9
)

def batch(rows, source, target):
    visible = torch.ones(rows, source, dtype=torch.bool), torch.ones(rows, target, dtype=torch.bool)
    visible[0][0, -1:] = visible[1][-1, -1:] = False
    ids = torch.randint(4, 9, (rows, source)), *(torch.randint(4, 9, (rows, target)) for _ in range(2))
    return Batch(ids[0], visible[0], *ids[1:], visible[1])

def outcome(batch):
    total = batch_loss(model, batch, TargetTokens.of(batch), smoothing=0.1).total
    return [total.detach(), *torch.autograd.grad(total, list(model.parameters()))]

batches = [batch(4, 7, 9), batch(5, 11, 11), batch(2, 3, 4), batch(9, 2, 2)]
wanted, said = [outcome(each) for each in batches], []
with compiled_layers(model, TrainingConfig(compile="on"), said.append, nullcontext()):
    for each, want in zip(batches, wanted):
        torch.testing.assert_close(outcome(each), want)
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    with torch.no_grad():
        batch_loss(model.eval(), batches[0], TargetTokens.of(batches[0]))
assert graphs == 2 == torch._dynamo.utils.counters["stats"]["unique_graphs"], graphs
assert len(said) == 1, said
assert all("values" not in vars(layer) for layer in model.modules())
"""


@pytest.mark.long
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_compiled_layers_learn_the_same_with_one_graph_for_all_layers_and_shapes(norm):
    # A process of its own, because a compiler cannot see through the checks of signatures that tests switch on.
    program = PROGRAM.replace("NORM", norm)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_where_compilation_fails_it_is_said_once_and_layers_stay_as_they_were(monkeypatch):
    def broken(function, **options):
        def call(*given):
            raise RuntimeError("no C compiler found\nand much more")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    layer, said = EncoderLayer(width=8, heads=2, hidden=12), []
    with compiled_layers(nn.Sequential(layer), TrainingConfig(compile="on"), said.append, torch.no_grad()):
        assert "values" not in vars(layer)
    assert "compilation failed (RuntimeError: no C compiler found)" in said[-1]
    assert len(said) == 2


def test_layers_are_compiled_on_a_gpu_only_unless_asked_for_and_never_under_hooks():
    layer = EncoderLayer(width=8, heads=2, hidden=12)
    assert "not on a CUDA GPU" in why_not(layer, TrainingConfig())
    assert "off" in why_not(layer, TrainingConfig(compile="off"))
    assert why_not(layer, TrainingConfig(compile="on")) is None
    layer.feed.register_forward_hook(lambda *_: None)
    assert "hooks" in why_not(layer, TrainingConfig(compile="on"))


def test_a_model_without_transformer_layers_has_nothing_to_compile():
    model = build_model(
        RnnEncoderConfig(width=4, embedding=4), RnnDecoderConfig(width=4, embedding=4),
        source_vocabulary=9, target_vocabulary=9,
    )  # fmt: skip
    said = []
    with compiled_layers(model, TrainingConfig(compile="on"), said.append, torch.no_grad()):
        assert not said
