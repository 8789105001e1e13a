"""Symbols that no tokenizer splits: tags, features of a word, and columns that join them."""

from pathlib import Path
from random import Random

import numpy as np
import pytest

from jumok.data import read_pairs
from jumok.data.batches import Sentences
from jumok.data.resampling import Resampler
from jumok.data.symbols import feature_symbols, split_symbols, without_symbols
from jumok.data.tokenizer import Symbols, Tokenizer, TokenizerConfig
from jumok.data.tokenizer_pair import TokenizerPair
from jumok.errors import DataError

TEXTS = ["the heart is a muscle", "a red apple and a green pear", "the quick brown fox", "심장은 근육입니다"] * 5
TAGGED = [f"<medical> {text}" for text in TEXTS[:2]] + TEXTS
SYMBOLS = Symbols(("<medical>", "<news>"), ("<PST>",))
KINDS = ("unigram", "bpe", "char", "word")


def tokenizer(kind: str, **options: object) -> Tokenizer:
    size = {"unigram": 44, "bpe": 60, "char": 200, "word": 200}[kind]
    config = TokenizerConfig(kind=kind, size=size, **options)  # type: ignore[arg-type]
    return Tokenizer.train(TAGGED, config, symbols=SYMBOLS, fingerprint="x")


@pytest.mark.parametrize("kind", KINDS)
def test_a_symbol_is_one_token_whatever_the_tokenizer(kind: str) -> None:
    made = tokenizer(kind)
    plain, tagged = made.encode("the red heart"), made.encode("<medical> the red heart")
    assert tagged[2:] == plain[1:]
    assert made.pieces[tagged[1]] == "<medical>"
    assert made.decode(tagged) == "<medical> the red heart"
    assert made.decode(made.encode("the <PST> heart <PST> <PST>")) == "the <PST> heart <PST> <PST>"
    assert made.pieces[-3:] == ["<medical>", "<news>", "<PST>"]


@pytest.mark.parametrize("kind", KINDS)
def test_symbols_are_no_text_to_learn_a_vocabulary_from(kind: str) -> None:
    assert not {"<", ">", "▁<", "▁<medical>"} & set(tokenizer(kind).pieces)


def test_a_word_in_brackets_that_the_vocabulary_does_not_know_is_text() -> None:
    made = tokenizer("char")
    ids = made.encode("<b> heart")
    assert len(ids) == 2 + len(" <b> heart")
    assert len(made.encode("x<medical> heart")) > len(made.encode("<medical> heart"))


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_of_pieces_behind_a_symbol_point_into_the_whole_text(kind: str) -> None:
    text = "<medical>  the red <PST> heart"
    pieces = tokenizer(kind).pieces_with_offsets(text)
    assert [(piece.piece, piece.start, piece.end) for piece in pieces if piece.piece.startswith("<")] == [
        ("<medical>", 0, 9),
        ("<PST>", 19, 24),
    ]
    assert "".join(text[piece.start : piece.end] for piece in pieces) == text.replace(" ", "")
    assert [piece.id for piece in pieces] == tokenizer(kind).encode(text)[1:-1]


def test_case_and_unicode_form_of_a_symbol_are_kept() -> None:
    made = tokenizer("char", lowercase=True)
    assert made.pieces[made.encode("<PST> THE")[1]] == "<PST>"


@pytest.mark.parametrize("kind", KINDS)
def test_a_symbol_is_a_word_of_its_own_when_words_are_counted(kind: str) -> None:
    made = tokenizer(kind)
    numbers = made.word_numbers(made.encode("<medical> the heart"))
    assert numbers[0] == numbers[-1] == -1
    assert numbers[1] == 0
    assert set(numbers[2:-1].tolist()) == {1, 2}


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_subword_regularisation_leaves_symbols_whole(kind: str) -> None:
    made = tokenizer(kind)
    text, amount = "<medical> the heart is <PST> a muscle", {"unigram": 5.0, "bpe": 0.3}[kind]
    for seed in range(5):
        assert made.decode(made.sample(text, amount, Random(seed))) == text
    ids = np.array(made.encode(text))
    cut = Resampler(made, amount)(Sentences.of([ids]), np.array([7], np.uint64)).ids
    assert made.decode(cut.tolist()) == text
    assert [int(id) for id in cut if made.is_symbol(int(id))] == [int(id) for id in ids if made.is_symbol(int(id))]


