import io
import os
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from jumok.data import (
    BatchConfig,
    Batches,
    DataConfig,
    FilterConfig,
    Pair,
    TokenizerConfig,
    TokenizerPair,
    corpus_pairs,
    prepare,
)
from jumok.data.dataset import write_dataset
from jumok.data.fingerprint import PREPARED_FILES, RECORD, VOCABULARIES, foreign_files
from jumok.data.prepare import unknown_message, unknown_share
from jumok.data.subwords import BOS, EOS, UNK
from jumok.graphs.graph import GraphConfig, SparseTable
from jumok.graphs.store import prepare_graph, write_graph
from support.graphs import raw_graph

SMALL = TokenizerConfig(kind="char")


def two_files(folder, pairs):
    for side in ("source", "target"):
        text = "".join(getattr(pair, side) + "\n" for pair in pairs)
        (folder / f"train.{side}").write_text(text, encoding="utf-8")
    return {"source": str(folder / "train.source"), "target": str(folder / "train.target")}


def test_two_text_files_become_batches_of_their_sentences(tmp_path):
    pairs = list(dict.fromkeys(corpus_pairs("cldr", 400)))
    prepared = prepare(tmp_path / "run", DataConfig(**two_files(tmp_path, pairs)), SMALL)
    held_out = set(prepared.valid_pairs)
    assert held_out == set(pairs[::100])
    assert prepared.report.read == prepared.report.kept == len(pairs) - len(held_out)
    batches = Batches(prepared.train, BatchConfig(tokens=500))
    seen = []
    for step in range(batches.steps(0)):
        batch = batches.batch(0, step)
        seen += zip(
            map(prepared.tokenizers.source.decode, batch.source.tolist()),
            map(prepared.tokenizers.target.decode, batch.target_out.tolist()),
            strict=True,
        )
    assert sorted(seen) == sorted(set(pairs) - held_out)
    assert TokenizerPair.load(tmp_path / "run").source.model == prepared.tokenizers.source.model


def test_a_held_out_source_is_not_trained_on_with_another_target(tmp_path):
    pairs = [*corpus_pairs("cldr", 150)]
    pairs.append(pairs[0]._replace(target="다른 번역"))
    data = DataConfig(**two_files(tmp_path, pairs))
    assert not {pair.source for pair in data.training()} & {pair.source for pair in data.validation()}


