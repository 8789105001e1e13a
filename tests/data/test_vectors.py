import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from jumok.data import WordVectors, match, read_vectors

WORDS = ["the", "주목", ". . ."]
MATRIX = np.array([[1, -0.5], [0.25, 3e-5], [0, 7]], np.float32)
TEXT = "".join(f"{word} {row[0]} {row[1]}\n" for word, row in zip(WORDS, MATRIX, strict=True))


def binary(separator=b""):
    rows = [
        word.replace(" ", "").encode() + b" " + struct.pack("<2f", *row)
        for word, row in zip(WORDS, MATRIX, strict=True)
    ]
    return b"3 2\n" + separator.join(rows)


@pytest.mark.parametrize("file", ["glove.txt", "word2vec.txt", "cc.vec", "cc.vec.gz"])
def test_text_formats_with_and_without_header_read_alike(tmp_path, file):
    text = TEXT if file == "glove.txt" else "3 2\n" + TEXT.replace("\n", " \n")
    opened = gzip.open if file.endswith(".gz") else open
    with opened(tmp_path / file, "wb") as out:
        out.write(text.encode())
    vectors = read_vectors(tmp_path / file)
    assert vectors.words == WORDS
    assert np.array_equal(vectors.matrix, MATRIX)


@pytest.mark.parametrize("separator", [b"", b"\n"])
def test_word2vec_binary_is_read_with_and_without_line_ends(tmp_path, separator):
    (tmp_path / "v.bin").write_bytes(binary(separator))
    vectors = read_vectors(tmp_path / "v.bin")
    assert vectors.words == ["the", "주목", "..."]
    assert np.array_equal(vectors.matrix, MATRIX)


def test_only_the_asked_words_are_kept_and_the_first_of_two_counts(tmp_path):
    (tmp_path / "v.txt").write_text("a 1 2\nb 3 4\na 5 6\n", encoding="utf-8")
    assert read_vectors(tmp_path / "v.txt", only={"a", "z"}).words == ["a"]
    assert read_vectors(tmp_path / "v.txt").matrix.tolist() == [[1, 2], [3, 4]]


def test_pieces_find_their_word_or_are_nan():
    matched = match(WordVectors(WORDS, MATRIX), ["<pad>", "▁the", "▁The", "주목", "▁unseen"])
    assert torch.equal(matched[1:4], torch.from_numpy(MATRIX[[0, 0, 1]]))
    assert torch.isnan(matched[[0, 4]]).all()


REAL = Path(os.environ.get("JUMOK_DATA", "/nowhere"), "vectors")


@pytest.mark.skipif(not REAL.is_dir(), reason="JUMOK_DATA names no folder with vectors/")
@pytest.mark.parametrize(
    ("file", "shape"),
    [
        ("lee_fasttext.vec.gz", (1762, 10)),
        ("pang_lee_fasttext_100d.vec.gz", (1694, 100)),
        ("euclidean_word2vec.bin.gz", (2747, 10)),
        ("word2vec_en_300d_20words.txt.gz", (20, 300)),
        ("glove_sample_50d.txt.gz", (76, 50)),
    ],
)
def test_real_files_have_the_words_they_are_known_to_have(file, shape):
    vectors = read_vectors(REAL / file)
    assert vectors.matrix.shape == shape
    assert len(set(vectors.words)) == shape[0]
    assert np.isfinite(vectors.matrix).all()
