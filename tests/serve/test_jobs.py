"""What a request for a translation costs, and how a long text is cut into parts."""

import pytest

import jumok
from jumok.data import Tokenizer
from jumok.serve.jobs import SourceText, TranslationJob
from jumok.serve.models import ServedModel
from jumok.tasks.translator import Translator


@pytest.fixture
def job() -> TranslationJob:
    translator = jumok.load(device="cpu")
    assert isinstance(translator, Translator)
    return TranslationJob(ServedModel("bundled", "translation", translator), beam=1)


def test_a_short_text_is_tokenised_once_to_be_queued_and_once_to_be_translated(
    job: TranslationJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded, encode = list[str](), Tokenizer.encode

    def counted(tokenizer: Tokenizer, text: str) -> list[int]:
        encoded.append(text)
        return encode(tokenizer, text)

    monkeypatch.setattr(Tokenizer, "encode", counted)
    item = SourceText("two days ago")
    ((piece, size),) = job.split(item, job.size(item))
    job([piece], lambda: None)
    assert encoded.count("two days ago") == 2
    assert (piece, size) == (item, job.size(item))


def test_a_long_text_is_cut_into_parts_with_the_sizes_that_they_have_alone(job: TranslationJob) -> None:
    item = SourceText(20 * "January 3, 2021. ")
    pieces = job.split(item, job.size(item))
    assert len(pieces) > 1
    assert [piece.part_number for piece, _ in pieces] == list(range(len(pieces)))
    assert [size for _, size in pieces] == [job.size(piece) for piece, _ in pieces]
    assert "".join(piece.text for piece, _ in pieces) == item.text


@pytest.mark.parametrize("text", ["", " ", 3000 * " "])
def test_a_text_without_words_is_a_single_part(job: TranslationJob, text: str) -> None:
    item = SourceText(text)
    assert [piece.text for piece, _ in job.split(item, job.size(item))] == [text]
    assert len(job.split(item, size=3000)) == 1
