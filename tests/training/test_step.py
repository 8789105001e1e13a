from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from jumok.data import Batch
from jumok.errors import TrainingError
from jumok.layers import LearnedPositions, TokenEmbedding
from jumok.training import TrainingConfig
from jumok.training.objective import SEQUENCES
from jumok.training.optimiser import load_moments, make_optimiser, moments, set_rate, trained
from jumok.training.step import gradients, train_step
from support.tiny import TinyBatches, TinyModel

CONFIG = TrainingConfig(clip=0.0)


def together(batches: list[Batch]) -> Batch:
    """Batches one below the other, padded to the longest."""
    parts = []
    for field in zip(*(batch[:5] for batch in batches), strict=True):
        longest = max(part.shape[1] for part in field)
        parts.append(torch.cat([F.pad(part, (0, longest - part.shape[1])) for part in field]))
    return Batch(*parts)


def gradient_of(model, batches, config=CONFIG, step=1):
    optimiser = make_optimiser(model, config)
    found = gradients(model, optimiser, batches, config, step)
    return {name: weight.grad.clone() for name, weight in trained(model).items()}, found


def some_batches(count=3):
    return [TinyBatches(sentences=5 + number).batch(0, number) for number in range(count)]


def assert_close(one, other):
    for name in one:
        torch.testing.assert_close(one[name], other[name], msg=name)


@pytest.mark.parametrize("penalised", [False, True])
def test_accumulated_gradients_are_those_of_one_big_batch(penalised):
    model, batches = TinyModel(dropout=0.0, penalised=penalised), some_batches()
    found, sums = gradient_of(model, batches)
    whole, one = gradient_of(model, [together(batches)])
    assert_close(found, whole)
    assert sums.tokens == one.tokens == sum(int(batch.target_visible.sum()) for batch in batches)
    torch.testing.assert_close(sums.cross_entropy, one.cross_entropy)


def test_halves_have_all_sentences_and_no_padding_they_do_not_need():
    batch = TinyBatches(sentences=7).batch(0, 0)
    first, second = SEQUENCES.halves(batch)
    assert (len(first.source), len(second.source)) == (3, 4)
    for half in (first, second):
        assert half.source_visible.any(0).all()
        assert half.target_visible.any(0).all()
    assert torch.equal(SEQUENCES.cut(batch, 3, 7).source, second.source)
    assert sum(int(half.target_visible.sum()) for half in (first, second)) == int(batch.target_visible.sum())


class SmallMemory(TinyModel):
    """Runs out of memory with more than `most` sentences, in the forward or the backward pass."""

    def __init__(self, most, *, backward=False, error=torch.OutOfMemoryError):
        super().__init__(dropout=0.0)
        forward = self.encoder.forward

        def limited(source, visible):
            states = forward(source, visible)
            if len(source) > most:
                if not backward:
                    raise error("DefaultCPUAllocator: can't allocate memory")
                # The decoder's gradients are in place by the time this fails.
                states.states.register_hook(lambda gradient: (_ for _ in ()).throw(error("can't allocate memory")))
            return states

        self.encoder.forward = limited


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("error", [torch.OutOfMemoryError, RuntimeError])
@pytest.mark.parametrize("most", [1, 3])
def test_a_batch_that_does_not_fit_in_memory_is_split_and_gives_the_same_gradients(backward, error, most):
    batches, said = some_batches(), []
    want, _ = gradient_of(TinyModel(dropout=0.0), batches)
    model = SmallMemory(most, backward=backward, error=error)
    optimiser = make_optimiser(model, CONFIG)
    set_rate(optimiser, 0.0)
    outcome = train_step(model, optimiser, batches, CONFIG, step=4, say=said.append)
    assert_close({name: weight.grad for name, weight in trained(model).items()}, want)
    assert outcome.splits == len(said) > 2
    assert said[0].startswith("step 4: out of memory with a batch of 5 sentences, ")
    assert said[0].endswith("tokens long; splitting it in two")


def test_a_single_sentence_that_does_not_fit_is_an_error_that_says_what_to_do():
    model = SmallMemory(0)
    with pytest.raises(TrainingError, match=r"out of memory with a single sentence .* train a smaller model"):
        train_step(model, make_optimiser(model, CONFIG), some_batches(), CONFIG, step=1, say=lambda message: None)


