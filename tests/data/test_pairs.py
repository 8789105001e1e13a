"""Parallel text in every format read as the same pairs."""

import gzip
import io
import json
import lzma
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jumok.data import Pair, read_dataset, read_lines, read_pairs

PAIRS = [Pair("Good morning.", "좋은 아침입니다."), Pair("", "empty"), Pair("a  b ", "é\u2028x\x0by")]


def write(path, text):
    opened = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opened(path, "wb") as file:
        file.write(text.encode())
    return path


def lines(texts):
    return "".join(text + "\n" for text in texts)


@pytest.mark.parametrize("packed", ["", ".gz", ".xz"])
def test_two_files_tsv_and_jsonl_give_the_same_pairs(tmp_path, packed):
    source = write(tmp_path / f"a.en{packed}", lines(pair.source for pair in PAIRS))
    target = write(tmp_path / f"a.ko{packed}", lines(pair.target for pair in PAIRS))
    tsv = write(tmp_path / f"a.tsv{packed}", lines(f"x\t{pair.target}\t{pair.source}" for pair in PAIRS))
    rows = [json.dumps({"translation": {"en": pair.source, "ko": pair.target}}) for pair in PAIRS]
    jsonl = write(tmp_path / f"a.jsonl{packed}", lines(rows))
    assert list(read_pairs(source, target)) == PAIRS
    assert list(read_pairs(tsv, columns=(3, 2))) == PAIRS
    assert list(read_pairs(jsonl, columns=("translation.en", "translation.ko"))) == PAIRS


def test_tsv_columns_may_be_named_by_the_header(tmp_path):
    path = write(tmp_path / "a.tsv", "id\tko\ten\n1\t네\tyes\n")
    assert list(read_pairs(path, columns=("en", "ko"))) == [Pair("yes", "네")]


def test_byte_order_mark_and_windows_line_ends_are_dropped(tmp_path):
    path = write(tmp_path / "a.txt", "\ufeffone\r\ntwo\r\n\r\nthree \ufeff")
    assert list(read_lines(path)) == ["one", "two", "", "three \ufeff"]


def test_standard_input_is_a_text_file_or_tsv(monkeypatch, tmp_path):
    def stdin(text):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    stdin("one\ntwo\n")
    assert list(read_lines("-")) == ["one", "two"]
    stdin("one\n하나\n".replace("\n", "\t", 1))
    assert list(read_pairs("-")) == [Pair("one", "하나")]
    stdin("one\n")
    assert list(read_pairs("-", write(tmp_path / "t", "하나\n"))) == [Pair("one", "하나")]


def test_files_are_streamed_not_loaded(tmp_path):
    path = write(tmp_path / "a.txt", "x\n" * 100_000)
    pairs = read_pairs(path, path)
    assert next(pairs) == Pair("x", "x")


@given(st.lists(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\n\r\0")), min_size=1))
def test_any_lines_written_are_read_back(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("lines") / "a.txt"
    path.write_bytes(lines(texts).encode())
    texts[0] = texts[0].removeprefix("\ufeff")
    assert list(read_lines(path)) == texts


def test_a_saved_dataset_is_read_by_its_keys(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = [{"translation": {"en": pair.source, "ko": pair.target}} for pair in PAIRS]
    datasets.DatasetDict({"validation": datasets.Dataset.from_list(rows)}).save_to_disk(tmp_path)
    found = read_dataset(str(tmp_path), split="validation", columns=("translation.en", "translation.ko"))
    assert list(found) == PAIRS


def test_only_the_rows_of_one_language_are_read(tmp_path):
    path = tmp_path / "all.tsv"
    path.write_text("kor\t가\tk a\nfre\tbon\tb ɔ̃\nkor\t나\tn a\n", encoding="utf-8")
    assert list(read_pairs(path, columns=(2, 3), only=(1, "kor"))) == [Pair("가", "k a"), Pair("나", "n a")]
