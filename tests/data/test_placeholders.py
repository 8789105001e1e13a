"""Placeholders and tags are found whatever touches them, and stay one token in a vocabulary that is told so."""

import pytest

from jumok.data import Tokenizer, TokenizerConfig
from jumok.data.placeholders import keeps_placeholders, placeholders
from jumok.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("파일 %1이(가) 비어 있습니다.", ["%1"]),
        ("'%s'을(를) %d개 열었습니다", ["%s", "%d"]),
        ("%(name)s: %5.2f, %lld, %-10s", ["%(name)s", "%5.2f", "%lld", "%-10s"]),
        ("{0}에서 {count}개, ${HOME}의 $1은", ["{0}", "{count}", "${HOME}", "$1"]),
        ('<a href="x">여기</a>를 &amp; <br/>', ['<a href="x">', "</a>", "&amp;", "<br/>"]),
        ("100% of disk, 5 < 6, it&#8217;s a & b, $5", ["$5"]),
        ("100% done", []),
        ("", []),
    ],
)
def test_placeholders_are_found_beside_hangul_and_percent_signs(text, found):
    assert sorted(placeholders(text).elements()) == sorted(found)


def test_a_translation_keeps_placeholders_in_any_order_but_in_number():
    assert keeps_placeholders("%s of %d", "%d의 %s")
    assert keeps_placeholders("%s in %s", "%2$s의 %1$s")
    assert not keeps_placeholders("%s of %d", "%d의")
    assert not keeps_placeholders("a", "%s")
    assert not keeps_placeholders("<b>a</b>", "<b>a<b>")


@pytest.mark.parametrize(("kind", "size"), [("unigram", 33), ("bpe", 60)])
def test_unsplit_texts_are_one_token_each_and_decode_to_themselves(kind, size):
    texts = ["copy %s to <b>%1</b>", "%s을(를) 복사", "open the file", "파일을 엽니다"] * 5
    tokenizer = Tokenizer.train(texts, TokenizerConfig(kind=kind, size=size, unsplit=("%s", "%1", "<b>", "</b>")))
    ids = tokenizer.encode("a <b>%s</b>을(를) %1")[1:-1]
    pieces = [tokenizer.pieces[id] for id in ids]
    assert [piece for piece in pieces if piece in ("<b>", "%s", "</b>", "%1")] == ["<b>", "%s", "</b>", "%1"]
    assert tokenizer.decode(tokenizer.encode("open <b>%s</b> %1")) == "open <b>%s</b> %1"


def test_unsplit_needs_subwords_and_texts_without_spaces():
    with pytest.raises(ConfigError, match="unigram or bpe"):
        TokenizerConfig(kind="char", unsplit=("%s",))
    with pytest.raises(ConfigError, match="without spaces"):
        TokenizerConfig(unsplit=("a b",))
