import pytest

from jumok.analysis.scores.length_bands import join_texts
from jumok.data import DataConfig, Pair, TokenizerConfig, corpus_pairs, prepare
from jumok.data.sources import join_sentences

PAIRS = [Pair(f"the word {number} ", f"{number} 번 말") for number in range(10)]


def rows(pairs):
    return [(pair, [(2, 0), (0, len(pair.target.split()) - 1)]) for pair in pairs]


@pytest.mark.parametrize("together", [(1,), (2, 3), (1, 4), (5, 11)])
def test_training_texts_are_joined_as_texts_to_compare_on_are(together):
    found = [pair for pair, _ in join_sentences(rows(PAIRS), together)]
    sources, targets = (join_texts(side, together) for side in zip(*PAIRS, strict=True))
    assert sorted((pair.source.strip(), pair.target) for pair in found) == sorted(zip(sources, targets, strict=True))


def test_links_still_name_the_words_they_named():
    def named(pair, links):
        return sorted((pair.source.split()[one], pair.target.split()[other]) for one, other in links)

    for size in (1, 2, 3):
        runs = [rows(PAIRS)[start : start + size] for start in range(0, 10 - size + 1, size)]
        expected = [sorted(word for row in run for word in named(*row)) for run in runs]
        assert [named(*row) for row in join_sentences(rows(PAIRS), [size])] == expected


def test_a_pair_with_an_empty_side_is_joined_with_no_other():
    pairs = [PAIRS[0], Pair("nothing for this", " "), PAIRS[1]]
    found = [pair for pair, _ in join_sentences(rows(pairs), [1, 2])]
    assert found == [*pairs, Pair("the word 0 the word 1", "0 번 말 1 번 말")]


def test_joined_texts_are_prepared_and_the_sentences_to_validate_on_stay_single(tmp_path):
    data = DataConfig(corpus="cldr", size=60, valid_size=20, joined=(1, 3))
    prepared = prepare(tmp_path, data, TokenizerConfig(kind="char"))
    single = list(corpus_pairs("cldr", 60))
    decoded = {prepared.tokenizers.source.decode(prepared.train[row][0].tolist()) for row in range(len(prepared.train))}
    assert " ".join(pair.source for pair in single[3:6]) in decoded
    assert {pair.source for pair in single} <= decoded
    assert prepared.valid_pairs == list(corpus_pairs("cldr", 20, split="valid"))
