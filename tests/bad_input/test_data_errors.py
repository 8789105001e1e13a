"""What a user can do wrong with data, and the message that helps."""

import gzip
import os
import struct
import sys

import numpy as np
import pytest

from jumok.data import (
    BatchConfig,
    BatchPlan,
    DataConfig,
    Dataset,
    FilterConfig,
    LengthCounts,
    Normaliser,
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

TEXTS = [text for pair in corpus_pairs("cldr", 200) for text in pair]


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def message_of(error, call):
    with pytest.raises(error) as caught:
        call()
    return str(caught.value)


def test_files_of_different_lengths_are_counted_and_quoted_in_one_line(tmp_path):
    source = write(tmp_path / "train.ko", "안녕\n감사합니다.\n네\n")
    target = write(tmp_path / "train.en", "Hello\nWhere is the station?\n")
    assert message_of(DataError, lambda: list(read_pairs(source, target))) == (
        f"{source} has 3 lines but {target} has 2, and line n of each must be the same sentence; "
        'their last lines are "네" and "Where is the station?"; look for a line lost or split in two'
    )


def test_invalid_utf8_is_located(tmp_path):
    path = write(tmp_path / "a.txt", b"fine\ncaf\xe9\n")
    said = message_of(DataError, lambda: list(read_lines(path)))
    assert said.startswith(f"{path}, line 2: byte 4 of the line (0xe9) is not UTF-8")
    wide = write(tmp_path / "b.txt", "wide".encode("utf-16"))
    assert "iconv -f UTF-16" in message_of(DataError, lambda: list(read_lines(wide)))


@pytest.mark.parametrize(
    ("text", "encoding"), [("좋은 고양이, 긴 돌", "CP949"), ("café Müller, naïve Übung", "ISO-8859-1")]
)
def test_the_encoding_to_convert_from_is_the_likely_one(tmp_path, text, encoding):
    path = write(tmp_path / "a.txt", f"{text}\n".encode(encoding))
    assert f"iconv -f {encoding} -t UTF-8" in message_of(DataError, lambda: list(read_lines(path)))


def test_a_zero_byte_is_located_and_not_read_over(tmp_path):
    path = write(tmp_path / "a.txt", b"fine\nca\0fe\n")
    said = message_of(DataError, lambda: list(read_lines(path)))
    assert said == (
        f"{path}, line 2: byte 3 of the line is 0, which is not text; remove it, for example: "
        r"tr -d '\000' < FILE > NEW"
    )


@pytest.mark.parametrize("encoding", ["UTF-16LE", "UTF-16BE"])
def test_wide_text_without_a_mark_is_told_its_encoding(tmp_path, encoding):
    path = write(tmp_path / "a.txt", "some text\n".encode(encoding))
    said = message_of(DataError, lambda: list(read_lines(path)))
    assert said.endswith(f"is 0, as in UTF-16; convert the file first, for example: iconv -f {encoding} -t UTF-8")


@pytest.mark.parametrize(
    ("beginning", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "a PNG image"),
        (b"\xff\xd8\xff\xe0\0", "a JPEG image"),
        (b"GIF89a\x10\0", "a GIF image"),
        (gzip.compress(b"text", mtime=0), "compressed by gzip without the ending .gz"),
    ],
)
def test_what_is_no_text_at_all_is_called_what_it_is(tmp_path, beginning, kind):
    path = write(tmp_path / "a", beginning)
    said = message_of(DataError, lambda: list(read_lines(path)))
    assert said == f"{path} is {kind}, not text; name a file of text, one sentence a line"


def test_a_missing_file_is_named_with_its_nearest_neighbour(tmp_path):
    write(tmp_path / "train.en", "x\n")
    assert message_of(DataError, lambda: list(read_lines(tmp_path / "trian.en"))) == (
        f"there is no file {tmp_path / 'trian.en'}; did you mean {tmp_path / 'train.en'}?"
    )
    assert "does not exist either" in message_of(DataError, lambda: list(read_lines(tmp_path / "no" / "a")))
    assert "is a folder" in message_of(DataError, lambda: list(read_lines(tmp_path)))


def test_damaged_archives_are_named(tmp_path):
    whole = gzip.compress(b"line\n" * 1000)
    assert "is cut short" in message_of(DataError, lambda: list(read_lines(write(tmp_path / "a.gz", whole[:-9]))))
    for name in ("b.gz", "b.xz"):
        path = write(tmp_path / name, b"plain text\n")
        assert "not compressed as its name says" in message_of(DataError, lambda path=path: list(read_lines(path)))


