"""Sentences cut anew: the same words, cut by their keys alone, as often in each way as the sampler draws it."""

from collections import Counter
from random import Random

import numpy as np
import pytest

from jumok.data import Tokenizer, TokenizerConfig, corpus_pairs
from jumok.data.batches import Sentences, splitmix64
from jumok.data.resampling import MANY, Resampler

TEXTS = [text for pair in corpus_pairs("cldr", 300) for text in pair]
KINDS = {"unigram": 20.0, "bpe": 0.3}


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request):
    return Tokenizer.train(TEXTS, TokenizerConfig(kind=request.param, size=300))


def resampler(tokenizer):
    return Resampler(tokenizer, KINDS[tokenizer.kind])


def cut(resampler, rows, keys):
    ids, lengths = resampler(Sentences.of(rows), keys)
    return np.split(ids, lengths.cumsum()[:-1])


def keys(count, seed=0):
    return splitmix64(np.arange(seed, seed + count).astype(np.uint64))


def test_what_is_cut_anew_says_the_same(tokenizer):
    texts = [*TEXTS[:60], "", "알 수 없는 글자 😀😀 x", "a"]
    rows = [np.array(tokenizer.encode(text)) for text in texts]
    found = cut(resampler(tokenizer), rows, keys(len(rows)))
    assert [tokenizer.decode(row.tolist()) for row in found] == [tokenizer.decode(row.tolist()) for row in rows]
    assert all((row[0], row[-1]) == (1, 2) for row in found)
    assert sum(map(len, found)) > sum(map(len, rows))


def test_bytes_of_letters_without_a_piece_stay_together():
    tokenizer = Tokenizer.train(TEXTS, TokenizerConfig(size=600, byte_fallback=True))
    texts = ["漢字 and 😀", *TEXTS[:5]]
    rows = [np.array(tokenizer.encode(text)) for text in texts]
    found = cut(Resampler(tokenizer, 5.0), rows, keys(len(texts)))
    assert [tokenizer.decode(row.tolist()) for row in found] == texts


def test_a_sentence_depends_on_its_key_alone(tokenizer):
    rows = [np.array(tokenizer.encode(text)) for text in TEXTS[:40]]
    together, drawn = cut(resampler(tokenizer), rows, keys(40)), keys(40)
    fresh = resampler(tokenizer)
    for at in (31, 7, 0):
        assert np.array_equal(cut(fresh, rows[at : at + 1], drawn[at : at + 1])[0], together[at])
    others = cut(resampler(tokenizer), rows, keys(40, seed=1000))
    assert any(not np.array_equal(one, other) for one, other in zip(together, others, strict=True))


def test_every_cut_comes_about_as_often_as_it_is_drawn(tokenizer):
    times, draws, amount = 20_000, Random(0), KINDS[tokenizer.kind]
    words = [*[text for text in TEXTS if " " not in text and len(text) > 4][:1], "banana", "Netherlands", "ana漢字"]
    for word in words:
        row = np.array(tokenizer.encode(word))
        found = Counter(tuple(row.tolist()) for row in cut(resampler(tokenizer), [row] * times, keys(times)))
        surface = tokenizer.surface(row[1:-1].tolist())
        exact = Counter((1, *tokenizer.cut(surface, amount, draws), 2) for _ in range(times))
        assert len(exact) > 1
        for one in found | exact:
            share = (found[one] + exact[one]) / (2 * times)
            assert abs(found[one] - exact[one]) < 5 * (2 * times * share * (1 - share)) ** 0.5 + 1


def test_words_of_one_text_are_cut_independently(tokenizer):
    row, times = np.array(tokenizer.encode("Netherlands Netherlands")), 4000
    rows = cut(resampler(tokenizer), [row] * times, keys(times))
    halves = [tuple(np.split(row[1:-1], tokenizer.word_numbers(row[1:-1]).nonzero()[0][:1])) for row in rows]
    first, second = (Counter(tuple(half.tolist()) for half in side) for side in zip(*halves, strict=True))
    (usual, often), _ = first.most_common(1)[0], second.most_common(1)[0]
    both = sum(tuple(one.tolist()) == tuple(other.tolist()) == usual for one, other in halves)
    expected = often / times * second[usual] / times
    assert abs(both / times - expected) < 5 * (expected / times) ** 0.5


def test_merges_that_are_never_dropped_give_the_usual_tokens():
    tokenizer = Tokenizer.train(TEXTS, TokenizerConfig(kind="bpe", size=300))
    sure = Resampler(tokenizer, 1e-12)
    sure._cuts._merges[:] = MANY  # so that every word is merged from its letters
    rows = [np.array(tokenizer.encode(text)) for text in TEXTS]
    assert [row.tolist() for row in cut(sure, rows, keys(len(rows)))] == [row.tolist() for row in rows]


def test_pieces_that_are_given_are_dropped_as_the_sampler_drops_them():
    tokenizer = Tokenizer.train(TEXTS, TokenizerConfig(kind="bpe", size=300, unsplit=("therl",)))
    row, times, draws = np.array(tokenizer.encode("Netherlands")), 5000, Random(0)
    found = Counter(tuple(row.tolist()) for row in cut(Resampler(tokenizer, 0.3), [row] * times, keys(times)))
    exact = Counter(tuple(tokenizer.sample("Netherlands", 0.3, draws)) for _ in range(times))
    for one, often in exact.most_common(5):
        assert abs(found[one] - often) < 5 * (2 * often) ** 0.5


def test_what_is_kept_about_words_stays_within_its_limit(tokenizer):
    rows = [np.array(tokenizer.encode(text)) for text in TEXTS[:200]]
    small, large = Resampler(tokenizer, KINDS[tokenizer.kind], limit=5000), resampler(tokenizer)
    most = 0
    for start in range(0, 200, 10):
        part = slice(start, start + 10)
        drawn = keys(10, seed=start)
        assert all(map(np.array_equal, cut(small, rows[part], drawn), cut(large, rows[part], drawn)))
        most = max(most, small._cuts.size)
    assert small._cuts.size < large._cuts.size
    assert most < 3 * 5000


def test_nothing_to_cut(tokenizer):
    assert not len(resampler(tokenizer)(Sentences.of([]), keys(0)).ids)
    (empty,) = cut(resampler(tokenizer), [np.array([1, 2])], keys(1))
    assert empty.tolist() == [1, 2]
