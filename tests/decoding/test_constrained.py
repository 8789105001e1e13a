"""Search under constraints against exhaustive search, over a tiny language whose probabilities are anything at all."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jumok.data.terms import occurs
from jumok.decoding import DecodingConfig, beam_search
from jumok.decoding.constrained import constrained_search
from jumok.decoding.patterns import Constraints, PatternMaker
from jumok.decoding.sampling import sample_outputs
from jumok.models.encoder_decoder import Encoding
from support.languages import SPECIALS, AnyLanguage, SpeltTokens

TOKENS = SpeltTokens("▁", "a", "▁ab", "b")
MAKER = PatternMaker(TOKENS)
MODEL = AnyLanguage(TOKENS.size)
TERMS = ["a", "ab", "b", "a b", "ba", "aab"]


def sentences(*names):
    summary = torch.tensor(names, dtype=torch.double)[:, None]
    return Encoding(torch.zeros(len(names), 2, 1).double(), torch.ones(len(names), 2, dtype=torch.bool), summary)


def search(names, wanted, **settings):
    """The outputs for sentences, each with its prefix and terms."""
    config = DecodingConfig(**settings)
    shortest = bool(config.samples) or config.beam == 1
    patterns = [
        [*filter(None, [MAKER.prefix(prefix, shortest=shortest)]), *map(MAKER.term, terms)] for prefix, terms in wanted
    ]
    constraints = Constraints.of(patterns, TOKENS.size, torch.device("cpu"))
    if config.samples:
        lines = [(name, 0) for name in names]
        return sample_outputs(MODEL, sentences(*names), SPECIALS, config, lines, constraints=constraints)
    return constrained_search(MODEL, sentences(*names), SPECIALS, config, constraints)


def every_output(name, longest, prefix, terms):
    """All outputs that keep to the constraints, with their scores, best first."""
    outputs = []
    for length in range(longest + 1):
        for ids in itertools.product(range(3, TOKENS.size), repeat=length):
            text = TOKENS.surface(list(ids)).replace("▁", " ").replace("⁇", "x")  # as a letter of a word
            if text.startswith(prefix and " " + prefix) and all(occurs(term, text) for term in terms):
                path = [SPECIALS.bos, *ids, SPECIALS.eos]
                total = sum(float(MODEL.next_token(name, path[:i])[path[i]]) for i in range(1, len(path)))
                outputs.append((total / (length + 1), list(ids)))
    return sorted(outputs, reverse=True)


@pytest.mark.parametrize(
    ("prefix", "terms"),
    [("", ["ab"]), ("", ["a b"]), ("", ["ab", "ba"]), ("a", []), ("ab", ["b"]), ("", ["aa", "ab"])],
)
def test_a_wide_beam_finds_what_exhaustive_search_finds(prefix, terms):
    for name, hypotheses in enumerate(search(range(3), [(prefix, terms)] * 3, beam=1000, max_length=4)):
        best = every_output(name, 4, prefix, terms)[:10]
        assert [h.ids for h in hypotheses[:10]] == [ids for _, ids in best]
        assert [h.score for h in hypotheses[:10]] == pytest.approx([score for score, _ in best])


@pytest.mark.slow
@given(st.integers(0, 10_000), st.lists(st.sampled_from(TERMS), min_size=1, max_size=4, unique=True), st.integers(1, 6))
def test_every_output_contains_its_terms(name, terms, beam):
    (hypotheses,) = search([name], [("", terms)], beam=beam, max_length=24)
    assert hypotheses
    for hypothesis in hypotheses:
        assert [term for term in terms if not occurs(term, TOKENS.decode(hypothesis.ids).replace("⁇", "x"))] == []


@given(st.integers(0, 10_000), st.sampled_from(["a", "ab", "aba", "ab b", "a a"]), st.integers(1, 5), st.integers(0, 3))
def test_every_output_begins_with_its_prefix(name, prefix, beam, samples):
    (hypotheses,) = search([name], [(prefix, [])], beam=beam, max_length=12, samples=samples)
    assert hypotheses
    assert all(TOKENS.decode(hypothesis.ids).startswith(prefix) for hypothesis in hypotheses)


@pytest.mark.slow
@given(st.integers(0, 10_000), st.integers(1, 5))
def test_a_sentence_without_constraints_finds_what_beam_search_finds(name, beam):
    config = DecodingConfig(beam=beam, max_length=10)
    (plain,) = beam_search(MODEL, sentences(name), SPECIALS, config)
    assert search([name, 1], [("", []), ("a", ["ab"])], beam=beam, max_length=10)[0] == plain


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 99), st.sampled_from(TERMS)), min_size=1, max_size=5), st.integers(1, 4))
def test_neighbours_in_the_batch_never_change_an_output(lines, beam):
    names, wanted = [name for name, _ in lines], [("", [term]) for _, term in lines]
    together = search(names, wanted, beam=beam, max_length=10)
    assert together == [
        search([name], [each], beam=beam, max_length=10)[0] for name, each in zip(names, wanted, strict=True)
    ]


def test_an_output_that_is_too_short_for_all_terms_has_as_much_of_them_as_it_can():
    patterns = [MAKER.term("ab"), MAKER.term("aab ba b")]

    def left(ids):
        return sum(pattern.left[state_after(pattern, ids)] for pattern in patterns)

    ((best, *_),) = search([0], [("", ["ab", "aab ba b"])], beam=4, max_length=2)
    assert left(best.ids) == min(map(left, itertools.product(range(4, TOKENS.size), repeat=2)))


def state_after(pattern, ids):
    state = 0
    for id in ids:
        state = pattern.after[state, id]
    return state


def test_an_observer_sees_every_step_and_a_check_stops_the_search():
    steps, constraints = [], Constraints.of([[MAKER.term("ab")]], TOKENS.size, torch.device("cpu"))
    options = (MODEL, sentences(4), SPECIALS, DecodingConfig(beam=3, max_length=8), constraints)
    (found,) = constrained_search(*options, steps.append)
    assert len(steps) > len(found[0].ids)
    for step in steps:
        growing = step.totals[0, : step.totals.shape[1] - 3]
        assert growing.tolist() == sorted(growing.tolist(), reverse=True)

    def stop():
        raise KeyError

    with pytest.raises(KeyError):
        constrained_search(*options, check=stop)
