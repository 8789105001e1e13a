"""Patterns read tokens as a reader reads their text, however a text is cut into tokens."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import jumok
from jumok.data import TokenizerConfig
from jumok.data.terms import occurs
from jumok.data.tokenizer import Tokenizer
from jumok.decoding.patterns import FORBIDDEN, Constraints, PatternMaker
from jumok.errors import ArgumentError
from support.languages import SpeltTokens

TOKENS = SpeltTokens("▁", "a", "b", "▁a", "ab", "▁ab", "ba▁", "파", "일", "▁파일", "파일을", ".", "▁a▁b", "é", "\u0301")
MAKER = PatternMaker(TOKENS)
EOS = 2
anything = st.lists(st.integers(4, TOKENS.size - 1), max_size=7)


def state_after(pattern, ids):
    state = 0
    for id in ids:
        state = pattern.after[state, id]
    return state


@given(anything, st.sampled_from(["a", "ab", "a b", "b.", ".", "파일", "일", "a파", "파 a", "ab ab", "aba"]))
def test_a_term_is_met_where_the_text_contains_it(ids, term):
    pattern = MAKER.term(term)
    is_met = pattern.left[pattern.after[state_after(pattern, ids), EOS]] == 0
    assert is_met == occurs(term, TOKENS.decode(ids)) or "\u0301" in TOKENS.decode(ids)


@given(anything, st.sampled_from(["a", "ab", "aba", "a b", "파", "파일", "파일.", "b a"]))
def test_a_prefix_is_kept_where_the_text_begins_with_it(ids, prefix):
    pattern = MAKER.prefix(prefix, shortest=False)
    text = TOKENS.surface(ids)
    alive = pattern.left[pattern.after[state_after(pattern, ids), EOS]] == 0
    wanted = "▁" + prefix.replace(" ", "▁")
    assert alive == text.startswith(wanted) or "\u0301" in text


def test_a_letter_that_joins_the_last_one_undoes_a_term_and_a_prefix():
    accent, a = TOKENS.spellings.index("\u0301"), TOKENS.spellings.index("▁a")
    term, prefix = MAKER.term("a"), MAKER.prefix("a", shortest=False)
    assert term.left[term.after[state_after(term, [a, accent]), EOS]] == 1
    assert prefix.left[state_after(prefix, [a, accent])] == FORBIDDEN


@given(anything, st.sampled_from(["ab", "a b", "파일", "ab ab"]))
def test_what_is_left_is_the_fewest_tokens_that_meet_a_term(ids, term):
    pattern = MAKER.term(term)
    state = state_after(pattern, ids)
    states = {state}
    for _ in range(pattern.left[state]):
        assert all(pattern.left[each] for each in states)
        states = {int(pattern.after[each, id]) for each in states for id in range(4, TOKENS.size)}
    assert any(pattern.left[each] == 0 for each in states)


def test_the_shortest_writing_of_a_prefix_takes_tokens_that_may_go_beyond_it():
    def first(prefix):
        pattern = MAKER.prefix(prefix, shortest=True)
        return {TOKENS.spellings[id] for id in range(4, TOKENS.size) if pattern.left[pattern.after[0, id]] == 0}

    assert first("a") == {"▁a", "▁ab", "▁a▁b"}
    assert first("ab") == {"▁ab"}


def test_an_empty_prefix_asks_for_nothing_and_letters_without_a_token_are_named():
    assert MAKER.prefix(" ", shortest=False) is None
    for make in (MAKER.term, lambda text: MAKER.prefix(text, shortest=False)):
        with pytest.raises(ArgumentError, match=r"cannot spell the (term|prefix) 'ax'"):
            make("ax")


def test_letters_that_are_written_in_bytes_are_written_as_the_tokenizer_does():
    config = TokenizerConfig(size=300, byte_fallback=True)
    tokenizer = Tokenizer.train(["ab ba", "abba aabb"], config, side="target")
    maker = PatternMaker(tokenizer)
    text = tokenizer.encode("ab 파일 ba")[1:-1]
    term, prefix = maker.term("파일"), maker.prefix("ab 파", shortest=False)
    assert term.left[state_after(term, text)] == 0
    assert term.left[state_after(term, tokenizer.encode("ab 파 ba")[1:-1])] > 0
    assert prefix.left[state_after(prefix, tokenizer.encode("ab 파")[1:-1])] == 0
    assert prefix.left[state_after(prefix, tokenizer.encode("ab 일")[1:-1])] == FORBIDDEN


@pytest.mark.parametrize("form", ["nfc", "nfd", "jamo"])
@pytest.mark.parametrize("kind", ["unigram", "bpe", "char", "word"])
def test_every_kind_of_tokenizer_writes_what_it_spells(kind, form):
    texts = ["파일을 여는 앱", "새 파일 é", "앱을 닫는 파일"]
    config = TokenizerConfig(kind=kind, size=60, target_form=form, source_form=form)
    tokenizer = Tokenizer.train(texts, config, side="target")
    maker = PatternMaker(tokenizer)
    for text in texts:
        ids = tokenizer.encode(text)[1:-1]
        prefix, term = maker.prefix(text, shortest=False), maker.term(text.split()[1])
        assert prefix.left[prefix.after[state_after(prefix, ids), EOS]] == 0
        assert term.left[term.after[state_after(term, ids), EOS]] == 0


def test_a_batch_has_all_its_patterns_in_one_table():
    one, two = MAKER.term("ab"), MAKER.prefix("파", shortest=False)
    constraints = Constraints.of([[one], [], [two, one]], TOKENS.size, torch.device("cpu"))
    states, ids = constraints.start[:, None], [TOKENS.spellings.index(piece) for piece in ("▁파일", "▁ab")]
    assert constraints.most.tolist() == [int(one.left.max()), 0, int(one.left.max())]
    for id in ids:
        left = constraints.left_after(states)[:, 0, id]
        states = constraints.advance(states, torch.full((3, 1), id))
    assert left.tolist() == [0, 0, 0]
    assert constraints.left_after(states)[:, 0, EOS].tolist() == [0, 0, 0]


def test_the_bundled_model_spells_every_token():
    tokenizer = jumok.load().tokenizer
    maker = PatternMaker(tokenizer)
    assert len(maker.spellings) == tokenizer.size
    assert np.flatnonzero(maker.silent).tolist() == [0, 1, 2]
