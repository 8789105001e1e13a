import pickle
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jumok.data import BOS, EOS, PAD, UNK, Tokenizer, TokenizerConfig, TokenizerPair, corpus_pairs
from jumok.data.subwords import sample_sentences

KINDS = ["unigram", "bpe", "char", "word"]
TEXT = st.text(st.characters(blacklist_categories=["Cc", "Cs"], blacklist_characters="\ufdd0"))
SEEN = st.text("Friday, 1988년 12월 금요일  ▁")


@pytest.mark.parametrize("kind", KINDS)
def test_decoding_undoes_encoding(kind, tokenizer_of, texts):
    tokenizer = tokenizer_of(kind=kind)
    for text in texts[:200]:
        ids = tokenizer.encode(text)
        assert (ids[0], ids[-1]) == (BOS, EOS)
        assert UNK in ids or tokenizer.decode(ids) == text
    assert sum(UNK in tokenizer.encode(text) for text in texts[:200]) <= (60 if kind == "word" else 0)


@pytest.mark.parametrize("kind", ["unigram", "bpe", "char"])
@given(text=TEXT | SEEN)
def test_with_byte_fallback_and_kept_spaces_any_text_comes_back(kind, text, tokenizer_of):
    tokenizer = tokenizer_of(kind=kind, byte_fallback=True, spaces="keep", source_form="none", target_form="none")
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(text=TEXT)
def test_jamo_outputs_are_syllables_again(text, tokenizer_of):
    tokenizer = tokenizer_of(byte_fallback=True, source_form="jamo", target_form="jamo")
    assert tokenizer.decode(tokenizer.encode(text)) == tokenizer_of().normaliser(text)


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_text_too_small_for_a_vocabulary_gives_the_largest_possible_one_and_says_so(kind, texts, capfd):
    said = []
    tokenizer = Tokenizer.train(texts[:200], TokenizerConfig(kind=kind, size=30_000), say=said.append)
    assert said == [
        f"tokenizer.size = 30000 is more than the training text allows; the vocabulary has {tokenizer.size} tokens"
    ]
    same = Tokenizer.train(texts[:200], TokenizerConfig(kind=kind, size=tokenizer.size), say=said.append)
    assert same.model == tokenizer.model
    assert len(said) == 1
    assert capfd.readouterr() == ("", "")


def test_special_ids_are_fixed(tokenizer_of):
    for kind in KINDS:
        tokenizer = tokenizer_of(kind=kind)
        assert tokenizer.pieces[:4] == ["<pad>", "<s>", "</s>", "<unk>"]
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)


def test_special_words_in_a_text_are_only_text(tokenizer_of):
    tokenizer = tokenizer_of(byte_fallback=True)
    text = "<s> a </s> <pad> <unk> <0x41>"
    ids = tokenizer.encode(text)
    assert not {PAD, BOS, EOS, UNK} & set(ids[1:-1])
    assert tokenizer.decode(ids) == text


def test_decoding_stops_at_the_end_of_the_sentence(tokenizer_of):
    tokenizer = tokenizer_of()
    ids = tokenizer.encode("Friday")
    assert tokenizer.decode([*ids, *tokenizer.encode("Monday"), PAD, PAD]) == "Friday"


@pytest.mark.parametrize("kind", ["word", "char"])
def test_unknown_words_and_letters_are_one_token_each(kind, tokenizer_of):
    ids = tokenizer_of(kind=kind).encode("囗囗" if kind == "char" else "囗 囗")
    assert ids.count(UNK) == 2
    assert tokenizer_of(kind=kind).decode(ids) == ("⁇⁇" if kind == "char" else "⁇ ⁇")


@pytest.mark.parametrize("kind", KINDS)
def test_training_twice_gives_the_same_bytes(kind, tokenizer_of, texts):
    again = Tokenizer.train(iter(texts), TokenizerConfig(kind=kind, size=2000 if kind == "word" else 280))
    assert again.model == tokenizer_of(kind=kind).model


@pytest.mark.parametrize("kind", KINDS)
@given(text=SEEN | TEXT | st.sampled_from(["  한  국 囗囗a ", "ﬁne ①"]))
def test_pieces_are_those_of_encode_and_their_parts_cover_the_text(kind, text, tokenizer_of):
    for settings in (
        {},
        {"source_form": "jamo", "target_form": "jamo"},
        {"source_form": "nfkc", "target_form": "nfkc"},
    ):
        tokenizer = tokenizer_of(kind=kind, **settings)
        pieces = tokenizer.pieces_with_offsets(text)
        assert [piece.id for piece in pieces] == tokenizer.encode(text)[1:-1]
        assert all(0 <= piece.start <= piece.end <= len(text) for piece in pieces)
        assert [piece.start for piece in pieces] == sorted(piece.start for piece in pieces)
        covered = {at for piece in pieces for at in range(piece.start, piece.end)}
        missed = "".join(letter for at, letter in enumerate(text) if at not in covered)
        assert not tokenizer.normaliser(missed).strip(" ")


def test_offsets_point_at_the_words(tokenizer_of):
    text = " 1988년   12월 23일"
    for piece in tokenizer_of(kind="word").pieces_with_offsets(text):
        assert piece.piece == "▁" + text[piece.start : piece.end]
    spans = [
        (piece.start, piece.end)
        for piece in tokenizer_of(kind="char", source_form="jamo", target_form="jamo").pieces_with_offsets("월 a")
    ]
    assert spans == [(0, 0), (0, 1), (0, 1), (0, 1), (2, 2), (2, 3)]


