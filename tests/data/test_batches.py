import os
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jumok.data import (
    BOS,
    EOS,
    PAD,
    BatchConfig,
    Batches,
    BatchPlan,
    Dataset,
    collate,
    read_pairs,
    sort_by_length,
    write_dataset,
)

REAL = Path(os.environ.get("JUMOK_DATA", "/nowhere"), "multi30k")
LENGTHS = st.lists(st.tuples(st.integers(1, 150), st.integers(1, 150)), min_size=1, max_size=60)


def natural_lengths(count):
    """Lengths like those of captions: about 15 tokens a side, the sides much alike."""
    draws = np.random.default_rng(0)
    source = np.clip(draws.lognormal(2.65, 0.35, count), 3, 60)
    target = np.clip(source * draws.normal(1.02, 0.15, count), 3, 70)
    return np.stack([source, target], axis=1).astype(np.int64)


class Planned:
    """The sentences of every batch, by their own numbers."""

    def __init__(self, lengths, config, **options):
        counts, self.order = sort_by_length(np.asarray(lengths))
        self.plan = BatchPlan(counts, config, **options)
        self.steps = self.plan.steps

    def batch(self, epoch, step):
        return self.order[self.plan.batch(epoch, step)]

    def epoch(self, epoch):
        return [self.batch(epoch, step) for step in range(self.steps(epoch))]


def padding(lengths, batches):
    padded = sum((lengths[batch].max(axis=0) * len(batch)).sum() for batch in batches)
    return 1 - lengths.sum() / padded


@given(
    lengths=LENGTHS,
    tokens=st.integers(1, 400),
    sentences=st.integers(0, 5),
    shuffle=st.booleans(),
    blur=st.sampled_from([0.0, 0.05, 1.0]),
    epoch=st.integers(0, 3),
)
def test_every_sentence_comes_once_and_no_batch_exceeds_the_budget(lengths, tokens, sentences, shuffle, blur, epoch):
    config = BatchConfig(tokens=tokens, sentences=sentences, shuffle=shuffle, blur=blur)
    batches = Planned(lengths, config).epoch(epoch)
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * np.array(lengths)[batch].max() <= tokens
        assert not sentences or len(batch) <= sentences


def test_a_batch_depends_on_seed_epoch_and_step_alone():
    lengths = natural_lengths(3000)
    config = BatchConfig(tokens=1000)
    plan = Planned(lengths, config, seed=7)
    in_order = {(epoch, step): plan.batch(epoch, step) for epoch in (0, 1, 2) for step in range(10)}
    for epoch, step in sorted(in_order, key=lambda at: (-at[1], at[0])):
        again = Planned(lengths.copy(), config, seed=7).batch(epoch, step)
        assert np.array_equal(again, in_order[epoch, step])
    assert not np.array_equal(np.sort(in_order[0, 0]), np.sort(in_order[1, 0]))
    assert not np.array_equal(Planned(lengths, config, seed=8).batch(0, 0), in_order[0, 0])


def test_batches_hold_other_sentences_together_every_epoch():
    plan = Planned(natural_lengths(3000), BatchConfig(tokens=1000))
    together = [{frozenset(batch.tolist()) for batch in plan.epoch(epoch)} for epoch in (0, 1)]
    assert len(together[0] & together[1]) < 0.1 * len(together[0])


def test_sentences_from_all_over_a_large_corpus_meet_in_a_batch():
    """No batch is of neighbours: over a thousand pairs of one length, a batch of ten spans most of them."""
    plan = Planned(np.full((1000, 2), 10), BatchConfig(tokens=100))
    spans = [np.ptp(batch) for batch in plan.epoch(0)]
    assert np.mean(spans) == pytest.approx(999 * 9 / 11, rel=0.05)  # the mean of ten uniform draws


def test_without_shuffling_batches_go_from_short_to_long_every_epoch():
    lengths = natural_lengths(300)
    plan = Planned(lengths, BatchConfig(tokens=200, shuffle=False))
    longest = [lengths[batch].max() for batch in plan.epoch(0)]
    assert longest == sorted(longest)
    assert all(map(np.array_equal, plan.epoch(0), plan.epoch(5)))