def test_empty_corpora_are_refused(tmp_path):
    empty = write(tmp_path / "a.tsv", "")
    assert (
        message_of(DataError, lambda: list(read_pairs(empty))) == f"{empty} holds no pairs; is it the file you meant?"
    )
    assert "holds no pairs" in message_of(DataError, lambda: list(read_pairs(empty, empty)))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"source": "a"', "is not a JSON object"),
        ("[" * 100_000, "is not a JSON object"),
        ("[1, 2]", "is not a JSON object"),
        ('{"source": "a", "traget": "b"}', "line 2 has no key 'target'; did you mean 'traget'?"),
        (
            '{"id": 7, "en": "a", "ko": "b"}',
            "there are 'id', 'en', 'ko'; name source and target: data.columns = [\"en\", \"ko\"]",
        ),
        (
            '{"translation": {"en": "a", "한": "b"}}',
            'there are \'translation\'; name source and target: data.columns = ["translation.en", "translation.한"]',
        ),
        ('{"source": "a", "target": 5}', "'target' is 5"),
        ('{"source": "a", "target": "\\ud800"}', "'target' is '\\ud800'"),
    ],
)
def test_a_bad_json_line_is_located(tmp_path, line, said):
    path = write(tmp_path / "a.jsonl", '{"source": "a", "target": "b"}\n' + line + "\n")
    found = message_of(DataError, lambda: list(read_pairs(path)))
    assert found.startswith(f"{path}, line 2")
    assert said in found
    assert len(found) < 400


def test_missing_columns_are_counted(tmp_path):
    path = write(tmp_path / "a.tsv", "a\tb\nonly one\n")
    assert message_of(DataError, lambda: list(read_pairs(path))) == (
        f'{path}, line 2 has 1 columns separated by tabs, but columns [1, 2] are needed: "only one"'
    )
    assert "'c'" in message_of(DataError, lambda: list(read_pairs(path, columns=("a", "c"))))
    assert "columns [0, 1]" in message_of(DataError, lambda: list(read_pairs(path, columns=(0, 1))))


def test_formats_that_cannot_be_meant_are_refused(tmp_path):
    (tmp_path / "train.en").write_text("one side alone\n")
    said = message_of(ArgumentError, lambda: list(read_pairs(tmp_path / "train.en")))
    assert said.endswith("lines of `source ||| target`; give the target file too")
    path = write(tmp_path / "a.jsonl", "{}\n")
    assert "two keys, not column numbers" in message_of(ArgumentError, lambda: list(read_pairs(path, columns=(1, 2))))


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "pip install 'jumok[datasets]'" in message_of(MissingExtraError, lambda: read_dataset("opus100"))


