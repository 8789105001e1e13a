"""Beam search against exhaustive search over a tiny language whose probabilities are anything at all."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jumok.decoding import BeamTree, DecodingConfig, beam_search
from jumok.decoding.beam import nodes_of, repeats_ngram
from jumok.decoding.config import with_settings
from jumok.errors import ConfigError
from jumok.layers import KeyValueCache
from jumok.models import TransformerDecoderConfig, TransformerEncoderConfig, build_model
from jumok.models.encoder_decoder import Encoding
from support.languages import SPECIALS, AnyLanguage


def sentences(*names: int) -> Encoding:
    summary = torch.tensor(names, dtype=torch.double)[:, None]
    return Encoding(torch.zeros(len(names), 2, 1).double(), torch.ones(len(names), 2, dtype=torch.bool), summary)


def every_output(model: AnyLanguage, name: int, longest: int, penalty: float) -> list[tuple[float, list[int]]]:
    """All outputs of up to `longest` tokens with their scores, best first."""
    words = range(3, model.vocabulary)
    found = []
    for length in range(longest + 1):
        for output in itertools.product(words, repeat=length):
            ids = [SPECIALS.bos, *output, SPECIALS.eos]
            total = sum(float(model.next_token(name, ids[:i])[ids[i]]) for i in range(1, len(ids)))
            found.append((total / (length + 1) ** penalty, list(output)))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.0])
def test_a_wide_beam_finds_what_exhaustive_search_finds(penalty):
    model = AnyLanguage(vocabulary=6)
    config = DecodingConfig(beam=150, max_length=4, length_penalty=penalty)
    for name, hypotheses in enumerate(beam_search(model, sentences(0, 1, 2, 3), SPECIALS, config)):
        best = every_output(model, name, longest=4, penalty=penalty)
        assert [h.ids for h in hypotheses[:20]] == [ids for _, ids in best[:20]]
        assert [h.score for h in hypotheses[:20]] == pytest.approx([score for score, _ in best[:20]])


@pytest.mark.parametrize("name", range(12))
def test_greedy_search_takes_the_likeliest_token_each_time_and_ends_with_the_first_end(name):
    model = AnyLanguage(vocabulary=8)
    ((found,),) = beam_search(model, sentences(name), SPECIALS, DecodingConfig(beam=1, max_length=30))
    ids = [SPECIALS.bos]
    while (token := int(model.next_token(name, ids).argmax())) != SPECIALS.eos and len(ids) <= 30:
        ids.append(token)
    assert found.ids == ids[1:]


@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(1, 6), st.floats(-1, 2))
def test_a_search_for_fewer_hypotheses_finds_the_first_of_those_that_a_full_search_finds(name, beam, n_best, penalty):
    config, model = DecodingConfig(beam=beam, max_length=8, length_penalty=penalty), AnyLanguage(vocabulary=7)
    n_best = min(n_best, beam)
    (all_,) = beam_search(model, sentences(name), SPECIALS, config)
    (few,) = beam_search(model, sentences(name), SPECIALS, config, n_best=n_best)
    assert few == all_[:n_best]


def test_a_search_for_one_hypothesis_takes_fewer_steps_than_one_for_all():
    def steps(**options):
        taken = []
        config = DecodingConfig(beam=4, max_length=40)
        beam_search(AnyLanguage(vocabulary=7), sentences(*range(8)), SPECIALS, config, taken.append, **options)
        return sum(len(survivors.sentences) for survivors in taken)

    assert steps(n_best=1) < steps()


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=6), st.integers(1, 4), st.floats(0, 2))
def test_neighbours_in_the_batch_never_change_an_output(names, beam, penalty):
    model = AnyLanguage(vocabulary=7)
    config = DecodingConfig(beam=beam, max_length=6, length_penalty=penalty)
    together = beam_search(model, sentences(*names), SPECIALS, config)
    assert together == [beam_search(model, sentences(name), SPECIALS, config)[0] for name in names]


@given(st.integers(0, 10_000), st.integers(1, 6), st.floats(0, 2))
def test_hypotheses_are_sorted_and_all_different(name, beam, penalty):
    config = DecodingConfig(beam=beam, max_length=6, length_penalty=penalty)
    (found,) = beam_search(AnyLanguage(vocabulary=7), sentences(name), SPECIALS, config)
    scores = [hypothesis.score for hypothesis in found]
    assert scores == sorted(scores, reverse=True)
    assert len({tuple(hypothesis.ids) for hypothesis in found}) == len(found) >= 1


@given(st.integers(0, 10_000), st.integers(0, 5), st.integers(0, 4))
def test_lengths_stay_between_the_shortest_and_the_longest(name, shortest, more):
    config = DecodingConfig(beam=3, min_length=shortest, max_length=max(1, shortest + more))
    (found,) = beam_search(AnyLanguage(vocabulary=6), sentences(name), SPECIALS, config)
    assert all(shortest <= len(h.ids) <= config.max_length for h in found)


@given(st.integers(0, 10_000), st.integers(1, 3))
def test_no_run_comes_twice_where_that_is_forbidden(name, run):
    config = DecodingConfig(beam=3, max_length=12, no_repeat=run, length_penalty=2.0)
    (found,) = beam_search(AnyLanguage(vocabulary=9), sentences(name), SPECIALS, config)
    for hypothesis in found:
        runs = list(zip(*(hypothesis.ids[i:] for i in range(run)), strict=False))
        assert len(set(runs)) == len(runs)


def test_a_run_is_recognised_wherever_it_stood():
    ids = torch.tensor([[[5, 6, 7, 8, 5, 6]]])
    assert repeats_ngram(ids, 3, 10)[0, 0].nonzero().flatten().tolist() == [7]
    assert repeats_ngram(ids, 1, 10)[0, 0].nonzero().flatten().tolist() == [5, 6, 7, 8]
    assert not repeats_ngram(ids[..., :1], 3, 10).any()


def test_an_empty_batch_gives_no_outputs():
    assert beam_search(AnyLanguage(vocabulary=6), sentences(), SPECIALS, DecodingConfig()) == []


def test_no_output_is_longer_than_the_steps_a_decoder_can_take():
    decoder = AnyLanguage(5)
    decoder.limit = 4
    encoding = Encoding(torch.zeros(1, 3, 1), torch.ones(1, 3, dtype=torch.bool), torch.zeros(1, 1))
    found = beam_search(decoder, encoding, SPECIALS, DecodingConfig(beam=3, min_length=3))
    assert [len(hypothesis.ids) for hypothesis in found[0]] == [3, 3, 3]


@pytest.mark.slow
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=4), st.integers(1, 4), st.floats(0, 2))
def test_a_search_that_is_watched_finds_the_same_and_its_tree_leads_there(names, beam, penalty):
    model = AnyLanguage(vocabulary=7)
    config = DecodingConfig(beam=beam, max_length=6, length_penalty=penalty)
    trees = [BeamTree(SPECIALS.eos) for _ in names]

    def observe(survivors):
        for sentence, nodes in nodes_of(survivors):
            trees[sentence].grow(nodes)

    found = beam_search(model, sentences(*names), SPECIALS, config, observe)
    assert found == beam_search(model, sentences(*names), SPECIALS, config)
    for name, tree, hypotheses in zip(names, trees, found, strict=True):
        ends = {
            tuple(tree.ids(step, place)): tree.score(step, place, penalty)
            for step, nodes in enumerate(tree.steps)
            for place, node in enumerate(nodes)
            if tree.is_end(node)
        }
        assert [ends[tuple(h.ids)] for h in hypotheses] == pytest.approx([h.score for h in hypotheses])
        assert tree.best(penalty)[1] >= hypotheses[0].score - 1e-9
        for step, nodes in enumerate(tree.steps):
            assert sum(not tree.is_end(node) for node in nodes) <= beam
            for place, node in enumerate(nodes):
                ids = [SPECIALS.bos, *tree.ids(step, place), *([SPECIALS.eos] if tree.is_end(node) else [])]
                total = sum(float(model.next_token(name, ids[:at])[ids[at]]) for at in range(1, len(ids)))
                assert node.total == pytest.approx(total)


@pytest.mark.parametrize("steps", [4, 40])
def test_a_search_makes_its_room_at_the_beginning_and_none_while_it_goes_on(monkeypatch, steps):
    allocated, allocate = [], KeyValueCache._allocate
    monkeypatch.setattr(KeyValueCache, "_allocate", lambda *given: allocated.append(given) or allocate(*given))
    sizes = {"width": 8, "heads": 2, "hidden": 8, "layers": 2}
    model = build_model(
        TransformerEncoderConfig(**sizes), TransformerDecoderConfig(**sizes), source_vocabulary=9, target_vocabulary=9
    ).eval()
    source = torch.randint(3, 9, (3, 5))
    config = DecodingConfig(beam=4, min_length=steps, max_length=steps, max_ratio=100.0)
    found = beam_search(
        model.decoder, model.encoder(source, torch.ones_like(source, dtype=torch.bool)), SPECIALS, config
    )
    assert {len(one.ids) for hypotheses in found for one in hypotheses} == {steps}
    assert len(allocated) == 2 * 3  # in each of two layers one for the first step, and two for the beam


def test_a_setting_of_none_stays_as_it_was_saved():
    saved = DecodingConfig(beam=3)
    assert with_settings(saved, 1, beam=None, no_repeat=2) == DecodingConfig(beam=3, no_repeat=2)
    assert with_settings(saved, 4, beam=None).beam == 4  # as many are asked for


def test_settings_of_sampling_that_were_saved_do_not_stand_in_the_way_of_beam_search():
    saved = DecodingConfig(samples=5, temperature=0.7, top_k=9, seed=3, length_penalty=0.5)
    assert with_settings(saved, 1, samples=0, beam=4) == DecodingConfig(beam=4, length_penalty=0.5)
    assert with_settings(saved, 1, temperature=0.5).temperature == 0.5
    with pytest.raises(ConfigError, match=r"decoding.temperature = 0.5 has no effect, because decoding.samples = 0"):
        with_settings(saved, 1, samples=0, temperature=0.5)
