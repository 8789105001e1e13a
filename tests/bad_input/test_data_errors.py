"""What a user can do wrong with data, and the message that helps."""

import gzip
import os
import struct
import subprocess
import sys
from random import Random

import numpy as np
import pytest

from jumok.data import (
    BatchConfig,
    BatchPlan,
    DataConfig,
    Dataset,
    FilterConfig,
    LengthCounts,
    Tokenizer,
    TokenizerConfig,
    TokenizerPair,
    corpus_pairs,
    prepare,
    read_dataset,
    read_lines,
    read_pairs,
    read_vectors,
    write_dataset,
)
from jumok.errors import ArgumentError, ConfigError, DataError, MissingExtraError
from support.refusals import refuses

TEXTS = [text for pair in corpus_pairs("cldr", 200) for text in pair]

FASTTEXT = struct.pack("<ii", 793712314, 12) + bytes(50)


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_files_of_different_lengths_are_counted_and_quoted_in_one_line(tmp_path):
    source = write(tmp_path / "train.ko", "안녕\n감사합니다.\n네\n")
    target = write(tmp_path / "train.en", "Hello\nWhere is the station?\n")
    with refuses(DataError) as raised:
        list(read_pairs(source, target))
    assert str(raised.value) == (
        f"{source} has 3 lines but {target} has 2, and line n of each must be the same sentence; "
        'their last lines are "네" and "Where is the station?"; look for a line lost or split in two'
    )


def test_a_zero_byte_is_located_and_not_read_over(tmp_path):
    path = write(tmp_path / "a.txt", b"fine\nca\0fe\n")
    with refuses(DataError, f"{path}, line 2: byte 3", r"tr -d '\000'"):
        list(read_lines(path))


@pytest.mark.parametrize(
    ("beginning", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "PNG image"),
        (b"\xff\xd8\xff\xe0\0", "JPEG image"),
        (b"GIF89a\x10\0", "GIF image"),
        (gzip.compress(b"text", mtime=0), "gzip"),
    ],
)
def test_what_is_no_text_at_all_is_called_what_it_is(tmp_path, beginning, kind):
    path = write(tmp_path / "a", beginning)
    with refuses(DataError, path, kind):
        list(read_lines(path))


def test_a_missing_file_is_named_with_its_nearest_neighbour(tmp_path):
    write(tmp_path / "train.en", "x\n")
    for name, facts in (("trian.en", f"{tmp_path / 'train.en'}?"), ("no/a", f"{tmp_path / 'no'}"), ("", "folder")):
        with refuses(DataError, tmp_path / name, facts):
            list(read_lines(tmp_path / name))


def test_damaged_archives_are_named(tmp_path):
    cut = gzip.compress(b"line\n" * 1000)[:-9]
    for name, content, fact in (
        ("a.gz", cut, "cut short"),
        ("b.gz", b"text\n", "compressed"),
        ("b.xz", b"text\n", "compressed"),
    ):
        path = write(tmp_path / name, content)
        with refuses(DataError, path, fact):
            list(read_lines(path))


def test_empty_corpora_are_refused(tmp_path):
    empty = write(tmp_path / "a.tsv", "")
    for given in ([empty], [empty, empty]):
        with refuses(DataError, empty, "no pairs"):
            list(read_pairs(*given))


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ('{"source": "a"', "JSON object"),
        ("[" * 100_000, "JSON object"),
        ("[1, 2]", "JSON object"),
        ('{"source": "a", "traget": "b"}', "'target' … 'traget'?"),
        ('{"id": 7, "en": "a", "ko": "b"}', "'id', 'en', 'ko' … data.columns = [\"en\", \"ko\"]"),
        ('{"translation": {"en": "a", "한": "b"}}', 'data.columns = ["translation.en", "translation.한"]'),
        ('{"source": "a", "target": 5}', "'target' … 5"),
        ('{"source": "a", "target": "\\ud800"}', "'target' … '\\ud800'"),
    ],
)
def test_a_bad_json_line_is_located(tmp_path, line, facts):
    path = write(tmp_path / "a.jsonl", '{"source": "a", "target": "b"}\n' + line + "\n")
    with refuses(DataError, f"{path}, line 2", facts) as raised:
        list(read_pairs(path))
    assert len(str(raised.value)) < 400


def test_missing_columns_are_counted(tmp_path):
    path = write(tmp_path / "a.tsv", "a\tb\nonly one\n")
    for columns, facts in (
        ((1, 2), 'line 2 … 1 columns … [1, 2] … "only one"'),
        (("a", "c"), "'c'"),
        ((0, 1), "[0, 1]"),
    ):
        with refuses(DataError, path, facts):
            list(read_pairs(path, columns=columns))


def test_formats_that_cannot_be_meant_are_refused(tmp_path):
    one = write(tmp_path / "train.en", "one side alone\n")
    with refuses(ArgumentError, one, "|||", "target file"):
        list(read_pairs(one))
    with refuses(ArgumentError, "keys", "column numbers"):
        list(read_pairs(write(tmp_path / "a.jsonl", "{}\n"), columns=(1, 2)))


