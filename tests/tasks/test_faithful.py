"""Translations that keep the placeholders of their source come first, and an evaluation counts them."""

from dataclasses import replace
from random import Random

import pytest

import jumok
from jumok.analysis.report.content import EvaluationSet, System
from jumok.data.terms import Terms
from jumok.decoding import Hypothesis
from jumok.tasks.part_search import PartSearch
from jumok.tasks.translation_scores import score_systems
from jumok.tasks.translator import Translator


@pytest.fixture(scope="module")
def translator() -> Translator:
    return jumok.load(device="cpu")


class Given(PartSearch):
    """Finds the given texts, best first, and remembers how many hypotheses were asked for."""

    texts: tuple[str, ...] = ()
    asked: tuple[int, ...] = ()

    def _search(self, parts, config, n_best, *rest):
        self.asked += (n_best,)
        encoded = [self.tokenizers.target.encode(text)[1:-1] for text in self.texts]
        hypotheses = [Hypothesis(ids, -1.0 - rank) for rank, ids in enumerate(encoded)]
        return [hypotheses for _ in parts]


@pytest.fixture
def given(translator) -> Translator:
    made = Translator(translator.trained)
    made.search = Given(made.trained.model, made.trained.tokenizers, made.decoding, made.engines)
    made.search.texts = ("1월", "1월 %s", "%s %s")
    return made


def test_the_best_hypothesis_with_the_same_placeholders_is_taken(given):
    (plain,) = given.translate(["January %s"])
    (kept,) = given.translate(["January %s"], placeholders=True)
    (without,) = given.translate(["January"], placeholders=True)
    assert plain.text == without.text == given.translate(["January {x}"], placeholders=True)[0].text
    assert kept.score == -2.0
    assert given.search.asked == (1, given.decoding.beam, 1, given.decoding.beam)


def test_a_list_of_the_best_begins_with_those_that_keep_them(given):
    (found,) = given.translate(["January %s"], placeholders=True, n_best=3)
    assert [one.score for one in found.n_best] == [-2.0, -1.0, -3.0]


def test_an_evaluation_counts_lines_that_keep_their_placeholders():
    test = EvaluationSet(["a %s", "b", "<b>c</b>"], ["%s", "b", "<b>c</b>"], metrics=("chrf",))
    result = score_systems(
        test, [System("one", ["가 %s", "나", "<b>다"]), System("two", ["가", "나 %d", "다"])]
    ).result()
    assert result.values["placeholders"] == {"lines": 2, "kept": 1}
    assert result.tables[-1].rows == [["one", "2", "1"], ["two", "2", "0"]]
    plain = replace(test, sources=["a", "b", "c"])
    assert "placeholders" not in score_systems(plain, [System("one", ["가", "나", "다"])]).result().values


def test_samples_can_be_chosen_by_risk_and_repeat(translator):
    settings = {"samples": 6, "mbr": True, "temperature": 2.0, "seed": Random(3).randrange(100)}
    first = translator.translate(["January 3"], **settings)
    assert first[0].text == translator.translate(["January 3"], **settings)[0].text


def test_an_evaluation_counts_the_required_terms_that_are_kept():
    test = EvaluationSet(["a File", "no profile", "file and folder"], ["가", "나", "다"], metrics=("chrf",))
    systems = [System("one", ["파일을", "나", "폴더"]), System("two", ["파일", "파일", "파일 폴더"])]
    terms = Terms({"file": "파일", "folder": "폴더"})
    result = score_systems(test, systems, terms=terms).result()
    assert result.values["terms"] == {"required": 3, "kept": 2}
    assert "terms of one: 2 of 3 kept\nterms of two: 3 of 3 kept" in result.tables[-1].note
    alone = score_systems(test, systems[:1], terms=terms).result()
    assert alone.tables[-1].note == "terms: 2 of 3 kept"
    assert "terms" not in score_systems(test, systems).result().values