def test_the_bytes_of_a_letter_all_point_at_it(tokenizer_of):
    pieces = tokenizer_of(byte_fallback=True).pieces_with_offsets("囗 囘")
    assert [piece.id for piece in pieces] == tokenizer_of(byte_fallback=True).encode("囗 囘")[1:-1]
    assert [piece.piece for piece in pieces if piece.start < piece.end] == [
        f"<0x{byte:02X}>" for byte in "囗囘".encode()
    ]
    assert [(piece.start, piece.end) for piece in pieces if piece.start < piece.end] == [(0, 1)] * 3 + [(2, 3)] * 3


@pytest.mark.parametrize(("kind", "amount"), [("unigram", 50.0), ("bpe", 0.3)])
def test_sampled_cuts_vary_decode_alike_and_repeat_with_the_same_draws(kind, amount, tokenizer_of, texts):
    tokenizer = tokenizer_of(kind=kind)
    for text in texts[:40]:
        cuts = [tokenizer.sample(text, amount, Random(seed)) for seed in range(8)]
        assert {tokenizer.decode(ids) for ids in cuts} == {text}
        assert cuts == [tokenizer.sample(text, amount, Random(seed)) for seed in range(8)]
    assert (
        len(
            {
                tuple(tokenizer.sample("Netherlands, South Korea, and Indonesia", amount, Random(seed)))
                for seed in range(20)
            }
        )
        > 3
    )


@pytest.mark.parametrize(("kind", "amount"), [("unigram", 1e-4), ("bpe", 1e-12)])
def test_with_hardly_any_noise_the_sampled_cut_is_the_best_one(kind, amount, tokenizer_of, texts):
    for settings in ({}, {"byte_fallback": True}):
        tokenizer = tokenizer_of(kind=kind, **settings)
        for text in [*texts[:100], "囗囗 Friday囗", ""]:
            assert tokenizer.sample(text, amount, Random(0)) == tokenizer.encode(text)


def test_unigram_cuts_come_as_often_as_their_probability_says():
    from collections import Counter
    from math import exp, log

    from jumok.data.tokenizer import UnigramSampler

    sampler = UnigramSampler({"▁": log(0.5), "a": log(0.2), "▁a": log(0.3)}, temperature=2.0)
    draws = Random(0)
    counts = Counter(tuple(sampler.sample("▁a", draws)) for _ in range(4000))
    weights = {("▁", "a"): exp(log(0.5 * 0.2) / 2), ("▁a",): exp(log(0.3) / 2)}
    for cut, weight in weights.items():
        assert counts[cut] / 4000 == pytest.approx(weight / sum(weights.values()), abs=0.03)


def test_a_model_file_says_all_there_is_to_know(tmp_path, tokenizer_of):
    tokenizer = tokenizer_of(source_form="jamo", target_form="jamo", lowercase=True)
    tokenizer.save(tmp_path / "tokenizer.model")
    loaded = Tokenizer.load(tmp_path / "tokenizer.model")
    assert loaded.normaliser == tokenizer.normaliser
    assert loaded.encode("Friday 금요일") == tokenizer.encode("Friday 금요일")
    assert pickle.loads(pickle.dumps(tokenizer)).model == tokenizer.model  # as sent to another process


def test_plain_sentencepiece_reads_the_model_file_too(tokenizer_of):
    import sentencepiece

    tokenizer = tokenizer_of()
    plain = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    assert plain.encode("Friday") == tokenizer.encode("Friday")[1:-1]


def test_shared_and_separate_vocabularies_are_saved_and_loaded(tmp_path):
    pairs = list(corpus_pairs("cldr", 500))
    for shared, files in ((True, ["tokenizer.model"]), (False, ["tokenizer.source.model", "tokenizer.target.model"])):
        config = TokenizerConfig(kind="char", shared=shared, target_form="nfc" if shared else "jamo")
        trained = TokenizerPair.train(pairs, config)
        trained.save(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == files
        loaded = TokenizerPair.load(tmp_path)
        assert loaded.shared is shared
        assert [side.model for side in loaded] == [side.model for side in trained]
    assert "F" not in trained.target.pieces
    assert "F" in trained.source.pieces


def test_numbers_are_cut_into_digits(tokenizer_of):
    pieces = [piece.piece.removeprefix("▁") for piece in tokenizer_of().pieces_with_offsets("1988")]
    assert list(filter(None, pieces)) == ["1", "9", "8", "8"]


def test_long_texts_are_sampled_down_evenly():
    sampled = sample_sentences((str(number) for number in range(10_000)), limit=500)
    assert len(set(sampled)) == 500
    assert 4000 < sum(map(int, sampled)) / 500 < 6000
    assert sampled == sample_sentences((str(number) for number in range(10_000)), limit=500)


@pytest.mark.parametrize("split", [True, False])
def test_a_tokenizer_tells_whether_it_cuts_numbers_into_digits(split):
    lines = ["in 1988 we met", "in 1988 they met", "1988 was long ago"] * 30
    tokenizer = Tokenizer.train(lines, TokenizerConfig(kind="bpe", size=40, split_digits=split))
    assert tokenizer.splits_digits == split
