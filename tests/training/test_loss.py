import math

import pytest
import torch
import torch.nn.functional as F

from jumok.data import Batch
from jumok.models.encoder_decoder import Copied, Decoder, EncoderDecoder, Hidden
from jumok.training import batch_loss, held_out_loss, perplexity, smoothed_cross_entropy
from jumok.training.loss import TargetTokens
from support.tiny import TinyBatches, TinyEncoder, TinyModel


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize(("tokens", "vocabulary"), [(1, 2), (7, 11), (63, 65)])
def test_loss_and_gradient_are_those_of_torch(smoothing, gaps, tokens, vocabulary):
    torch.manual_seed(0)
    logits = (5 * torch.randn(tokens, vocabulary, dtype=torch.float64)).requires_grad_()
    target = torch.randint(vocabulary, (tokens,))
    want = F.cross_entropy(logits, target, label_smoothing=smoothing, reduction="sum")
    found = smoothed_cross_entropy(logits, target, smoothing=smoothing, gaps=gaps)
    torch.testing.assert_close(found.total, want)
    torch.testing.assert_close(found.cross_entropy, F.cross_entropy(logits, target, reduction="sum").detach())
    (gradient,) = torch.autograd.grad(found.total, logits)
    torch.testing.assert_close(gradient, torch.autograd.grad(want, logits)[0])


def test_loss_is_the_formula_written_out():
    logits, target, smoothing = torch.tensor([[1.0, 2.0, 4.0], [0.0, 0.0, 1.0]]), torch.tensor([2, 0]), 0.3
    want = 0.0
    for row, right in zip(logits.tolist(), target.tolist(), strict=True):
        log_probs = [score - math.log(sum(math.exp(other) for other in row)) for score in row]
        want -= 0.7 * log_probs[right] + 0.3 * sum(log_probs) / 3
    assert float(smoothed_cross_entropy(logits, target, smoothing=smoothing).total) == pytest.approx(want, rel=1e-6)


def test_impossible_tokens_of_a_copying_model_take_no_part_in_smoothing():
    possible = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]).log()
    with_gap = torch.cat([possible, torch.full((2, 2), -torch.inf)], 1).requires_grad_()
    target = torch.tensor([0, 2])
    found = smoothed_cross_entropy(with_gap, target, smoothing=0.1, gaps=True)
    want = F.cross_entropy(possible, target, label_smoothing=0.1, reduction="sum")
    torch.testing.assert_close(found.total.detach(), want)
    (gradient,) = torch.autograd.grad(found.total, with_gap)
    assert gradient.isfinite().all()
    assert (gradient[:, 3:] == 0).all()
    assert smoothed_cross_entropy(with_gap, target).total.isfinite()


def test_half_precision_logits_are_summed_in_single_precision():
    logits, target = torch.randn(50, 100).bfloat16(), torch.randint(100, (50,))
    found = smoothed_cross_entropy(logits, target, smoothing=0.1).total
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, F.cross_entropy(logits.float(), target, label_smoothing=0.1, reduction="sum"))


def loss_of(model: EncoderDecoder, batch: Batch, **options):
    return batch_loss(model, batch, TargetTokens.of(batch), **options)


def test_padding_changes_nothing():
    model, batch = TinyModel(dropout=0.0), TinyBatches().batch(0, 0)
    wider = batch.each(lambda part: F.pad(part, (0, 3)))
    scrambled = wider._replace(target_out=wider.target_out.masked_fill(~wider.target_visible, 8))
    for other in (wider, scrambled):
        torch.testing.assert_close(loss_of(model, other).total, loss_of(model, batch).total)


def test_a_models_own_penalty_is_added_at_visible_places_but_is_not_in_the_cross_entropy():
    batch = TinyBatches().batch(0, 0)
    plain, penalised = TinyModel(dropout=0.0), TinyModel(dropout=0.0, penalised=True)
    hidden = penalised.decoder.hidden(penalised.encoder(batch.source, batch.source_visible), batch.target_in)
    extra = hidden.penalty[batch.target_visible].sum()
    found, without = loss_of(penalised, batch), loss_of(plain, batch)
    torch.testing.assert_close(found.total, without.total + extra)
    torch.testing.assert_close(found.cross_entropy, without.cross_entropy)


def test_what_a_decoder_copies_is_cut_to_the_visible_places():
    batch, seen = TinyBatches().batch(0, 0), []

    class Copier(Decoder):
        def hidden(self, encoding, target_in):
            states = F.one_hot(target_in, 9).float()
            weights = target_in.float()[..., None]
            return Hidden(states, copied=Copied(target_in[..., None], weights, weights[..., 0]))

        def logits(self, hidden):
            states = hidden.states
            seen.append((states, hidden.copied))
            return states.masked_fill(states == 0, -torch.inf).index_fill(1, torch.tensor([2, 4, 5, 6, 7, 8]), 0.0)

    found = loss_of(EncoderDecoder(TinyEncoder(0.0), Copier()), batch, smoothing=0.1)
    states, copied = seen[0]
    assert torch.equal(copied.weights[:, 0], batch.target_in[batch.target_visible].float())
    assert len(states) == batch.target_visible.sum()
    assert found.total.isfinite()


def test_held_out_loss_is_the_mean_over_tokens_not_over_batches():
    model, batches = TinyModel().eval(), TinyBatches(steps=3)
    found = [batches.batch(0, step) for step in range(3)]
    cross_entropy = sum(float(loss_of(model, batch).cross_entropy) for batch in found)
    tokens = sum(int(batch.target_visible.sum()) for batch in found)
    scores = held_out_loss(model, batches)
    assert scores["loss"] == pytest.approx(cross_entropy / tokens)
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]))


def test_perplexity_of_a_hopeless_model_is_infinite_not_an_error():
    assert perplexity(1e6) == math.inf
    assert math.isnan(perplexity(math.nan))