def test_a_split_that_a_saved_dataset_does_not_have_is_named(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list([{"source": "a", "target": "b"}])
    rows.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": rows, "dev": rows}).save_to_disk(tmp_path / "some")
    said = message_of(DataError, lambda: read_dataset(str(tmp_path / "some"), split="validation"))
    assert said == f"the dataset {tmp_path / 'some'} has no split 'validation'; there are 'train', 'dev'"
    said = message_of(DataError, lambda: read_dataset(str(tmp_path / "one"), split="validation"))
    assert "'validation'" in said
    assert [*read_dataset(str(tmp_path / "one"))] == [("a", "b")]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_vocabulary_larger_than_the_data_allows_says_what_is_possible(kind, capfd):
    said = message_of(DataError, lambda: Tokenizer.train(TEXTS, TokenizerConfig(kind=kind, size=30_000)))
    assert said.startswith("tokenizer.size = 30000 is more than the training text allows; the most is ")
    most = int(said.split("the most is ")[1].split(":")[0])
    assert Tokenizer.train(TEXTS, TokenizerConfig(kind=kind, size=most)).size == most
    assert capfd.readouterr() == ("", "")


def test_a_vocabulary_smaller_than_the_alphabet_says_what_is_needed():
    said = message_of(DataError, lambda: Tokenizer.train(TEXTS, TokenizerConfig(size=20)))
    assert said.startswith("tokenizer.size = 20 is too small for the training text, whose characters alone need ")


def test_an_empty_text_trains_no_tokenizer():
    said = message_of(DataError, lambda: Tokenizer.train(["", " "], TokenizerConfig()))
    assert said == "the training text is empty, so there is nothing to train a tokenizer on"


@pytest.mark.parametrize(
    "damage", [lambda b: b"", lambda b: b"junk", lambda b: b[:-3], lambda b: b[:500], lambda b: b"\0" * 99]
)
def test_a_damaged_tokenizer_is_refused(tmp_path, damage):
    model = Tokenizer.train(TEXTS, TokenizerConfig(kind="char")).model
    path = write(tmp_path / "tokenizer.model", damage(model))
    said = message_of(DataError, lambda: Tokenizer.load(path))
    assert said.startswith(f"{path} is not a jumok tokenizer, or is damaged")
    assert "\n" not in said


def test_a_missing_tokenizer_is_named(tmp_path):
    assert "tokenizer.model: No such file" in message_of(DataError, lambda: TokenizerPair.load(tmp_path))


def test_ids_outside_the_vocabulary_are_refused():
    tokenizer = Tokenizer.train(TEXTS, TokenizerConfig(kind="char"))
    assert "ids must lie between 0 and" in message_of(ArgumentError, lambda: tokenizer.decode([tokenizer.size]))
    assert "ids must lie between 0 and" in message_of(ArgumentError, lambda: tokenizer.decode([-1]))


def test_only_subwords_can_be_sampled():
    from random import Random

    tokenizer = Tokenizer.train(TEXTS, TokenizerConfig(kind="char"))
    assert "not char" in message_of(ArgumentError, lambda: tokenizer.sample("a", 1.0, Random(0)))


@pytest.fixture
def stored(tmp_path):
    write_dataset(tmp_path / "a.store", [([1, 2, 3], [4] * 50_000)] * 3, size=5, fingerprint="f")
    return tmp_path / "a.store"


def test_a_truncated_dataset_is_refused(stored):
    whole = stored.read_bytes()
    for part in (whole[:0], whole[:5], whole[: len(whole) // 2], whole[:-1], whole[100:], whole[:-8] + b"jumokst1"):
        stored.write_bytes(part)
        assert message_of(DataError, lambda: Dataset(stored)) == (
            f"{stored} is damaged, cut short or not a dataset; delete it, and jumok writes it again"
        )


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
    with pytest.raises(DataError):
        opened[0]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_while_writing_leaves_the_old_file(stored, monkeypatch):
    import jumok.files

    def full_disk(path, mode):
        return open("/dev/full", mode)

    before = stored.read_bytes()
    monkeypatch.setattr(jumok.files, "open", full_disk, raising=False)
    said = message_of(DataError, lambda: write_dataset(stored, [([1] * 100_000, [1])], size=5))
    assert said == f"cannot write {stored}: No space left on device"
    assert stored.read_bytes() == before


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    write(tmp_path / "file", "in the way")
    said = message_of(DataError, lambda: write_dataset(tmp_path / "file" / "a.store", [], size=5))
    assert said.startswith(f"cannot write {tmp_path / 'file' / 'a.store'}: ")


def test_a_corpus_filtered_to_nothing_says_by_what(tmp_path):
    data = DataConfig(corpus="cldr", size=50)
    said = message_of(
        DataError, lambda: prepare(tmp_path, data, TokenizerConfig(kind="char"), FilterConfig(max_length=1))
    )
    assert said.startswith("no pair is left to learn from: kept 0 of 50 pairs (dropped: ")
    assert "too long" in said
    assert not (tmp_path / "train.store").exists()


def test_unknown_corpora_and_locales_are_refused():
    assert "there are cldr, phrases, dates, reverse" in message_of(
        ArgumentError, lambda: list(corpus_pairs("cldrr", 1))
    )
    for locale in ("xx", "", "english please", "../en"):
        said = message_of(ArgumentError, lambda locale=locale: list(corpus_pairs("cldr", 1, target=locale)))
        assert said == f"CLDR has no locale {locale!r}; write it like en, ko, de or pt_BR"


def test_a_step_that_does_not_exist_is_refused():
    plan = BatchPlan(LengthCounts(np.array([[3, 4]]), np.array([5])), BatchConfig())
    with pytest.raises(ArgumentError, match="epoch 0 has no step 1; it has 1 steps"):
        plan.batch(0, 1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: FilterConfig(min_length=0), "filter.min_length = 0"),
        (lambda: FilterConfig(max_length=5, min_length=6), "filter.max_length = 5 is below filter.min_length = 6"),
        (lambda: FilterConfig(max_ratio=0.5), "filter.max_ratio = 0.5"),
        (lambda: BatchConfig(tokens=0), "batch.tokens = 0"),
        (lambda: BatchConfig(sentences=-1), "batch.sentences = -1"),
        (lambda: BatchConfig(blur=2.0), "batch.blur = 2.0"),
        (lambda: TokenizerConfig(kind="bpee"), "tokenizer.kind = 'bpee' is not one of unigram, bpe, char, word"),
        (lambda: TokenizerConfig(size=4), "tokenizer.size = 4 is too small; the least is 5"),
        (lambda: TokenizerConfig(size=200, byte_fallback=True), "the least is 261"),
        (lambda: TokenizerConfig(coverage=0.97), "tokenizer.coverage = 0.97 must lie between 0.98 and 1"),
        (lambda: TokenizerConfig(kind="word", byte_fallback=True), "tokenizer.byte_fallback needs"),
        (lambda: TokenizerConfig(kind="word", spaces="keep"), "tokenizer.spaces"),
        (lambda: TokenizerConfig(kind="bpe", sampling=1.0), "tokenizer.sampling = 1.0"),
        (lambda: TokenizerConfig(kind="char", sampling=0.1), "tokenizer.sampling needs"),
        (lambda: TokenizerConfig(source_form="jamo"), "needs tokenizer.shared = false"),
        (lambda: TokenizerConfig(source_form="nfx", target_form="nfx"), "form = 'nfx' is not one of none, nfc"),
        (lambda: TokenizerConfig(sentences=0), "tokenizer.sentences = 0"),
        (lambda: Normaliser(spaces="some"), "spaces = 'some' is not one of collapse, keep"),
        (lambda: DataConfig(), "none of them is given"),
        (lambda: DataConfig(corpus="cldr", pairs="a.tsv"), "data.pairs and data.corpus is given"),
        (lambda: DataConfig(source="a"), "data.source and data.target belong together"),
        (
            lambda: DataConfig(corpus="cldr", valid_target="a"),
            "data.valid_source and data.valid_target belong together",
        ),
        (lambda: DataConfig(pairs="a", valid_pairs="b", valid_source="c", valid_target="d"), "not both"),
        (lambda: DataConfig(source="-", target="-"), 'only one file can be "-"'),
        (lambda: DataConfig(corpus="cldrr"), "data.corpus = 'cldrr' is not one of cldr, phrases, dates, reverse"),
        (lambda: DataConfig(corpus="cldr", size=0), "data.size = 0 must be at least 1"),
        (lambda: DataConfig(corpus="cldr", joined=()), "data.joined = [] must be different numbers of at least 1"),
        (lambda: DataConfig(corpus="cldr", joined=(2, 0)), "data.joined = [2, 0] must be different numbers"),
        (lambda: DataConfig(corpus="cldr", joined=(2, 2)), "such as [1, 2, 3]"),
    ],
)
def test_settings_that_cannot_work_are_named(make, said):
    assert said in message_of(ConfigError, make)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("v.txt", "a 1 2\nb 3\n", "line 2 has 1 numbers after the word, but the file's vectors have 2"),
        ("v.txt", "2 2\na 1 2\nb 1 x\n", "line 3: could not convert string to float: b'x'"),
        ("v.txt", "3 2\na 1 2\nb 1 2\n", "is cut short: its first line promises 3 words, but 2 follow"),
        ("v.vec", "2 2\n", "promises 2 words, but 0 follow"),
        ("v.txt", "", "line 1"),
        ("v.bin", "hello\n", "line 1"),
        ("v.bin", b"2 2\na " + bytes(8) + b"b " + bytes(7), "is cut short in word 2 of 2"),
        ("v.bin", b"2 2\na " + bytes(8), "is cut short in word 2 of 2"),
        ("v.bin", b"2 2\n" + b"x" * 20_000, "is cut short in word 1 of 2"),
        ("v.bin", struct.pack("<ii", 793712314, 12) + bytes(50), "is a fastText model"),
        ("v.ftz", struct.pack("<ii", 793712314, 12) + bytes(50), "is a fastText model, which holds subwords too; give"),
        ("v.vec", struct.pack("<ii", 793712314, 12) + bytes(50), "or write one: fasttext print-word-vectors MODEL.bin"),
        (
            "v.bin",
            struct.pack("<iiii", 100, 5, 5, 5) + bytes(50),
            "an old model of fastText, give the .vec file",
        ),
        ("v.txt", "0 2\n", "holds no vectors"),
        ("v.dat", "\0\1? \2 x! z\r\n\3\n", "v.dat is not a file of word vectors: line 1 must be"),
    ],
)
def test_malformed_vectors_are_located(tmp_path, name, content, said):
    path = write(tmp_path / name, content)
    found = message_of(DataError, lambda: read_vectors(path))
    assert found.startswith(str(path))
    assert said in found


def test_too_few_pairs_to_join_are_counted(tmp_path):
    data = DataConfig(corpus="cldr", size=5, joined=(9,))
    said = message_of(DataError, lambda: prepare(tmp_path, data, TokenizerConfig(kind="char")))
    assert said.startswith("data.joined = [9] leaves none of 5 pairs")
