"""Batches of a few shapes, and the step as a CUDA graph: the same results as the step as it is written."""

from typing import NamedTuple
from unittest.mock import ANY

import pytest
import torch

from jumok.data.batches import Batch, pad
from jumok.models import (
    RnnDecoderConfig,
    RnnEncoderConfig,
    TransformerDecoderConfig,
    TransformerEncoderConfig,
    build_model,
)
from jumok.training import TrainingConfig, batch_loss
from jumok.training.cuda_graph import StepGraphs, each_tensor, longest_of, pinned, ready_for, shapes_of
from jumok.training.guided_alignment import GuidedAlignment
from jumok.training.loss import TargetTokens
from jumok.training.objective import SEQUENCES
from jumok.training.optimiser import make_optimiser, set_rate, trained
from jumok.training.step import train_step
from support.tiny import TinyBatches, TinyModel

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
CONFIG = TrainingConfig()


def batch_of(lengths, *, seed=0, links=False):
    draws = torch.Generator().manual_seed(seed)
    rows = [[torch.randint(4, 20, (size,), generator=draws).tolist() for size in pair] for pair in lengths]
    (source, seen), (target_in, visible), (target_out, _) = (
        pad(part) for part in ([a for a, _ in rows], [[1, *b[:-1]] for _, b in rows], [b for _, b in rows])
    )
    word_links = (visible[:, :, None] & seen[:, None]) if links else None
    return Batch(source, seen, target_in, target_out, visible, word_links)


def model_of(kind="rnn", *, dropout=0.0, **options):
    torch.manual_seed(0)
    if kind == "transformer":
        sizes = {"width": 16, "layers": 2, "heads": 2, "dropout": dropout, "attention_dropout": dropout}
        encoder, decoder = TransformerEncoderConfig(**sizes), TransformerDecoderConfig(**sizes, **options)
    else:
        sizes = {"width": 16, "embedding": 8, "dropout": dropout}
        encoder, decoder = RnnEncoderConfig(**sizes), RnnDecoderConfig(**sizes, **options)
    return build_model(encoder, decoder, source_vocabulary=20, target_vocabulary=20, shared_vocabulary=True)


MODELS = {
    "additive": {},
    "coverage": {"coverage": True},
    "copy": {"copy": True},
    "feeding": {"attention": "general", "input_feeding": True},
    "local-p": {"attention": "dot", "reach": "local-p"},
    "no attention": {"attention": "none"},
    "transformer": {"kind": "transformer"},
    "transformer copy": {"kind": "transformer", "copy": True},
}


