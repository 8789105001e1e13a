"""Attention between the words of given pairs: that of one pair at a time, whatever the batch, tokens or padding."""

import numpy as np
import pytest
import torch

from jumok.analysis.alignment.aligner import Aligner, extract
from jumok.analysis.alignment.word_attention import AlignmentHead, alignment_heads, word_weights
from jumok.analysis.maps.model_map import map_of_translation
from jumok.data import Pair
from jumok.models import HardAttentionConfig, RnnDecoderConfig, RnnEncoderConfig, build_model
from jumok.tasks import TRANSLATION

pytestmark = pytest.mark.slow  # trains the models of conftest.py

PAIRS = [Pair("12 345", "543 21"), Pair("7", "7"), Pair("", "1"), Pair("1 2 3 45", "54 3 2 1"), Pair("12  3", " 3 21")]


@pytest.fixture(params=["reverser", "transformer"])
def trained(request):
    return TRANSLATION.load(request.getfixturevalue(request.param), device="cpu").trained


def test_looks_are_every_head_the_mean_of_heads_and_both_shifts(transformer, reverser):
    looks = alignment_heads(TRANSLATION.load(transformer, device="cpu").trained.model)
    assert len(looks) == 2 * (2 + 1) * 2 == len(set(looks))
    assert alignment_heads(TRANSLATION.load(reverser, device="cpu").trained.model) == [
        AlignmentHead(0, 0, True),
        AlignmentHead(0, 0, False),
    ]


def test_unshifted_weights_are_those_of_the_attention_map_without_its_end(trained):
    head = AlignmentHead(0, 0, shift=False)
    for number, weights in word_weights(trained.model, trained.tokenizers, PAIRS, [head]):
        source, target = PAIRS[number]
        ids = trained.tokenizers.target.encode(target)[1:-1]
        shown = map_of_translation(trained.model, trained.tokenizers, source, ids).weights[0, 0, :-1, :-1].numpy()
        assert np.allclose(weights[0], shown / shown.sum(-1, keepdims=True), atol=1e-5)


def test_shifted_weights_are_those_of_the_row_that_reads_a_word(trained):
    pair = Pair("1 2 3", "3 2 1")
    tokenizers = trained.tokenizers
    ids = tokenizers.target.encode(pair.target)[1:-1]
    whole = map_of_translation(trained.model, tokenizers, pair.source, ids, words=False).weights[0, 0]
    rows = [[at for at, word in enumerate(tokenizers.target.word_numbers(ids)) if word == n] for n in range(3)]
    columns = tokenizers.source.word_numbers(tokenizers.source.encode(pair.source))[1:]
    wanted = torch.stack([whole[[at + 1 for at in row]].mean(0) for row in rows])
    wanted = torch.stack([wanted[:, columns == word].sum(-1) for word in range(3)], -1)
    ((_, found),) = word_weights(trained.model, tokenizers, [pair], [AlignmentHead(0, 0, shift=True)])
    assert np.allclose(found[0], (wanted / wanted.sum(-1, keepdim=True)).numpy(), atol=1e-5)


def test_a_pair_is_aligned_alike_alone_and_among_others(trained):
    heads = alignment_heads(trained.model)
    together = dict(word_weights(trained.model, trained.tokenizers, PAIRS, heads))
    assert together.keys() == {0, 1, 3, 4}
    for number, weights in together.items():
        ((_, alone),) = word_weights(trained.model, trained.tokenizers, [PAIRS[number]], heads)
        assert alone.shape == (len(heads), len(PAIRS[number].target.split()), len(PAIRS[number].source.split()))
        assert np.allclose(weights, alone, atol=1e-5)
        assert np.allclose(weights.sum(-1), 1, atol=1e-4)


def test_the_reverser_looks_from_the_other_end(reverser):
    trained = TRANSLATION.load(reverser, device="cpu").trained
    pairs = [Pair("1 2", "2 1"), Pair("", ""), Pair("3 4", "4 3")]
    found = Aligner(trained.model, trained.tokenizers, AlignmentHead(0, 0, shift=False)).align(pairs)
    assert found[1] == set()
    assert all(len({target for _, target in links}) == 2 for links in (found[0], found[2]))


def test_links_are_taken_from_weights_in_three_ways():
    weights = np.array([[0.7, 0.3, 0.0], [0.6, 0.1, 0.3], [0.0, 0.0, 0.0]])
    assert extract(weights) == {(0, 0), (0, 1)}
    assert extract(weights, "mutual") == {(0, 0)}
    assert extract(weights, "threshold", 0.3) == {(0, 0), (1, 0), (0, 1), (2, 1)}
    assert extract(np.zeros((0, 0))) == set()


def test_attention_that_stands_where_a_token_was_written_is_not_shifted():
    sizes = {"source_vocabulary": 7, "target_vocabulary": 9}
    encoder, hard = RnnEncoderConfig(width=8, embedding=8), HardAttentionConfig(width=8, embedding=8)
    assert {head.shift for head in alignment_heads(build_model(encoder, hard, **sizes))} == {False}
    soft = RnnDecoderConfig(width=8, embedding=8)
    assert {head.shift for head in alignment_heads(build_model(encoder, soft, **sizes))} == {True, False}
