"""Pretrained word vectors in a recipe: where embeddings begin, and nothing a trained model needs."""

import gzip
import os
import struct
from pathlib import Path

import pytest
import torch

from jumok.data import read_vectors
from jumok.models.weights import read_tensors
from jumok.tasks import TRANSLATION
from jumok.training.checkpoint import checkpoints
from support.commands import jumok, well, write
from support.runs import assert_same_run

WORDS = ["the", "big", "old", "house", "tree", "unseen"]
DIM = 4
ROWS = torch.randn(len(WORDS), DIM, generator=torch.Generator().manual_seed(0))
RECIPE = f"""
[data]
source = "train.en"
target = "train.xx"
[tokenizer]
kind = "word"
[encoder]
kind = "rnn"
width = 8
embedding = {DIM}
vectors = "$HERE/vectors"
[decoder]
kind = "rnn"
width = 8
embedding = {DIM}
[training]
steps = 2
warmup = 1
validate_every = 2
metric = "loss"
"""


def lines(rows):
    return "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in zip(WORDS, rows.tolist(), strict=True))


def binary(rows):
    return b"".join(
        word.encode() + b" " + struct.pack(f"<{DIM}f", *row) for word, row in zip(WORDS, rows.tolist(), strict=True)
    )


FORMATS = {
    "glove.txt": lines(ROWS).encode(),
    "word2vec.txt": f"{len(WORDS)} {DIM}\n{lines(ROWS)}".encode(),
    "word2vec.bin": f"{len(WORDS)} {DIM}\n".encode() + binary(ROWS),
    "fasttext.vec.gz": gzip.compress(f"{len(WORDS)} {DIM}\n{lines(ROWS)}".encode()),
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder with a small parallel text, which is where we are."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HERE", str(tmp_path))
    pairs = [
        (f"the {size} {thing}", f"{thing} {size}") for size in ("big", "old") for thing in ("house", "tree", "cup")
    ]
    write(tmp_path / "train.en", "".join(f"{source}\n" for source, _ in pairs))
    write(tmp_path / "train.xx", "".join(f"{target}\n" for _, target in pairs))
    return tmp_path


def recipe(file, text=RECIPE, content=None):
    Path(file).write_bytes(FORMATS[file] if content is None else content)
    return write(Path("recipe.toml"), text.replace('vectors"', f'{file}"'))


def begun(folder):
    """The embeddings of the source as they were before the first step, which a rate of nearly 0 leaves."""
    trained = TRANSLATION.load(folder, device="cpu").trained
    return trained.tokenizers.source.pieces, trained.model.encoder.embedding.table.detach()


STILL = ["--set=training.learning_rate=1e-30", "--device", "cpu"]


@pytest.mark.parametrize("file", FORMATS)
def test_embeddings_begin_with_the_vectors_of_their_words_in_every_format(file):
    done = well("train", recipe(file), "--out", "run", *STILL)
    assert f"5 of 10 pieces of the source have a vector in {os.getcwd()}/{file}" in done.err
    pieces, table = begun("run")
    rows = {word: table[pieces.index(f"▁{word}")] for word in WORDS if word != "unseen"}
    ratio = torch.stack([rows[word] / ROWS[WORDS.index(word)] for word in rows])
    torch.testing.assert_close(ratio, ratio.mean().expand_as(ratio))  # one number for all: cosines are kept
    assert 0.5 < torch.stack(list(rows.values())).std() < 2  # the spread of a random table
    assert table.isfinite().all()


def test_both_sides_may_have_their_own():
    text = RECIPE.replace("[training]", 'vectors = "$HERE/vectors"\n[training]')
    done = well("train", recipe("glove.txt", text), "--out", "run", *STILL)
    assert "pieces of the source have a vector" in done.err
    assert "pieces of the target have a vector" in done.err


def test_a_trained_model_does_not_need_the_file():
    well("train", recipe("glove.txt"), "--out", "run", "--device", "cpu")
    os.remove("glove.txt")
    assert len(well("translate", "run", stdin="the old house\n").out.splitlines()) == 1
    assert well("inspect", "run").code == 0


