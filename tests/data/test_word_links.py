"""Word links: read, moved to the words a tokenizer sees, and from there to the tokens of a batch."""

from random import Random

import numpy as np
import pytest

from jumok.data import BatchConfig, Batches, DataConfig, FilterConfig, Normaliser, Tokenizer, TokenizerConfig, prepare
from jumok.data.word_links import (
    format_word_links,
    link_matrix,
    parse_word_links,
    read_word_links,
    spaced_links,
    spaced_words,
)

MORE = [
    f"{who} {where} {what}"
    for who in ("나는", "너는", "그가")
    for where in ("집에", "학교에")
    for what in ("갔다", "있다")
]
KOREAN = [
    *MORE,
    "나는 학교에 갔다",
    "그 사람은 집에 있다",
    "학교에서 집으로 갔다",
    "나는 사람이다",
    "집이 있다",
    "🙂 학교",
]
KINDS = [
    {"kind": "char"},
    {"kind": "char", "byte_fallback": True, "coverage": 0.98, "size": 400},
    {"kind": "word"},
    {"kind": "word", "size": 8},
    {"kind": "bpe", "size": 40},
    {"kind": "unigram", "size": 36},
    {"kind": "bpe", "size": 310, "byte_fallback": True, "coverage": 0.98},
    {"kind": "unigram", "size": 38, "source_form": "jamo", "target_form": "jamo"},
    {"kind": "bpe", "size": 60, "spaces": "keep"},
]


@pytest.mark.parametrize("settings", KINDS, ids=lambda one: "-".join(map(str, one.values())))
@pytest.mark.parametrize("text", ["나는  집에 갔다 🙂학교 x", " 사람", "가 나\u00a0다 라", ""])
def test_every_token_knows_its_word_as_the_offsets_of_its_piece_say(settings, text):
    tokenizer = Tokenizer.train(KOREAN, TokenizerConfig(**{"size": 100, **settings}))
    ids = tokenizer.encode(text)
    words = spaced_words(text, tokenizer.normaliser)
    numbers = tokenizer.word_numbers(ids)
    pieces = tokenizer.pieces_with_offsets(text)
    assert len(numbers) == len(pieces) + 2
    assert numbers[0] == numbers[-1] == -1
    for number, piece in zip(numbers[1:-1], pieces, strict=True):
        if piece.start < piece.end and not text[piece.start : piece.end].isspace():
            inside = {word for word, span in enumerate(spans_of(text)) if overlap(span, (piece.start, piece.end))}
            assert inside <= set(words.given(int(number))), (piece, number, words)


def spans_of(text):
    spans, at = [], 0
    for word in text.split():
        at = text.index(word, at)
        spans.append((at, at + len(word)))
        at += len(word)
    return spans


def overlap(one, other):
    return one[0] < other[1] and other[0] < one[1]


def test_a_sampled_cut_has_the_same_words(tmp_path):
    tokenizer = Tokenizer.train(KOREAN, TokenizerConfig(kind="unigram", size=36))
    for text in KOREAN:
        ids = tokenizer.sample(text, 5.0, Random(1))
        numbers = tokenizer.word_numbers(ids)
        for word in range(len(text.split())):
            inside = [int(id) for id, number in zip(ids, numbers, strict=True) if number == word]
            assert tokenizer.decode(inside) == text.split()[word]


def test_words_are_what_white_space_divides_whatever_the_normaliser_makes_of_it():
    text = "a\u00a0b c\x01d  e"  # a no-break space divides words but not tokens; a control character the reverse
    words = spaced_words(text, Normaliser())
    assert words.size == len(text.split()) == 4
    assert [words.given(spaced) for spaced in range(4)] == [[0, 1], [2], [2], [3]]
    assert words.spaced() == [[0], [0], [1, 2], [3]]
    assert spaced_links([(1, 2)], words, words) == [(0, 1), (0, 2)]


