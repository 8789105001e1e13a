"""Sentences cut anew: the same words, cut by their keys alone, as often in each way as the sampler draws it."""

from collections import Counter
from random import Random

import numpy as np
import pytest

from jumok.data import Tokenizer, TokenizerConfig, corpus_pairs
from jumok.data.loader import CUTS, Resampler, splitmix64

TEXTS = [text for pair in corpus_pairs("cldr", 300) for text in pair]
KINDS = {"unigram": 20.0, "bpe": 0.3}


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request):
    return Tokenizer.train(TEXTS, TokenizerConfig(kind=request.param, size=300))


def resampler(tokenizer):
    return Resampler(tokenizer, KINDS[tokenizer.kind])


def keys(count, seed=0):
    return splitmix64(np.arange(seed, seed + count).astype(np.uint64))


def test_what_is_cut_anew_says_the_same(tokenizer):
    texts = [*TEXTS[:60], "", "알 수 없는 글자 😀😀 x", "a"]
    rows = [np.array(tokenizer.encode(text)) for text in texts]
    found = resampler(tokenizer)(rows, keys(len(rows)))
    assert [tokenizer.decode(row.tolist()) for row in found] == [tokenizer.decode(row.tolist()) for row in rows]
    assert all((row[0], row[-1]) == (1, 2) for row in found)
    assert sum(map(len, found)) > sum(map(len, rows))


def test_bytes_of_letters_without_a_piece_stay_together():
    tokenizer = Tokenizer.train(TEXTS, TokenizerConfig(size=600, byte_fallback=True))
    texts = ["漢字 and 😀", *TEXTS[:5]]
    found = Resampler(tokenizer, 5.0)([np.array(tokenizer.encode(text)) for text in texts], keys(len(texts)))
    assert [tokenizer.decode(row.tolist()) for row in found] == texts


def test_a_sentence_depends_on_its_key_alone(tokenizer):
    rows = [np.array(tokenizer.encode(text)) for text in TEXTS[:40]]
    together, drawn = resampler(tokenizer)(rows, keys(40)), keys(40)
    fresh = resampler(tokenizer)
    for at in (31, 7, 0):
        assert np.array_equal(fresh(rows[at : at + 1], drawn[at : at + 1])[0], together[at])
    others = resampler(tokenizer)(rows, keys(40, seed=1000))
    assert any(not np.array_equal(one, other) for one, other in zip(together, others, strict=True))


def test_every_cut_comes_about_as_often_as_it_is_drawn(tokenizer):
    words = [text for text in TEXTS if " " not in text and len(text) > 4][:1] * 4000
    row = np.array(tokenizer.encode(words[0]))
    found = Counter(tuple(row) for row in resampler(tokenizer)([row] * len(words), keys(len(words))))
    assert 1 < len(found) <= CUTS
    draws = Random(0)
    exact = Counter(tuple(tokenizer.sample(words[0], KINDS[tokenizer.kind], draws)) for _ in words)
    commonest, times = exact.most_common(1)[0]
    spread = (times / 4000 * (1 - times / 4000) / CUTS) ** 0.5  # of a mean over so many draws
    assert abs(found[commonest] - times) / 4000 < 4 * spread