@pytest.mark.parametrize("tokens", [1024, 4096])
def test_under_a_tenth_of_a_batch_is_padding(tokens):
    lengths = natural_lengths(29_000)
    assert padding(lengths, Planned(lengths, BatchConfig(tokens=tokens)).epoch(0)) < 0.10


@pytest.mark.skipif(not REAL.is_dir(), reason="JUMOK_DATA names no folder with multi30k/")
def test_under_a_tenth_of_a_multi30k_batch_is_padding():
    pairs = read_pairs(REAL / "train.en.gz", REAL / "train.de.gz")
    lengths = np.array([[len(side.split()) + 1 for side in pair] for pair in pairs])
    assert padding(lengths, Planned(lengths, BatchConfig()).epoch(0)) < 0.10


def test_a_late_batch_of_a_billion_sentences_is_planned_at_once():
    """Nothing is as long as the corpus: a row of a billion numbers would not fit here."""
    counts, _ = sort_by_length(natural_lengths(10_000))
    large = BatchPlan(counts._replace(counts=100_000 * counts.counts), BatchConfig())
    assert large.steps(3) > 3_000_000
    places = large.batch(3, large.steps(3) - 1)
    assert 0 <= places.min() <= places.max() < 1_000_000_000
    assert len(set(places.tolist())) == len(places) > 1


class Reading(NamedTuple):
    """How many blocks of a store are read, of how many there are; no other way leads into its file."""

    steps: int
    at_start: int
    with_a_batch: int
    sentences: int
    there: int


def reading(path, pairs):
    """Write a store, start on it and build one late batch."""
    lengths = np.random.default_rng(0).integers(2, 9, (pairs, 2))
    write_dataset(path, ((np.ones(source, int), np.ones(target, int)) for source, target in lengths.tolist()), size=2)
    store = Dataset(path)
    batches = Batches(store, BatchConfig(tokens=64))
    steps, at_start = batches.steps(2), int(store._checked.sum())
    batch = batches.batch(2, steps - 1)
    return Reading(steps, at_start, int(store._checked.sum()), len(batch.source), store._checked.size)


def test_starting_and_going_to_any_step_reads_no_more_of_a_larger_corpus(tmp_path):
    small, large = reading(tmp_path / "small", 8000), reading(tmp_path / "large", 80_000)
    assert large.steps > 9 * small.steps
    assert max(small.at_start, large.at_start) <= 2  # the blocks with the numbers of pairs of each length
    for found in (
        small,
        large,
    ):  # of every sentence its number and, in a block or over the edge of two, place and tokens
        assert found.with_a_batch <= found.at_start + 5 * found.sentences
    assert large.with_a_batch < large.there


def test_collate_pads_and_shifts():
    batch = collate([([BOS, 7, 8, EOS], [BOS, 9, EOS]), (np.array([BOS, 6, EOS], np.uint16), [BOS, 5, 4, EOS])])
    assert batch.source.tolist() == [[7, 8, EOS], [6, EOS, PAD]]
    assert batch.source_visible.tolist() == [[True, True, True], [True, True, False]]
    assert batch.target_in.tolist() == [[BOS, 9, PAD], [BOS, 5, 4]]
    assert batch.target_out.tolist() == [[9, EOS, PAD], [5, 4, EOS]]
    assert batch.target_visible.tolist() == [[True, True, False], [True, True, True]]
    assert {tensor.dtype for tensor in batch[:5]} == {torch.int64, torch.bool}
    assert batch.to("meta").source.device.type == "meta"


def test_the_order_of_batches_stays_as_it_is():
    """Published numbers and resumed runs depend on it; whoever changes it increases `batches.ORDER`."""
    orders = {"shuffled": BatchConfig(tokens=1000), "sorted": BatchConfig(tokens=700, shuffle=False)}
    digests = {}
    for name, config in orders.items():
        plan = Planned(natural_lengths(3000), config, seed=7)
        batches = [batch for epoch in (0, 5) for batch in plan.epoch(epoch)]
        digests[name] = zlib.crc32(np.concatenate(batches).tobytes())
    assert digests == {"shuffled": 3257806712, "sorted": 2848835906}
