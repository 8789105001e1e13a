"""What a request for a translation costs, and how a long text is cut into parts."""

from collections.abc import Iterator

import pytest

import jumok
from jumok.data import Tokenizer
from jumok.model_folder import BUNDLED
from jumok.serve.jobs import TranslationJob
from jumok.serve.models import ServedGenerator
from jumok.tasks.translator import Translator
from support.serving import Live, serving


@pytest.fixture
def job() -> TranslationJob:
    translator = jumok.load(device="cpu")
    assert isinstance(translator, Translator)
    return TranslationJob(ServedGenerator("bundled", "translation", translator), beam=1)


@pytest.fixture(scope="module")
def bundled() -> Iterator[Live]:
    with serving({"en-ko": BUNDLED}) as running:
        yield running


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that have been tokenised."""
    texts, encode = list[str](), Tokenizer.encode

    def counted(tokenizer: Tokenizer, text: str) -> list[int]:
        texts.append(text)
        return encode(tokenizer, text)

    monkeypatch.setattr(Tokenizer, "encode", counted)
    return texts


LONG = 20 * "January 3, 2021. "


@pytest.mark.parametrize("text", ["two days ago", " 18 weeks ago ", LONG], ids=["short", "spaces", "long"])
@pytest.mark.parametrize("path", ["translate", "stream"])
def test_a_request_tokenises_its_text_and_each_of_its_parts_once(
    bundled: Live, encoded: list[str], path: str, text: str
) -> None:
    assert bundled.post(f"/api/{path}", {"text": text}).status == 200
    assert encoded.count(text) == 1
    assert [piece for piece in encoded if piece and encoded.count(piece) > 1] == []


def test_other_words_are_completed_without_tokenising_the_text_again(bundled: Live, encoded: list[str]) -> None:
    assert bundled.post("/api/alternatives", {"text": "two days ago", "count": 3}).status == 200
    assert encoded.count("two days ago") == 2  # to be queued, and to be read


def test_what_is_translated_is_what_the_translator_makes_of_it(job: TranslationJob) -> None:
    for text in ("two days ago", LONG, " ", ""):
        item = job.source(text)
        pieces = [piece for piece, _ in job.split(item, job.size(item))]
        (wanted,) = job.model.generator.translate([text], beam=1)
        joined = job.join(item, job(pieces, lambda: None))
        assert (joined.source, joined.text, joined.pieces) == (text, wanted.text, wanted.pieces)


def test_a_long_text_is_cut_into_parts_with_the_sizes_that_they_have_alone(job: TranslationJob) -> None:
    item = job.source(LONG)
    pieces = job.split(item, job.size(item))
    assert len(pieces) > 1
    assert [piece.part_number for piece, _ in pieces] == list(range(len(pieces)))
    assert [size for _, size in pieces] == [job.size(job.source(piece.text)) for piece, _ in pieces]
    assert "".join(piece.text for piece, _ in pieces) == item.text


@pytest.mark.parametrize("text", ["", " ", 3000 * " "])
def test_a_text_without_words_is_a_single_part(job: TranslationJob, text: str) -> None:
    item = job.source(text)
    assert [piece.text for piece, _ in job.split(item, job.size(item))] == [text]
    assert len(job.split(item, size=3000)) == 1
