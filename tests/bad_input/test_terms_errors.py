"""What prefixes and terms that cannot be used are told: one clear line, exit code 1."""

import json

import pytest

import jumok
from jumok.data.terms import read_terms
from jumok.errors import ArgumentError
from support.commands import well, write
from support.refusals import names, refused

pytestmark = pytest.mark.usefixtures("here")
TEXTS = ["Friday, December 23, 1988", "3 kilometers"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prefix": "1" * 300}, "has 301 tokens, but an output for"),
        ({"prefix": "섣"}, "cannot spell the prefix '섣'"),
        ({"prefix": 3}, "prefix must be a list of texts"),
        ({"terms": {"a": ""}}, "both must be texts that are not empty"),
        ({"terms": {"File": "1", "file": "2"}}, "'file' twice, for '1' and '2'"),
        ({"terms": ["file"]}, "terms must be a dict of source and target terms"),
        ({"terms": {"a": "1"}, "samples": 2}, "terms need beam search, but outputs are sampled"),
        ({"terms": {"a": "1"}, "engine": "ctranslate2"}, "prefixes and terms need jumok's own search"),
        ({"prefix": "1", "engine": "ctranslate2"}, "prefixes and terms need jumok's own search"),
    ],
)
def test_wrong_prefixes_and_terms_are_refused_in_one_line(settings, message):
    with pytest.raises(ArgumentError) as raised:
        jumok.load(device="cpu").translate(TEXTS, **settings)
    assert message in str(raised.value)


def test_a_prefix_of_alternatives_is_one_text():
    with pytest.raises(ArgumentError, match="int"):
        jumok.load(device="cpu").alternatives(TEXTS[0], 3)


def test_settings_are_refused_before_the_first_text_is_read():
    def texts():
        raise AssertionError
        yield ""

    for settings in ({"prefix": 3}, {"terms": {"a": ""}}, {"terms": {"a": "1"}, "samples": 1}):
        with pytest.raises(ArgumentError):
            list(jumok.load(device="cpu").stream(texts(), **settings))


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        ("file\n", "line 1 has 1 column instead of 2: 'file' … a source term, a tab and a target term"),
        ("a\tb\nfile\t1\tx\n", "line 2 has 3 columns instead of 2"),
        ("\t1\n", "line 1: the source term is empty"),
        ("file\t \n", "line 1: the target term is empty … write it twice"),
        ("file\t1\n\nFile\t2\n", "line 3: 'File' is '2', but '1' in line 1"),
        ("", "terms.tsv has no terms"),
        ("\n \n", "terms.tsv has no terms"),
        (b"12\t\xb8\xc0\n", "terms.tsv, line 1: byte 4 of the line (0xb8) is not UTF-8"),
    ],
)
def test_a_wrong_file_of_terms(reverser, tmp_path, content, facts):
    (tmp_path / "terms.tsv").write_bytes(content if isinstance(content, bytes) else content.encode())
    names(refused("translate", reverser, "--terms", "terms.tsv", stdin=b"12\n"), facts)


def test_a_term_that_the_model_cannot_write_only_warns_the_lines_that_need_it(reverser, tmp_path):
    write(tmp_path / "terms.tsv", "12\t34\n\n56\t섣달\n")
    done = well("translate", reverser, "--terms", "terms.tsv", "--json", stdin=b"12\n56\n1256\n7\n")
    plain, lacking, part, other = map(json.loads, done.out.splitlines())
    fact = "cannot spell the term '섣달' (terms.tsv, line 3), so the translation was made without"
    assert "34" in plain["text"]
    for line in (plain, other, part):  # 56 is no word of 1256
        assert fact not in str(line.get("warnings"))
    names("".join(lacking["warnings"]), fact, "give a term in other characters, or delete it")
    names(done.err, f"line 2: the model's vocabulary {fact}")


@pytest.mark.slow
def test_terms_that_the_model_cannot_write_are_warnings_in_python():
    (found, without) = jumok.load(device="cpu").translate(TEXTS, terms={"friday": "섣달", "1988": "龍"})
    names(found.warnings()["terms"], "the terms '섣달', '龍', so")
    assert "terms" not in without.warnings()


def test_a_file_of_terms_that_is_not_there_or_goes_with_other_options(reverser, tmp_path):
    names(refused("translate", reverser, "--terms", "none.tsv", stdin=b"12\n"), "no file none.tsv")
    write(tmp_path / "terms.tsv", "12\t34\n")
    names(refused("translate", reverser, "--terms", "terms.tsv", "--sample", stdin=b"12\n"), "--sample or --terms")
    for options in (("--terms", "terms.tsv"), ("--prefix", "1")):
        message = refused("translate", reverser, *options, "--engine", "ctranslate2", stdin=b"12\n")
        names(message, 'engine = "ctranslate2"', "jumok's own search")


def test_a_byte_order_mark_spaces_and_repeated_lines_are_no_errors(tmp_path):
    write(tmp_path / "terms.tsv", "\ufefffile \t 파일\r\n\nFILE\t파일\n")
    assert read_terms("terms.tsv").required("A File, a profile") == ("파일",)