@pytest.mark.parametrize("frozen", [True, False])
def test_frozen_vectors_stay_as_they_begin_and_others_learn(frozen):
    fast = ["--set=training.learning_rate=0.1", f"--set=encoder.freeze_vectors={str(frozen).lower()}", "--device=cpu"]
    well("train", recipe("glove.txt"), "--out", "still", *STILL)
    well("train", recipe("glove.txt"), "--out", "fast", *fast)
    (_, before), (_, after) = begun("still"), begun("fast")
    assert torch.equal(before, after) == frozen
    weights = [
        TRANSLATION.load(folder, device="cpu").trained.model.encoder.forwards[0].state_dict()
        for folder in ("still", "fast")
    ]
    assert any(not torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.slow
def test_a_resumed_run_is_the_run_without_a_break_even_when_the_file_has_gone():
    frozen = ["--set=encoder.freeze_vectors=true", "--set=training.validate_every=2", "--device=cpu"]
    well("train", recipe("glove.txt"), "--out", "whole", *frozen, "--set=training.steps=4")
    well("train", "recipe.toml", "--out", "broken", *frozen)
    os.remove("glove.txt")
    done = well("train", "recipe.toml", "--out", "broken", *frozen, "--set=training.steps=4", "--resume")
    assert "resuming after step 2" in done.err
    assert "have a vector" not in done.err
    assert_same_run(Path("whole"), Path("broken"))
    saved = read_tensors(checkpoints(Path("broken/checkpoints"))[-1] / "optimiser.safetensors")
    assert not any("encoder.embedding" in name for name in saved)


def refused(*arguments):
    done = jumok("train", *arguments, "--out", "run", "--device", "cpu")
    assert done.code == 1
    *_, said = done.err.splitlines()
    assert said.startswith("jumok: ")
    return said.removeprefix("jumok: ")


def test_vectors_of_another_width_are_refused_before_anything_is_made():
    said = refused(recipe("glove.txt"), "--set=encoder.embedding=6")
    assert said == (
        f'encoder.vectors = "{os.getcwd()}/glove.txt" holds vectors of 4 numbers, but tokens are 6 wide; '
        "set encoder.embedding = 4"
    )
    assert not os.path.exists("run")


@pytest.mark.parametrize(("positions", "width"), [("added", 4), ("concatenated", 12)])
def test_a_transformer_is_told_its_own_setting(positions, width):
    text = RECIPE.replace(f'kind = "rnn"\nwidth = 8\nembedding = {DIM}\nvectors', "width = 16\nhidden = 8\nvectors")
    changes = [f"--set=encoder.positions={positions}"]
    changes += ["--set=encoder.position_width=8"] if positions == "concatenated" else []
    assert refused(recipe("glove.txt", text), *changes).endswith(f"set encoder.width = {width}")
    well("train", "recipe.toml", "--out", "right", *changes, f"--set=encoder.width={width}", *STILL)


def test_a_file_that_is_not_there_is_said_before_anything_is_made():
    path = recipe("glove.txt")
    os.rename("glove.txt", "glove.text")
    here = os.getcwd()
    assert refused(path) == f"there is no file {here}/glove.txt; did you mean {here}/glove.text?"
    assert not os.path.exists("run")
    assert "needs the environment variable NOT_SET" in refused(path, "--set=encoder.vectors=$NOT_SET/a")


def test_a_file_without_a_single_word_of_the_vocabulary_is_refused():
    said = refused(recipe("glove.txt", content=b"koira 1 2 3 4\nkissa 4 3 2 1\n"))
    assert said.startswith("none of the 10 pieces of the source vocabulary, such as 'house', 'tree', ")
    assert f"is a word of {os.getcwd()}/glove.txt; is it of the same language?" in said


def test_settings_that_do_not_go_together():
    assert "encoder.freeze_vectors = true has no effect, because encoder.vectors = " in refused(
        recipe("glove.txt", RECIPE.replace('vectors = "$HERE/vectors"', "freeze_vectors = true"))
    )
    text = RECIPE.replace("[training]", 'vectors = "$HERE/vectors"\ntied = "embeddings"\n[training]')
    assert "decoder.vectors would replace encoder.vectors" in refused(recipe("glove.txt", text))


REAL = Path(os.environ.get("JUMOK_DATA", "/nowhere"), "vectors/pang_lee_fasttext_100d.vec.gz")


@pytest.mark.skipif(not REAL.is_file(), reason="JUMOK_DATA names no folder with vectors/")
def test_a_real_file_lends_its_vectors(here):
    vectors = read_vectors(REAL)
    words = [word for word in vectors.words if word.isalpha()][:60]
    write(here / "train.en", "".join(f"{one} {other}\n" for one, other in zip(words, words[::-1], strict=True)))
    write(here / "train.xx", "".join(f"{one}\n" for one in words))
    text = RECIPE.replace(f'embedding = {DIM}\nvectors = "$HERE/vectors"', f'embedding = 100\nvectors = "{REAL}"')
    done = well("train", write(here / "real.toml", text), "--out", "run", *STILL)
    pieces, table = begun("run")
    known = sum(piece.removeprefix("▁") in vectors.words for piece in pieces)
    assert f"{known} of {len(pieces)} pieces of the source have a vector" in done.err
    one, other = (word for word in words[10:12])
    mine = [table[pieces.index(f"▁{word}")] for word in (one, other)]
    theirs = [torch.from_numpy(vectors.matrix[vectors.words.index(word)]) for word in (one, other)]
    torch.testing.assert_close(torch.cosine_similarity(*mine, dim=0), torch.cosine_similarity(*theirs, dim=0))