def test_csv_is_refused_with_a_command_that_converts_it(tmp_path):
    path = write(tmp_path / "a.csv", '"one, two",eins\n"say ""a""","zwei\ndrei"\n')
    with refuses(ArgumentError, path, "CSV", "TSV") as raised:
        list(read_pairs(path))
    command = str(raised.value).split("for example: ")[1].replace("FILE", "a.csv").replace("NEW", "a")
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert list(read_pairs(tmp_path / "a.tsv")) == [("one, two", "eins"), ('say "a"', "zwei drei")]


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with refuses(MissingExtraError, "pip install '.[datasets]'"):
        read_dataset("opus100")


def test_a_split_that_a_saved_dataset_does_not_have_is_named(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([{"source": "a", "target": "b"}])
    rows.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": rows, "dev": rows}).save_to_disk(tmp_path / "some")
    for name, facts in (("some", "'train', 'dev'"), ("one", "")):
        with refuses(DataError, tmp_path / name, "'validation'", facts):
            read_dataset(str(tmp_path / name), split="validation")
    assert [*read_dataset(str(tmp_path / "one"))] == [("a", "b")]


@pytest.fixture
def stored(tmp_path):
    write_dataset(tmp_path / "a.store", [([1, 2, 3], [4] * 50_000)] * 3, size=5, fingerprint="f")
    return tmp_path / "a.store"


def test_a_truncated_dataset_is_refused(stored):
    whole = stored.read_bytes()
    for part in (whole[:0], whole[:5], whole[: len(whole) // 2], whole[:-1], whole[100:], whole[:-8] + b"jumokst1"):
        stored.write_bytes(part)
        with refuses(DataError, stored, "damaged", "delete it"):
            Dataset(stored)


def test_a_changed_bit_anywhere_is_found(stored):
    whole = stored.read_bytes()

    def read_all():
        Dataset(stored).check()

    read_all()
    for at in np.linspace(0, len(whole) - 1, 60).astype(int):
        changed = bytearray(whole)
        changed[at] ^= 4
        stored.write_bytes(changed)
        with pytest.raises(DataError):
            read_all()


def test_a_changed_row_is_found_when_it_is_read(stored):
    changed = bytearray(stored.read_bytes())
    changed[70_000] ^= 1
    stored.write_bytes(changed)
    opened = Dataset(stored)
    with refuses(DataError, stored):
        opened[0]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_while_writing_leaves_the_old_file(stored, monkeypatch):
    import jumok.files

    def full_disk(path, mode):
        return open("/dev/full", mode)

    before = stored.read_bytes()
    monkeypatch.setattr(jumok.files, "open", full_disk, raising=False)
    with refuses(DataError, stored, "No space left on device"):
        write_dataset(stored, [([1] * 100_000, [1])], size=5)
    assert stored.read_bytes() == before


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    write(tmp_path / "file", "in the way")
    with refuses(DataError, tmp_path / "file" / "a.store"):
        write_dataset(tmp_path / "file" / "a.store", [], size=5)


def test_a_corpus_filtered_to_nothing_says_by_what(tmp_path):
    for data, filters, facts in (
        (DataConfig(corpus="cldr", size=50), FilterConfig(max_length=1), "0 of 50 pairs … too long"),
        (DataConfig(corpus="cldr", size=5, joined=(9,)), FilterConfig(), "data.joined = [9] … 5 pairs"),
    ):
        with refuses(DataError, facts):
            prepare(tmp_path, data, TokenizerConfig(kind="char"), filters)
    assert not (tmp_path / "train.store").exists()


def test_unknown_corpora_and_locales_are_refused():
    with refuses(ArgumentError, "cldrr", "cldr, phrases, dates, reverse"):
        list(corpus_pairs("cldrr", 1))
    for locale in ("xx", "", "english please", "../en"):
        with refuses(ArgumentError, "CLDR", repr(locale), "pt_BR"):
            list(corpus_pairs("cldr", 1, target=locale))


def test_a_step_that_does_not_exist_is_refused():
    plan = BatchPlan(LengthCounts(np.array([[3, 4]]), np.array([5])), BatchConfig())
    with refuses(ArgumentError, "epoch 0", "step 1", "1 steps"):
        plan.batch(0, 1)


@pytest.mark.parametrize(
    ("make", "facts"),
    [
        (lambda: FilterConfig(max_length=5, min_length=6), "filter.max_length = 5 … filter.min_length = 6"),
        (lambda: FilterConfig(max_ratio=0.5), "filter.max_ratio = 0.5"),
        (lambda: TokenizerConfig(size=200, byte_fallback=True), "tokenizer.size = 200 … 261"),
        (lambda: TokenizerConfig(kind="word", byte_fallback=True), "tokenizer.byte_fallback"),
        (lambda: TokenizerConfig(kind="word", spaces="keep"), "tokenizer.spaces"),
        (lambda: TokenizerConfig(kind="bpe", sampling=1.0), "tokenizer.sampling = 1.0"),
        (lambda: TokenizerConfig(kind="char", sampling=0.1), "tokenizer.sampling"),
        (lambda: TokenizerConfig(source_form="jamo"), "tokenizer.shared = false"),
        (lambda: DataConfig(), "data.source … data.pairs … data.corpus"),
        (lambda: DataConfig(corpus="cldr", pairs="a.tsv"), "data.pairs and data.corpus are given"),
        (lambda: DataConfig(source="a"), "data.source and data.target"),
        (lambda: DataConfig(corpus="cldr", valid_target="a"), "data.valid_source and data.valid_target"),
        (lambda: DataConfig(pairs="a", valid_pairs="b", valid_source="c", valid_target="d"), "not both"),
        (lambda: DataConfig(source="-", target="-"), '"-"'),
        (lambda: DataConfig(source="a", target="b", size=9), 'data.size = 9 … data.corpus = ""; leave it out'),
        (lambda: DataConfig(pairs="a.tsv", locales=("en", "de")), 'data.locales = ["en", "de"] … set data.corpus'),
        (lambda: DataConfig(corpus="cldr", joined=()), "data.joined = [] … [1, 2, 3]"),
        (lambda: DataConfig(corpus="cldr", joined=(2, 2)), "data.joined = [2, 2] … [1, 2, 3]"),
    ],
)
def test_settings_that_cannot_work_are_named(make, facts):
    with refuses(ConfigError, facts):
        make()


@pytest.mark.parametrize(
    ("name", "content", "facts"),
    [
        ("v.txt", "a 1 2\nb 3\n", "line 2 … 1 numbers … 2"),
        ("v.txt", "2 2\na 1 2\nb 1 x\n", "line 3 … 'x'"),
        ("v.txt", "3 2\na 1 2\nb 1 2\n", "3 words … 2"),
        ("v.vec", "2 2\n", "2 words … 0"),
        ("v.txt", "", "line 1"),
        ("v.bin", "hello\n", "line 1"),
        ("v.bin", b"2 2\na " + bytes(8) + b"b " + bytes(7), "word 2 of 2"),
        ("v.bin", b"2 2\na " + bytes(8), "word 2 of 2"),
        ("v.bin", b"2 2\n" + b"x" * 20_000, "word 1 of 2"),
        ("v.bin", FASTTEXT, "fastText … .vec"),
        ("v.ftz", FASTTEXT, "fastText … .vec"),
        ("v.vec", FASTTEXT, "fastText … fasttext print-word-vectors MODEL.bin"),
        ("v.bin", struct.pack("<iiii", 100, 5, 5, 5) + bytes(50), "fastText … .vec"),
        ("v.txt", "0 2\n", "no vectors"),
        ("v.dat", "\0\1? \2 x! z\r\n\3\n", "line 1"),
    ],
)
def test_malformed_vectors_are_located(tmp_path, name, content, facts):
    path = write(tmp_path / name, content)
    with refuses(DataError, path, facts):
        read_vectors(path)


def test_text_that_is_not_utf8_is_located_and_its_likely_encoding_named(tmp_path):
    path = tmp_path / "a.txt"
    for content, encoding, facts in (
        ("fine\ncafé\n", "ISO-8859-1", "line 2: byte 4 … 0xe9"),
        ("wide", "UTF-16", "line 1"),
        ("좋은 고양이, 긴 돌\n", "CP949", "line 1"),
        ("some text\n", "UTF-16LE", "line 1"),
        ("some text\n", "UTF-16BE", "line 1"),
    ):
        write(path, content.encode(encoding))
        with refuses(DataError, path, facts, f"iconv -f {encoding} -t UTF-8"):
            list(read_lines(path))


def test_a_vocabulary_that_cannot_be_trained_is_refused():
    with refuses(DataError, "tokenizer.size = 20", "too small"):
        Tokenizer.train(TEXTS, TokenizerConfig(size=20))
    with refuses(DataError, "training text", "empty"):
        Tokenizer.train(["", " "], TokenizerConfig())


def test_a_damaged_or_missing_tokenizer_is_refused(tmp_path):
    model = Tokenizer.train(TEXTS, TokenizerConfig(kind="char")).model
    for damaged in (b"", b"junk", model[:-3], model[:500], b"\0" * 99):
        path = write(tmp_path / "tokenizer.model", damaged)
        with refuses(DataError, path, "damaged"):
            Tokenizer.load(path)
    path.unlink()
    with refuses(DataError, "tokenizer.model", "No such file"):
        TokenizerPair.load(tmp_path)


def test_what_a_tokenizer_cannot_do_is_refused():
    tokenizer = Tokenizer.train(TEXTS, TokenizerConfig(kind="char"))
    for wrong in (tokenizer.size, -1):
        with refuses(ArgumentError, "0", tokenizer.size - 1):
            tokenizer.decode([wrong])
    with refuses(ArgumentError, "char"):
        tokenizer.sample("a", 1.0, Random(0))