@pytest.mark.parametrize(
    ("pairs", "long", "outliers"), [(12, 1, False), (1200, 1, True), (1200, 9, True), (1200, 10, False)]
)
def test_the_longest_source_is_one_that_is_learned_from_and_no_outlier(tmp_path, pairs, long, outliers):
    short = [Pair(f"{number:05}", "x") for number in range(pairs - long)]
    prepared = prepared_with(tmp_path, [*short, *(Pair(f"{number:030}", "x") for number in range(long))])
    usual, longest = (len(prepared.tokenizers.source.encode(digits * "0")) - 2 for digits in (5, 30))
    assert prepared.longest_source == (usual + usual // 2 if outliers else longest)


def test_the_longest_source_is_that_of_all_where_none_is_much_longer_than_the_others(tmp_path):
    sizes = [5] * 1195 + [6] * 3 + [7] * 2
    prepared = prepared_with(tmp_path, [Pair(f"{number:0{size}}", "x") for number, size in enumerate(sizes)])
    assert prepared.longest_source == len(prepared.tokenizers.source.encode(7 * "0")) - 2


def prepared_with(folder, pairs):
    files = two_files(folder, pairs)
    (folder / "valid").write_text("1\n", encoding="utf-8")
    valid = {"valid_source": str(folder / "valid"), "valid_target": str(folder / "valid")}
    return prepare(folder / "run", DataConfig(**files, **valid), TokenizerConfig(kind="char", size=20))


def test_what_was_prepared_is_used_again_until_something_changes(tmp_path):
    files = two_files(tmp_path, list(corpus_pairs("cldr", 300)))
    said = []

    def run(tokenizer=SMALL, **settings):
        said.clear()
        prepared = prepare(tmp_path / "run", DataConfig(**files), tokenizer, FilterConfig(**settings), say=said.append)
        return prepared.report

    first = run()
    assert len(said) == 2
    assert run() == first
    assert said == []
    run(max_length=30)
    assert said == ["tokenising the training text"]
    run(TokenizerConfig(kind="char", shared=False))
    assert len(said) == 2
    os.utime(files["source"], (1, 1))  # the same text
    run(TokenizerConfig(kind="char", shared=False))
    assert said == []
    two_files(tmp_path, list(corpus_pairs("cldr", 301)))
    run(TokenizerConfig(kind="char", shared=False))
    assert len(said) == 2


@pytest.mark.slow
def test_a_pair_longer_than_those_learned_from_decides_no_validation_neither_at_first_nor_when_resumed(tmp_path):
    files = two_files(tmp_path, list(corpus_pairs("cldr", 300)))
    ordinary, endless = Pair("May 5", "5월 5일"), Pair("one " * 100_000, "하나 " * 100_000)
    lines = "".join(f"{pair.source}\t{pair.target}\n" for pair in (ordinary, endless))
    (tmp_path / "valid.tsv").write_text(lines, encoding="utf-8")
    data = DataConfig(**files, valid_pairs=str(tmp_path / "valid.tsv"))
    for _ in range(2):
        prepared = prepare(tmp_path / "run", data, SMALL, FilterConfig(max_length=100))
        assert prepared.valid_pairs == [ordinary]
        assert len(prepared.valid) == 1


def test_a_built_in_corpus_needs_no_file(tmp_path):
    prepared = prepare(tmp_path, DataConfig(corpus="dates", size=300, valid_size=20), SMALL)
    assert len(prepared.valid) == len(prepared.valid_pairs) == 20
    assert prepared.report.read == 300


def test_standard_input_is_copied_piece_by_piece(tmp_path, monkeypatch):
    class Pipe(io.BytesIO):
        def read(self, size=-1):
            assert size is not None
            assert 0 < size <= 1 << 24, "all of it at once may not fit in memory"
            return super().read(size)

    text = "".join(f"the old {letter}\t{letter} old\n" for letter in 40 * "abcdefgh")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(Pipe(text.encode())))
    prepare(tmp_path, DataConfig(pairs="-"), TokenizerConfig(kind="char"))
    assert (tmp_path / "standard-input.tsv").read_text() == text


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "sampling"), [("unigram", 50.0), ("bpe", 0.2)])
def test_a_batch_with_sampled_subwords_is_a_pure_function_too(tmp_path, kind, sampling):
    config = TokenizerConfig(kind=kind, size=300, sampling=sampling)
    prepared = prepare(tmp_path, DataConfig(corpus="cldr", size=800), config)

    def batches(seed=3):
        return Batches(
            prepared.train,
            BatchConfig(tokens=400),
            seed=seed,
            tokenizers=prepared.tokenizers,
            sampling=config.sampling,
        )

    one = batches()
    for step in (5, 0, 3):
        assert all(map(torch.equal, one.batch(1, step)[:5], batches().batch(1, step)[:5]))
    plain = Batches(prepared.train, BatchConfig(tokens=400), seed=3)
    decode = prepared.tokenizers.source.decode
    assert [decode(row) for row in one.batch(1, 2).source.tolist()] == [
        decode(row) for row in plain.batch(1, 2).source.tolist()
    ]
    assert one.batch(1, 2).source_visible.sum() > plain.batch(1, 2).source_visible.sum()
    assert not torch.equal(one.batch(1, 2).source[0], batches(seed=4).batch(1, 2).source[0])


def test_a_source_that_is_its_own_target_is_remarked_on(tmp_path):
    files, said = two_files(tmp_path, list(corpus_pairs("cldr", 200))), []
    prepare(tmp_path / "two", DataConfig(**files), SMALL, say=said.append)
    assert not any("same file" in message for message in said)
    same = DataConfig(source=files["source"], target=f"{tmp_path}/./train.source")
    prepare(tmp_path / "one", same, SMALL, say=said.append)
    copies = f"source and target are the same file, {files['source']}, so the model will learn to copy its input"
    assert copies in said


def test_sentences_are_cut_anew_every_epoch_and_the_same_in_the_same_epoch(tmp_path):
    files = two_files(tmp_path, list(corpus_pairs("cldr", 200)))
    found = prepare(tmp_path / "run", DataConfig(**files), TokenizerConfig(kind="bpe", size=200))

    def cuts(epoch):
        batches = Batches(found.train, BatchConfig(), tokenizers=found.tokenizers, sampling=0.3)
        every = [batches.batch(epoch, step) for step in range(batches.steps(epoch))]
        return {tuple(ids[ids != 0].tolist()) for batch in every for ids in batch.source}

    assert cuts(0) == cuts(0)
    assert cuts(0) != cuts(1)


