import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jumok.data import BOS, EOS, PAD, BatchConfig, BatchPlan, collate, read_pairs

REAL = Path(os.environ.get("JUMOK_DATA", "/nowhere"), "multi30k")
LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=60)


def natural_lengths(count):
    """Lengths like those of captions: about 15 tokens a side, the sides much alike."""
    draws = np.random.default_rng(0)
    source = np.clip(draws.lognormal(2.65, 0.35, count), 3, 60)
    target = np.clip(source * draws.normal(1.02, 0.15, count), 3, 70)
    return np.stack([source, target], axis=1).astype(np.int64)


@given(
    lengths=LENGTHS,
    tokens=st.integers(1, 200),
    sentences=st.integers(0, 5),
    shuffle=st.booleans(),
    epoch=st.integers(0, 3),
)
def test_every_sentence_comes_once_and_no_batch_exceeds_the_budget(lengths, tokens, sentences, shuffle, epoch):
    array = np.array(lengths)
    plan = BatchPlan(array, BatchConfig(tokens=tokens, sentences=sentences, shuffle=shuffle))
    batches = [plan.batch(epoch, step) for step in range(plan.steps(epoch))]
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * array[batch].max() <= tokens
        assert not sentences or len(batch) <= sentences


def test_a_batch_depends_on_seed_epoch_and_step_alone():
    lengths = natural_lengths(3000)
    config = BatchConfig(tokens=1000)
    plan = BatchPlan(lengths, config, seed=7)
    in_order = {(epoch, step): plan.batch(epoch, step) for epoch in (0, 1, 2) for step in range(10)}
    for epoch, step in sorted(in_order, key=lambda at: (-at[1], at[0])):
        again = BatchPlan(lengths.copy(), config, seed=7).batch(epoch, step)
        assert np.array_equal(again, in_order[epoch, step])
    assert not np.array_equal(np.sort(in_order[0, 0]), np.sort(in_order[1, 0]))
    assert not np.array_equal(BatchPlan(lengths, config, seed=8).batch(0, 0), in_order[0, 0])


def test_batches_hold_other_sentences_together_every_epoch():
    plan = BatchPlan(natural_lengths(3000), BatchConfig(tokens=1000))
    together = [{frozenset(plan.batch(epoch, step).tolist()) for step in range(plan.steps(epoch))} for epoch in (0, 1)]
    assert len(together[0] & together[1]) < 0.1 * len(together[0])


@pytest.mark.parametrize("tokens", [1024, 4096])
def test_under_a_tenth_of_a_batch_is_padding(tokens):
    lengths = natural_lengths(29_000)
    plan = BatchPlan(lengths, BatchConfig(tokens=tokens))
    batches = [lengths[plan.batch(0, step)] for step in range(plan.steps(0))]
    padded = sum((batch.max(axis=0) * len(batch)).sum() for batch in batches)
    assert 1 - lengths.sum() / padded < 0.10


@pytest.mark.skipif(not REAL.is_dir(), reason="JUMOK_DATA names no folder with multi30k/")
def test_under_a_tenth_of_a_multi30k_batch_is_padding():
    pairs = read_pairs(REAL / "train.en.gz", REAL / "train.de.gz")
    lengths = np.array([[len(side.split()) + 1 for side in pair] for pair in pairs])
    plan = BatchPlan(lengths, BatchConfig())
    batches = [lengths[plan.batch(0, step)] for step in range(plan.steps(0))]
    padded = sum((batch.max(axis=0) * len(batch)).sum() for batch in batches)
    assert 1 - lengths.sum() / padded < 0.10


@given(lengths=LENGTHS, world=st.integers(1, 5))
def test_ranks_have_equal_steps_and_share_all_sentences(lengths, world):
    config = BatchConfig(tokens=80)
    plans = [BatchPlan(np.array(lengths), config, rank=rank, world=world) for rank in range(world)]
    assert len({plan.steps(1) for plan in plans}) == 1
    seen = [plan.batch(1, step) for step in range(plans[0].steps(1)) for plan in plans]
    assert set(np.concatenate(seen)) == set(range(len(lengths)))
    batches = BatchPlan(np.array(lengths), config).steps(1)
    assert len(seen) - batches < world


@pytest.mark.slow
def test_a_batch_of_ten_million_sentences_is_planned_without_their_text():
    lengths, config = natural_lengths(10_000_000), BatchConfig()
    rows = BatchPlan(lengths, config).batch(3, 12_345)
    assert len(set(rows.tolist())) == len(rows) > 1
    assert lengths[rows].max() * len(rows) <= config.tokens


def test_collate_pads_and_shifts():
    batch = collate([([BOS, 7, 8, EOS], [BOS, 9, EOS]), (np.array([BOS, 6, EOS], np.uint16), [BOS, 5, 4, EOS])])
    assert batch.source.tolist() == [[7, 8, EOS], [6, EOS, PAD]]
    assert batch.source_visible.tolist() == [[True, True, True], [True, True, False]]
    assert batch.target_in.tolist() == [[BOS, 9, PAD], [BOS, 5, 4]]
    assert batch.target_out.tolist() == [[9, EOS, PAD], [5, 4, EOS]]
    assert batch.target_visible.tolist() == [[True, True, False], [True, True, True]]
    assert {tensor.dtype for tensor in batch[:5]} == {torch.int64, torch.bool}
    assert batch.to("meta").source.device.type == "meta"