def test_other_errors_are_not_taken_for_want_of_memory():
    model = SmallMemory(0, error=lambda message: RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes do not match"):
        train_step(model, make_optimiser(model, CONFIG), some_batches(), CONFIG, step=1, say=lambda message: None)


def test_the_gradient_is_clipped_to_its_norm_over_all_weights():
    batches, config = some_batches(), replace(CONFIG, clip=0.01)
    model = TinyModel(dropout=0.0)
    want, _ = gradient_of(model, batches)
    norm = torch.sqrt(sum(gradient.square().sum() for gradient in want.values()))
    outcome = train_step(model, make_optimiser(model, config), batches, config, step=1, say=print)
    torch.testing.assert_close(outcome.norm, norm)
    found = {name: weight.grad for name, weight in trained(model).items()}
    assert_close(found, {name: gradient * (0.01 / norm) for name, gradient in want.items()})


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_a_step_without_a_finite_gradient_changes_nothing_and_is_counted(bad, clip):
    config = replace(CONFIG, clip=clip)
    model, batches = TinyModel(), some_batches()
    optimiser = make_optimiser(model, config)
    set_rate(optimiser, 0.01)
    train_step(model, optimiser, batches, config, step=1, say=print)
    before = {name: weight.clone() for name, weight in (trained(model) | moments(model, optimiser)).items()}
    hook = model.encoder.table.weight.register_hook(lambda gradient: gradient + bad)
    assert train_step(model, optimiser, batches, config, step=2, say=print).skipped == 1
    for name, tensor in (trained(model) | moments(model, optimiser)).items():
        assert torch.equal(tensor, before[name]), name
    hook.remove()
    assert train_step(model, optimiser, batches, config, step=2, say=print).skipped == 0
    assert not torch.equal(model.encoder.table.weight, before["encoder.table.weight"])


def test_weight_decay_reaches_matrices_but_not_biases_norms_and_embeddings():
    model = TinyModel()
    decayed, spared = make_optimiser(model, CONFIG).param_groups
    names = {id(weight): name for name, weight in trained(model).items()}
    assert {names[id(weight)] for weight in decayed["params"]} == {
        "encoder.mix.weight_ih_l0",
        "encoder.mix.weight_hh_l0",
        "decoder.hidden_layer.weight",
    }
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.01, 0.0)
    assert len(decayed["params"]) + len(spared["params"]) == len(names)


def test_tables_of_our_own_layers_are_embeddings_too():
    model = torch.nn.Sequential(TokenEmbedding(vocabulary=5, width=4), LearnedPositions(width=4, longest=3))
    (spared,) = make_optimiser(model, CONFIG).param_groups
    assert spared["weight_decay"] == 0.0
    assert len(spared["params"]) == 2


def test_moments_put_back_go_on_as_if_nothing_had_happened():
    model, batches = TinyModel(dropout=0.0), some_batches()
    optimiser = make_optimiser(model, CONFIG)
    set_rate(optimiser, 0.01)
    train_step(model, optimiser, batches, CONFIG, step=1, say=print)
    twin = TinyModel(dropout=0.0)
    twin.load_state_dict(model.state_dict())
    other = make_optimiser(twin, CONFIG)
    set_rate(other, 0.01)
    load_moments(twin, other, {name: tensor.clone() for name, tensor in moments(model, optimiser).items()})
    for one, its in ((model, optimiser), (twin, other)):
        train_step(one, its, batches, CONFIG, step=2, say=print)
    assert all(torch.equal(weight, trained(twin)[name]) for name, weight in trained(model).items())


def test_frozen_weights_stay():
    model = TinyModel()
    model.encoder.table.weight.requires_grad_(False)
    before = model.encoder.table.weight.clone()
    optimiser = make_optimiser(model, CONFIG)
    train_step(model, optimiser, some_batches(), CONFIG, step=1, say=print)
    assert torch.equal(model.encoder.table.weight, before)
    assert "step/encoder.table.weight" not in moments(model, optimiser)
