"""Targets as edits of their sources: numbers, texts, files, and what other tokenizers can do as well."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jumok.data import BOS, EOS, PAD, UNK, Pair, TokenizerConfig, TokenizerPair
from jumok.data.edit_distance import Edit
from jumok.data.edits import DELETE, EditTokenizer, edit_ids, piece_of
from jumok.data.tokenizer import Symbols
from jumok.errors import ArgumentError, ConfigError, DataError

VERBS = [Pair("<PST> walk", "walked"), Pair("<PRS> talk", "talking"), Pair("<PST> see", "saw"), Pair("go", "went")]
SOUNDS = [Pair("shell", "ʃ ɛ l"), Pair("sell", "s ɛ l"), Pair("less", "l ɛ s"), Pair("she", "ʃ iː")]
FEATURES = Symbols(features=("<PST>", "<PRS>"))


def verbs():
    return TokenizerPair.train(VERBS, TokenizerConfig(kind="char", edits=True), symbols=FEATURES)


def sounds():
    config = TokenizerConfig(source_kind="char", target_kind="word", shared=False, edits=True)
    return TokenizerPair.train(SOUNDS, config)


@pytest.mark.parametrize("piece", [4, 5, 17])
def test_edits_that_go_on_are_even_and_those_that_stay_are_odd(piece):
    (insert,), (substitute,) = edit_ids(Edit("insert", piece)), edit_ids(Edit("substitute", piece))
    assert (insert % 2, substitute % 2, DELETE % 2) == (1, 0, 0)
    assert piece_of(insert) == piece_of(substitute) == piece
    assert piece_of(DELETE) == PAD
    assert edit_ids(Edit("substitute", UNK)) == [UNK, DELETE]


@given(st.text("abc ▁walksé", max_size=8), st.text("abc ▁walksé", max_size=8))
def test_edits_write_the_text_that_letters_would(source, target):
    for pair in (VERB_TOKENIZERS, SOUND_TOKENIZERS):
        ids, edits = pair.encode(Pair(source, target))
        assert pair.target.decode(edits) == pair.target.letters.decode(pair.target.letters.encode(target))
        assert sum(id >= DELETE and id % 2 == 0 for id in edits) == len(ids) - 2
        assert (edits[0], edits[-1]) == (BOS, EOS)


VERB_TOKENIZERS, SOUND_TOKENIZERS = verbs(), sounds()


def test_a_text_of_the_same_letters_is_copied():
    _, edits = VERB_TOKENIZERS.encode(Pair("walk", "walked"))
    names = [VERB_TOKENIZERS.target.pieces[id] for id in edits[1:-1]]
    assert names == ["▁→", "w→", "a→", "l→", "k→", "e", "d"]


def test_sounds_are_written_for_their_letters():
    target = SOUND_TOKENIZERS.target
    _, edits = SOUND_TOKENIZERS.encode(Pair("sell", "s ɛ l"))
    assert target.decode(edits) == "s ɛ l"
    pieces, places = target.written(edits[1:-1])
    assert [target.letters.pieces[piece] for piece in pieces] == ["▁s", "▁ɛ", "▁l"]
    assert [edits[1:-1][place] for place in places] == [id for id in edits[1:-1] if id != DELETE]


def test_the_sides_share_a_vocabulary_if_the_letters_do():
    assert VERB_TOKENIZERS.shared
    assert not SOUND_TOKENIZERS.shared
    assert VERB_TOKENIZERS.target.size == 2 * VERB_TOKENIZERS.source.size - 3
    assert len(set(VERB_TOKENIZERS.target.pieces)) == VERB_TOKENIZERS.target.size


def test_new_symbols_leave_the_numbers_of_edits_as_they_were():
    more = VERB_TOKENIZERS.with_symbols(Symbols(features=("<FUT>",)))
    before = VERB_TOKENIZERS.target
    assert more.target.pieces[: before.size] == before.pieces
    assert more.target.size == before.size + 2
    assert isinstance(more.target, EditTokenizer)


def test_files_and_copies_of_a_tokenizer_give_the_same_edits(tmp_path):
    VERB_TOKENIZERS.save(tmp_path)
    contents = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    pair = Pair("<PST> talk", "talked")
    for other in (
        TokenizerPair.load(tmp_path),
        TokenizerPair.of_files(contents, tmp_path),
        pickle.loads(pickle.dumps(VERB_TOKENIZERS)),
    ):
        assert other.encode(pair) == VERB_TOKENIZERS.encode(pair)


def test_words_are_numbered_by_what_edits_write():
    pair = Pair("go on", "went on")
    _, edits = VERB_TOKENIZERS.encode(pair)
    numbers = VERB_TOKENIZERS.target.word_numbers(edits)
    of_letters = VERB_TOKENIZERS.target.letters.word_numbers(VERB_TOKENIZERS.target.letters.encode("went on"))
    assert [number for number, id in zip(numbers, edits, strict=True) if id != DELETE] == of_letters.tolist()
    assert all(number == -1 for number, id in zip(numbers, edits, strict=True) if id == DELETE)


def test_without_a_source_everything_is_inserted():
    target = SOUND_TOKENIZERS.target
    assert all(id % 2 for id in target.encode("s ɛ l")[1:-1])
    assert target.decode(target.encode("s ɛ l")) == "s ɛ l"


def test_ids_beyond_the_vocabulary_are_refused():
    with pytest.raises(ArgumentError, match="ids must lie between 0 and"):
        VERB_TOKENIZERS.target.decode([VERB_TOKENIZERS.target.size])


def test_a_damaged_alignment_is_named():
    with pytest.raises(DataError, match="tok is not a tokenizer of edits, or is damaged"):
        EditTokenizer(VERB_TOKENIZERS.source.model, origin="tok")


def test_random_pieces_have_no_edits():
    with pytest.raises(ConfigError, match=r"tokenizer.sampling = 0.1 cannot be combined with tokenizer.edits = true"):
        TokenizerConfig(kind="bpe", sampling=0.1, edits=True)