@pytest.mark.parametrize("name", MODELS)
def test_a_batch_padded_to_a_round_shape_has_the_same_loss_and_gradients(name):
    model, batch = model_of(**MODELS[name]), batch_of([(5, 3), (9, 11), (7, 6)])
    rounded = batch.rounded()
    assert rounded.source.shape == (8, 10)
    assert rounded.target_in.shape == (8, 12)
    found = []
    for one, tokens in ((batch, TargetTokens.of(batch)), (rounded, TargetTokens.padded(rounded))):
        loss = batch_loss(model, one, tokens, smoothing=0.1)
        found.append([loss.cross_entropy, *torch.autograd.grad(loss.total, list(trained(model).values()))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("null", [False, True])
def test_guided_alignment_counts_no_padding_either(null):
    model, batch = model_of(), batch_of([(5, 3), (9, 11), (7, 6)], links=True)
    guide = GuidedAlignment(weight=1.0, layer=None, head=None, shift=False, null=null)
    totals = [
        batch_loss(model, one, tokens, guide=guide).total
        for one, tokens in (
            (batch, TargetTokens.of(batch)),
            (batch.rounded(), TargetTokens.padded(batch.rounded())),
        )
    ]
    torch.testing.assert_close(*totals)


def test_shapes_are_rounded_within_what_the_model_can_take():
    model = model_of(attention="location", longest=11)
    assert longest_of(model) == 11
    assert batch_of([(11, 11)]).rounded(longest_of(model)).source.shape == (8, 11)
    assert batch_of([(12, 9)]).rounded(11).source.shape == (8, 12)
    assert longest_of(model_of()) is None


def test_few_shapes_for_many_lengths_and_little_padding():
    sizes = range(20, 400)
    rounded = [round_of(size) for size in sizes]
    assert len(set(rounded)) < 45
    assert max(after / before for before, after in zip(sizes, rounded, strict=True)) < 1.13


def round_of(size):
    return batch_of([(size, 4)]).rounded().source.shape[1]


def test_on_a_cpu_batches_stay_as_they_are_and_no_step_is_recorded():
    model = TinyModel()
    assert ready_for(model) is None
    graphs = StepGraphs(model, make_optimiser(model, CONFIG), CONFIG, SEQUENCES, print)
    assert all(graphs.step([TinyBatches().batch(0, 0)], step=1) is None for _ in range(3))


def test_batches_that_are_not_all_tensors_are_not_recorded():
    assert shapes_of(("words", torch.ones(2))) is None
    assert shapes_of(torch.ones(2)) is None
    assert shapes_of(batch_of([(2, 3)])) == shapes_of(batch_of([(2, 3)], seed=1)) != shapes_of(batch_of([(2, 4)]))


def curve(model, batches, *, recorded, steps=12, config=CONFIG):
    """Loss, norm and weights of a run, with or without graphs; what was said, and the number of graphs."""
    said, optimiser = [], make_optimiser(model.train(), config)
    graphs, numbers = StepGraphs(model, optimiser, config, SEQUENCES, said.append), []
    for step in range(1, steps + 1):
        set_rate(optimiser, 0.01 / step)
        given = [batches[step % len(batches)]]
        outcome = graphs.step(given, step=step) if recorded else None
        outcome = outcome or train_step(model, optimiser, given, config, step=step, say=said.append)
        numbers.append(torch.stack([outcome.cross_entropy, outcome.norm]))
    return torch.stack(numbers).cpu(), [weight.detach().cpu() for weight in trained(model).values()], said, graphs


@on_gpu
@pytest.mark.parametrize("name", MODELS)
def test_recorded_steps_learn_what_steps_as_written_learn_with_the_same_dropout(name):
    batches = [pinned(batch_of([(5 + seed % 2, 3), (9, 11), (7, 6)], seed=seed).rounded()) for seed in range(4)]
    runs = [
        curve(model_of(**MODELS[name], dropout=0.3).cuda(), batches, recorded=recorded) for recorded in (False, True)
    ]
    (plain, weights, _, _), (found, others, said, graphs) = runs
    assert not said
    assert graphs.graphs
    torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-5)
    for one, other in zip(weights, others, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


@on_gpu
def test_a_model_that_makes_the_host_wait_trains_without_graphs_and_says_so_once():
    model = model_of().cuda()
    forward = model.encoder.forward
    model.encoder.forward = lambda source, visible: (float(visible.sum()), forward(source, visible))[1]
    batches = [pinned(batch_of([(5, 3), (9, 11)]))]
    numbers, _, said, graphs = curve(model, batches, recorded=True)
    assert numbers.isfinite().all()
    assert not graphs.graphs
    (message,) = said
    assert message.startswith("training runs without CUDA graphs")


class Words(NamedTuple):
    letters: torch.Tensor
    tags: torch.Tensor | None


def test_any_tuple_of_tensors_is_a_batch_that_can_be_moved():
    letters = torch.arange(3)
    assert each_tensor(Words(letters, None), lambda part: part + 1) == (ANY, None)
    changed = each_tensor((letters, letters), lambda part: part + 1)
    assert type(changed) is tuple
    assert [part.tolist() for part in changed] == [[1, 2, 3]] * 2
    other = [letters]  # a batch of another kind moves itself in the loss of its task
    assert pinned(other) is other
