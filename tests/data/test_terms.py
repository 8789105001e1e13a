"""Terms are found as whole words where words have spaces around them, and anywhere in other scripts."""

import pytest

from jumok.data.terms import Terms, letter_kind, occurs


@pytest.mark.parametrize(
    ("term", "text", "is_there"),
    [
        ("file", "Open the file.", True),
        ("file", "file", True),
        ("file", "profile", False),
        ("file", "files", False),
        ("파일", "파일을 엽니다", True),
        ("파일", "실행파일", True),
        ("文件", "打开文件夹", True),
        ("API", "API를", True),
        ("API", "APIs", False),
        ("%s", "100%s", True),
        ("C++", "C++.", True),
        ("a.b", "axb", False),
        ("й", "мой", False),
        ("12", "112", False),
        ("File", "file", False),
    ],
)
def test_where_a_term_occurs(term, text, is_there):
    assert occurs(term, text) == is_there


def test_case_is_ignored_on_request():
    assert occurs("File", "a file", lowercase=True)


def test_a_source_asks_for_each_of_its_terms_once_in_any_case_and_the_longer_of_two_that_overlap():
    terms = Terms(
        {"file": "파일", "File  System": "파일 시스템", "folder": "폴더", "directory": "폴더", "ファイル": "파일"}
    )
    assert terms.required("A FILE and a profile") == ("파일",)
    assert terms.required("the file system") == ("파일 시스템",)
    assert terms.required("a file of the file\tsystem") == ("파일", "파일 시스템")
    assert terms.required("folder or directory") == ("폴더",)
    assert terms.required("新しいファイルを") == ("파일",)
    assert terms.required("files") == ()
    assert Terms({}).required("file") == ()


def test_kinds_of_letters():
    kinds = {
        "a": "word",
        "7": "word",
        "Ж": "word",
        "파": "other",
        "文": "other",
        "の": "other",
        "ก": "other",
        " ": "other",
    }
    kinds |= {"\u0301": "joining", "\u11ab": "joining", "▁": "other", "\0": "other"}
    assert {letter: letter_kind(letter) for letter in kinds} == kinds