def test_links_are_written_as_they_are_read():
    assert parse_word_links("0-0 12-3", "here") == [(0, 0), (12, 3)]
    assert format_word_links({(1, 2), (0, 3)}) == "0-3 1-2"
    assert parse_word_links("", "here") == []


def test_the_matrix_of_a_batch_is_true_where_words_are_linked():
    draws = np.random.default_rng(0)
    source = np.array([np.append(np.sort(draws.integers(0, 4, 5)), -1) for _ in range(6)])
    target = np.full((6, 8), -1)
    for row, size in enumerate((1, 4, 2, 7, 3, 3)):
        target[row, :size] = np.sort(draws.integers(0, 3, size))
    links = [draws.integers(0, 5, 2 * size) for size in (0, 1, 2, 3, 4, 9)]
    found = link_matrix(links, source, target).numpy()
    for row in range(6):
        wanted = {tuple(link) for link in links[row].reshape(-1, 2)}
        for t, target_word in enumerate(target[row]):
            for s, source_word in enumerate(source[row]):
                assert found[row, t, s] == ((source_word, target_word) in wanted)


@pytest.fixture
def corpus(tmp_path):
    rows = [("a b", "b a", "0-1 1-0"), ("", "x", ""), ("a b", "b a", "0-0"), ("c a b", "b c a", "0-1 1-2 2-0 7-7")]
    rows += [(f"a {'b ' * n}c", "a c", f"0-0 {n + 1}-1") for n in range(1, 6)]
    for part, name in enumerate(("one", "two", "links")):
        (tmp_path / name).write_text("".join(f"{row[part]}\n" for row in rows))
    return tmp_path


def prepared(corpus, **tokenizer):
    data = DataConfig(
        source=f"{corpus}/one",
        target=f"{corpus}/two",
        alignments=f"{corpus}/links",
        valid_source=f"{corpus}/one",
        valid_target=f"{corpus}/two",
    )
    config = TokenizerConfig(**{"kind": "char", "size": 30, **tokenizer})
    return prepare(corpus / "data", data, config, FilterConfig(max_length=9))


def test_a_pair_that_is_dropped_drops_its_links(corpus):
    store = prepared(corpus).train
    assert store.sides == 3
    assert [store[row][2].tolist() for row in range(len(store))] == [
        [0, 1, 1, 0],
        [0, 1, 1, 2, 2, 0],  # 7-7 is past the end
        [0, 0, 2, 1],
        [0, 0, 3, 1],
    ]


@pytest.mark.parametrize("sampling", [0.0, 3.0])
def test_batches_link_the_tokens_they_hold_however_they_were_cut(corpus, sampling):
    found = prepared(corpus, kind="unigram", size=9)
    batches = Batches(found.train, BatchConfig(tokens=40), tokenizers=found.tokenizers, sampling=sampling)
    for step in range(batches.steps(0)):
        batch = batches.batch(0, step)
        for row in range(len(batch.source)):
            source = found.tokenizers.source.word_numbers(batch.source[row].numpy())
            target = found.tokenizers.target.word_numbers(batch.target_out[row].numpy())
            letters = [found.tokenizers.source.decode(batch.source[row].tolist()).split()]
            letters.append(found.tokenizers.target.decode(batch.target_out[row].tolist()).split())
            for t, s in batch.word_links[row].nonzero().tolist():
                assert letters[0][source[s]] == letters[1][target[t]]  # in this corpus, like is linked to like
            assert batch.word_links[row].any()


def test_without_links_batches_hold_none(corpus):
    data = DataConfig(source=f"{corpus}/one", target=f"{corpus}/two")
    found = prepare(corpus / "plain", data, TokenizerConfig(kind="char", size=30))
    assert found.train.sides == 2
    assert Batches(found.train, BatchConfig()).batch(0, 0).word_links is None


def test_links_can_be_compressed(tmp_path):
    import gzip

    with gzip.open(tmp_path / "links.gz", "wt") as file:
        file.write("0-0\n\n1-2\n")
    assert list(read_word_links(tmp_path / "links.gz")) == [[(0, 0)], [], [(1, 2)]]
