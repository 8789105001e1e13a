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
from jumok.errors import ArgumentError, DataError

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


def test_lines_of_two_sides_with_bars_between_are_pairs(tmp_path):
    path = write(tmp_path / "text.en-ko", "a b ||| 가 나\n ||| \nc ||| 다\n")
    assert list(read_pairs(path)) == [Pair("a b", "가 나"), Pair("", ""), Pair("c", "다")]


@pytest.mark.parametrize("text", ["a\tb\n", '{"source": "a", "target": "b"}\n', "a ||| b\n"])
def test_of_standard_input_the_first_line_tells_what_it_is(monkeypatch, text):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert list(read_pairs("-")) == [Pair("a", "b")]


def test_a_line_without_bars_is_named(tmp_path):
    with pytest.raises(DataError, match=r"text, line 2 has 0 times \|\|\|, but must have it once"):
        list(read_pairs(write(tmp_path / "text", "a ||| b\nc\n")))


def test_a_filter_that_matches_nothing_says_what_there_is(tmp_path):
    path = write(tmp_path / "a.tsv", "a\tb\teng\nc\td\tfra\ne\tf\tfra\n")
    assert list(read_pairs(path, only=(3, "eng"))) == [Pair("a", "b")]
    said = r'data.only = \[3, "kor"\] matches no row of .*a.tsv: column 3 holds "fra" in 2 rows, "eng" in 1 rows'
    with pytest.raises(DataError, match=said):
        list(read_pairs(path, only=(3, "kor")))
    with pytest.raises(DataError, match=r"no row has a column 7"):
        list(read_pairs(path, only=(7, "kor")))


def test_a_corpus_in_many_files_is_read_as_one_in_the_order_of_their_names(tmp_path):
    for number in (10, 2, 1):
        (tmp_path / f"{number:02}.en").write_text(f"one {number}\ntwo {number}\n")
        (tmp_path / f"{number:02}.ko").write_text(f"하나 {number}\n둘 {number}\n")
    found = [pair.source for pair in read_pairs(tmp_path / "*.en", tmp_path / "*.ko")]
    assert found == ["one 1", "two 1", "one 2", "two 2", "one 10", "two 10"]


def test_files_of_a_corpus_that_do_not_match_are_refused(tmp_path):
    for name in ("1.en", "2.en", "1.ko"):
        (tmp_path / name).write_text("a\n")
    with pytest.raises(DataError, match=r"2 files of the source, .*1\.en …, but 1 of the target"):
        list(read_pairs(tmp_path / "*.en", tmp_path / "*.ko"))


def test_a_file_whose_name_looks_like_a_pattern_is_itself(tmp_path):
    (tmp_path / "a[1].tsv").write_text("a\tb\n")
    assert list(read_pairs(tmp_path / "a[1].tsv")) == [("a", "b")]


def test_a_pattern_that_names_no_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"\*\.tsv"):
        list(read_pairs(tmp_path / "*.tsv"))


def test_a_column_of_features_that_is_not_read_is_refused(tmp_path):
    path = tmp_path / "forms.tsv"
    path.write_text("walk\tV;PST\twalked\n")
    with pytest.raises(ArgumentError, match=r"features names column 2, .* columns = \[\[2, 1\], 3\]"):
        read_pairs(path, columns=(1, 3), features=(2,))
    assert list(read_pairs(path, columns=((2, 1), 3), features=(2,))) == [("<V> <PST> walk", "walked")]