@pytest.mark.parametrize(
    ("settings", "raised"),
    [
        ({"kind": "word", "size": 5}, 'tokenizer.size = 5, or set tokenizer.kind = "unigram"'),
        ({"kind": "char", "size": 8}, "tokenizer.size = 8"),
    ],
)
def test_a_vocabulary_that_knows_little_of_its_text_is_told_by_side(tmp_path, settings, raised):
    pairs = [Pair(f"one two three four {number}", "하나 " * 9 + str(number)) for number in range(50)]
    config, said = TokenizerConfig(**settings, shared=False), []
    prepared = prepare(tmp_path / "run", DataConfig(**two_files(tmp_path, pairs)), config, say=said.append)
    ids = [id for row in range(len(prepared.train)) for id in prepared.train[row][0].tolist() if id not in (BOS, EOS)]
    share = ids.count(UNK) / len(ids)
    assert said[-1] == (
        f"about {share:.0%} of the tokens of the source are unknown to the vocabulary, and a model cannot tell them "
        f"apart; raise {raised}"
    )
    assert share > 0.4
    assert len(said) == 3  # the target has few others, and nothing is said of it


def store_of(path, unknown, known, rows=1):
    return write_dataset(path, rows * [[[BOS, EOS], [BOS, *unknown * [UNK], *known * [4], EOS]]], size=9)


def test_a_tenth_of_unknown_tokens_is_not_worth_a_word_and_more_is(tmp_path):
    config = TokenizerConfig(kind="word", size=5)
    tokenizer = TokenizerPair.train([Pair("a b", "a b")], config).target
    few, many = store_of(tmp_path / "few", 1, 9), store_of(tmp_path / "many", 2, 9)
    assert unknown_message(few, 1, "target", tokenizer, config) == ""
    assert unknown_message(many, 1, "target", tokenizer, config).startswith("about 18% of the tokens of the target")
    assert unknown_message(many, 0, "source", tokenizer, config) == ""  # it is empty
    roomy = TokenizerConfig(kind="char", size=500, coverage=0.98)
    assert unknown_message(many, 1, "target", tokenizer, roomy).endswith("raise tokenizer.coverage = 0.98")


def test_unknown_tokens_are_counted_in_rows_from_the_whole_dataset(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["jumok.data.prepare"], "SAMPLE", 100)  # the name is also that of a function
    rows = [[[BOS, UNK if row >= 750 else 4, EOS], [BOS, EOS]] for row in range(1001)]
    assert unknown_share(write_dataset(tmp_path / "large", rows, size=9), 0) == 0.25


def test_every_file_of_prepared_data_is_known_by_its_name_so_that_a_users_own_is_too(tmp_path):
    prepare(tmp_path / "shared", DataConfig(corpus="reverse", size=50, valid_size=5), SMALL)
    prepare(tmp_path / "two", DataConfig(corpus="reverse", size=50, valid_size=5), replace(SMALL, shared=False))
    prepare_graph(tmp_path / "graph", GraphConfig(built_in="planted", size=50))
    sparse = SparseTable(starts=np.arange(41), columns=np.zeros(40, np.int64), values=np.ones(40, np.float32), width=2)
    several = {"graph": np.arange(40) // 20, "labels": np.array([0, 1])}
    edges = {"edges": np.array([[0, 30], [1, 31]]), "edge_features": np.ones((2, 3), np.float32)}
    write_graph(tmp_path / "sparse", replace(raw_graph(), features=sparse, **several, **edges), GraphConfig(path="x"))
    names = {file.name for folder in tmp_path.iterdir() for file in folder.iterdir()}
    assert names <= {*PREPARED_FILES, *VOCABULARIES}
    assert {"edge_features.npy", "graph.npy", "columns.npy", "graph.json"} <= names
    for folder in tmp_path.iterdir():
        (folder / RECORD).unlink(missing_ok=True)
    assert foreign_files(tmp_path / "shared") == ["train.store", "valid.store"]  # the vocabulary was learned here


def test_a_corpus_in_many_files_is_prepared_as_one_and_again_when_one_of_them_changes(tmp_path):
    pairs = list(dict.fromkeys(corpus_pairs("cldr", 300)))
    (parts := tmp_path / "parts").mkdir()
    for number in range(3):
        for side in ("source", "target"):
            text = "".join(getattr(pair, side) + "\n" for pair in pairs[100 * number : 100 * number + 100])
            (parts / f"{number}.{side}").write_text(text, encoding="utf-8")
    many = DataConfig(source=str(parts / "*.source"), target=str(parts / "*.target"))
    first = prepare(tmp_path / "many", many, SMALL)
    one = prepare(tmp_path / "one", DataConfig(**two_files(tmp_path, pairs[:300])), SMALL)
    assert first.identity == one.identity
    said = []
    assert prepare(tmp_path / "many", many, SMALL, say=said.append).identity == first.identity
    assert not said
    (parts / "1.target").write_text("뒤\n" * 100, encoding="utf-8")
    assert prepare(tmp_path / "many", many, SMALL).identity != first.identity