@pytest.mark.parametrize("kind", KINDS)
def test_a_symbol_added_later_is_the_last_id_and_changes_no_other(kind: str) -> None:
    made = tokenizer(kind)
    more = made.with_symbols(Symbols(("<legal>", "<medical>")))
    assert more.pieces == [*made.pieces, "<legal>"]
    assert more.encode("<medical> the heart") == made.encode("<medical> the heart")
    assert more.encode("<legal> the heart")[1] == more.size - 1
    assert more.tags == ["<medical>", "<news>", "<legal>"]
    assert made.with_symbols(Symbols(("<medical>",))) is made
    assert Tokenizer(more.model).encode("<legal> a") == more.encode("<legal> a")


def test_both_sides_of_a_shared_vocabulary_get_a_new_symbol_and_a_separate_target_does_not() -> None:
    both = tokenizer("char")
    shared = TokenizerPair(both, both).with_symbols(Symbols(("<legal>",)))
    assert shared.source is shared.target
    other = Tokenizer.train(["abc"], TokenizerConfig(kind="char"))
    separate = TokenizerPair(both, other).with_symbols(Symbols(("<legal>",)))
    assert separate.target is other


def test_a_tag_of_another_toolkit_cannot_be_added() -> None:
    with pytest.raises(DataError, match=r"no tag >>fra<<; its tags are <medical>, <news>; write a new tag as"):
        tokenizer("char").with_symbols(Symbols((">>fra<<",)))


def test_the_space_around_a_symbol_belongs_to_no_part() -> None:
    parts = list(split_symbols("a <x> b  <x>", {"<x>": 7}))
    assert [(part.text, part.start, part.id) for part in parts] == [
        ("a", 0, None),
        ("<x>", 2, 7),
        ("b ", 6, None),
        ("<x>", 9, 7),
        ("", 12, None),
    ]
    assert without_symbols("<x> a b", {"<x>"}) == "a b"


def test_features_of_unimorph_become_symbols() -> None:
    assert feature_symbols("V;FIN;INFM+ELEV;PST") == "<V> <FIN> <INFM> <ELEV> <PST>"
    assert feature_symbols("N;ABL(PL;PSS(2,PL))") == "<N> <ABL> <PL> <PSS> <2> <PL>"


def test_columns_are_joined_and_features_made_symbols_from_files_as_they_come(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("가다\t갔다\tV;PST\n", encoding="utf-8")
    (tmp_path / "b.tsv").write_text("lemma\ttags\tform\ngo\tV;PST\twent\n", encoding="utf-8")
    (tmp_path / "c.jsonl").write_text('{"lemma": "go", "tags": "V;PST", "form": "went"}\n', encoding="utf-8")
    assert list(read_pairs(tmp_path / "a.tsv", columns=((3, 1), 2), features=(3,))) == [("<V> <PST> 가다", "갔다")]
    named = {"columns": (("tags", "lemma"), "form"), "features": ("tags",)}
    for name in ("b.tsv", "c.jsonl"):
        assert list(read_pairs(tmp_path / name, **named)) == [("<V> <PST> go", "went")]  # type: ignore[arg-type]


def test_each_side_may_have_a_tokenizer_of_its_own_kind() -> None:
    from jumok.data import Pair

    config = TokenizerConfig(source_kind="char", target_kind="word", shared=False)
    pair = TokenizerPair.train([Pair("abc", "e i s i")], config)
    assert pair.source.kind == "char"
    assert [pair.target.pieces[id] for id in pair.target.encode("s e")[1:-1]] == ["▁s", "▁e"]
