"""R-Drop: the divergence is torch's, the loss half the paper's, and a resumed run changes no bit."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from jumok.models.encoder_decoder import EncoderDecoder
from jumok.training import TrainingConfig, batch_loss, train
from jumok.training.loss import TargetTokens
from jumok.training.objective import SequenceObjective
from jumok.training.r_drop import symmetric_divergence
from support.runs import Remarks, assert_same_run, interrupt
from support.tiny import TinyBatches, TinyModel, validate


def torch_divergence(first, second):
    p, q = first.log_softmax(-1), second.log_softmax(-1)
    both = F.kl_div(q, p, log_target=True, reduction="sum") + F.kl_div(p, q, log_target=True, reduction="sum")
    return both / 2


@pytest.mark.parametrize(("tokens", "vocabulary"), [(1, 2), (7, 11), (63, 65)])
def test_divergence_and_gradients_are_those_of_torch(tokens, vocabulary):
    torch.manual_seed(0)
    logits = [(3 * torch.randn(tokens, vocabulary, dtype=torch.float64)).requires_grad_() for _ in range(2)]
    counted = torch.arange(tokens) % 3 != 1
    found, want = symmetric_divergence(*logits, counted), torch_divergence(*(part[counted] for part in logits))
    torch.testing.assert_close(found, want)
    for mine, theirs in zip(torch.autograd.grad(found, logits), torch.autograd.grad(want, logits), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_impossible_tokens_of_a_copying_model_give_finite_numbers():
    first = torch.tensor([[0.5, 0.5, 0.0]]).log().requires_grad_()
    second = torch.tensor([[0.9, 0.1, 0.0]]).log().requires_grad_()
    divergence = symmetric_divergence(first, second)
    torch.testing.assert_close(divergence, torch_divergence(first[:, :2], second[:, :2]))
    assert all(part.isfinite().all() for part in torch.autograd.grad(divergence, (first, second)))


def test_half_precision_logits_are_compared_in_single_precision():
    first, second = torch.randn(2, 50, 100).bfloat16()
    torch.testing.assert_close(symmetric_divergence(first, second), torch_divergence(first.float(), second.float()))


@pytest.mark.parametrize("tokens", [TargetTokens.of, TargetTokens.padded])
def test_the_loss_is_half_of_the_papers(tokens):
    model, batch, alpha = TinyModel(dropout=0.4), TinyBatches().batch(0, 0), 3.0
    torch.manual_seed(5)
    found = batch_loss(model, batch, tokens(batch), smoothing=0.1, r_drop=alpha)
    torch.manual_seed(5)
    twice = batch.each(lambda part: torch.cat([part, part]))
    logits = model(twice.source, twice.source_visible, twice.target_in).logits
    first, second = (part[batch.target_visible] for part in logits.chunk(2))
    target = batch.target_out[batch.target_visible]
    nll, plain = (
        sum(F.cross_entropy(side, target, label_smoothing=smoothing, reduction="sum") for side in (first, second))
        for smoothing in (0.1, 0.0)
    )
    divergence = torch_divergence(first, second)
    assert divergence > 0
    torch.testing.assert_close(found.total, (nll + alpha * divergence) / 2)
    torch.testing.assert_close(found.cross_entropy, plain / 2)


def test_without_dropout_both_passes_agree_and_nothing_changes():
    model, batch = TinyModel(dropout=0.0), TinyBatches().batch(0, 0)
    once, twice = (batch_loss(model, batch, TargetTokens.of(batch), smoothing=0.1, r_drop=alpha) for alpha in (0, 4))
    torch.testing.assert_close(twice, once)


class RDrop(SequenceObjective):
    def r_drop(self, config: TrainingConfig) -> float:
        return 4.0


def test_stopping_and_resuming_changes_no_bit(tmp_path):
    config = TrainingConfig(steps=8, warmup=2, validate_every=4, log_every=2, metric="loss")

    def run(name: str, model: EncoderDecoder, **options):
        return train(model, TinyBatches(), config, folder=tmp_path / name, validate=validate, task=RDrop(), **options)

    run("whole", TinyModel(dropout=0.3))
    run("broken", TinyModel(dropout=0.3), report=Remarks({3: interrupt}))
    run("broken", TinyModel(dropout=0.3, seed=5), resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "broken")
    train(TinyModel(dropout=0.3), TinyBatches(), replace(config), folder=tmp_path / "plain", validate=validate)
    with pytest.raises(AssertionError):
        assert_same_run(tmp_path / "whole", tmp_path / "plain")
