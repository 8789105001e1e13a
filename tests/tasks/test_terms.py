"""Translations begin with the prefix and contain the terms that are asked for; others stay as they were."""

import copy
import functools
import pickle

import pytest
import torch

import jumok
from jumok.data.terms import occurs
from jumok.errors import ArgumentError
from jumok.tasks import TRANSLATION, make_recipe
from jumok.tasks.translator import TrainedTranslator, Translator
from support.combinations import in_pairs

TEXTS = ["Friday, December 23, 1988", "3 kilometers", "", "three hours and 12 minutes", "France, Korea, and Japan"]
SIDES = {
    "transformer": {"kind": "transformer", "width": 16, "heads": 2, "hidden": 16, "layers": 2},
    "rnn": {"kind": "rnn", "width": 16, "embedding": 16},
}
TRANSLATORS = ["bundled", *SIDES]
SETTINGS = [{}, {"beam": 1}, {"beam": 3, "length_penalty": 0.0}, {"samples": 1}, {"no_repeat": 3}]
PREFIXES = ["1", "1988년 12", "금", "Friday 오", "(목"]
TERMS = [
    {"december": "December"},
    {"Friday": "금요일 오후", "1988": "1988"},
    {"hours": "km", "minutes": "min", "Friday": "Fri", "korea": "Japan"},
    {"France, Korea": "Japan 및 Korea", "Japan": "Korea"},
    {"kilometers": "(금)"},
]


@pytest.fixture(scope="module")
def bundled() -> Translator:
    return jumok.load(device="cpu")


@functools.cache
def untrained_translator(kind) -> Translator:
    """A model that has learned nothing, so that no term is likely."""
    side = SIDES[kind]
    tokenizers = jumok.load(device="cpu").trained.tokenizers
    recipe = make_recipe({"data": {"corpus": "cldr"}, "encoder": side, "decoder": side})
    torch.manual_seed(0)
    return Translator(TrainedTranslator(TRANSLATION.build(recipe, tokenizers).eval(), recipe, tokenizers))


@pytest.fixture(scope="module")
def translator(request, bundled) -> Translator:
    return bundled if request.param == "bundled" else untrained_translator(request.param)


@functools.cache
def plain_translations(translator, **settings):
    """What a translator writes when no terms are asked for."""
    return translator.translate(TEXTS, **settings)


def texts_of(found):
    return [each.text for each in found]


@pytest.mark.parametrize(
    ("translator", "prefix", "settings"), in_pairs(TRANSLATORS, PREFIXES, SETTINGS), indirect=["translator"]
)
def test_every_translation_begins_with_the_prefix(translator, prefix, settings):
    found = texts_of(translator.translate(TEXTS, prefix=prefix, **settings))
    assert [text.startswith(prefix) for text in found] == [True, True, False, True, True]
    assert found[2] == ""


def test_alternatives_come_after_the_prefix(bundled):
    (found,) = bundled.translate(TEXTS[:1], prefix="1988년", n_best=4)
    assert len({each.text for each in found.n_best}) == 4
    assert all(each.text.startswith("1988년") for each in found.n_best)


@pytest.mark.parametrize("beam", [1, 5])
def test_a_prefix_that_the_model_writes_anyway_changes_nothing(bundled, beam):
    sources = [text for text in TEXTS if text]
    for plain in bundled.translate(sources, beam=beam):
        for end in range(1, len(plain.text) + 1, 3):
            (found,) = bundled.translate([plain.source], prefix=plain.text[:end], beam=beam)
            if beam > 1 or plain.text[end : end + 1] in ("", " "):  # greedy search may cut a part of a word otherwise
                assert found.text == plain.text
                assert found.score >= plain.score - 1e-5


def test_every_text_may_have_its_own_prefix(bundled):
    prefixes = ["19", "3", "x", "", "대한"]
    found = texts_of(bundled.translate(TEXTS, prefix=prefixes))
    assert found == [
        bundled.translate([text], prefix=prefix)[0].text for text, prefix in zip(TEXTS, prefixes, strict=True)
    ]
    assert found[3] == bundled.translate(TEXTS[3:4])[0].text
    assert texts_of(bundled.stream(TEXTS, prefix=prefixes, chunk=2)) == found
    with pytest.raises(ArgumentError, match="prefix has 2 texts for 5"):
        bundled.translate(TEXTS, prefix=["1", "2"])


@pytest.mark.parametrize(
    ("translator", "terms", "settings"),
    in_pairs(TRANSLATORS, TERMS, [{}, {"beam": 1}, {"beam": 2, "n_best": 2}, {"mbr": True}]),
    indirect=["translator"],
)
def test_every_required_term_is_written_and_other_texts_stay_as_they_were(translator, terms, settings):
    plain = plain_translations(translator, **settings)
    for before, after in zip(plain, translator.translate(TEXTS, terms=terms, **settings), strict=True):
        required = [target for term, target in terms.items() if occurs(term.lower(), after.source.lower())]
        for each in after.n_best or (after,):
            assert [target for target in required if not occurs(target, each.text)] == []
        if not required:
            assert (after.text, after.score) == (before.text, pytest.approx(before.score, abs=1e-6))


def test_a_term_that_the_model_writes_anyway_changes_nothing(bundled):
    (plain,) = bundled.translate(TEXTS[:1])
    (found,) = bundled.translate(TEXTS[:1], terms={"friday": "금요일", "december": "12월"})
    assert (found.text, found.score) == (plain.text, pytest.approx(plain.score, abs=1e-5))


@pytest.mark.parametrize("kind", SIDES)
def test_prefix_and_terms_work_together_and_in_ensembles(bundled, kind):
    from jumok.models.ensemble import ensemble

    both = bundled.trained._replace(model=ensemble([bundled.trained.model, untrained_translator(kind).trained.model]))
    for translator in (bundled, Translator(both)):
        (found,) = translator.translate(TEXTS[:1], prefix="19", terms={"friday": "Fri"})
        assert found.text.startswith("19")
        assert occurs("Fri", found.text)


def test_the_first_part_of_a_long_text_has_the_prefix_and_each_part_its_own_terms(bundled):
    text = "Friday, December 23, 1988. Saturday, May 3, 2014."
    terms = {"friday": "Fri", "saturday": "(토)"}
    (found,) = bundled.translate([text], prefix="1988", terms=terms, max_source=20)
    decode = bundled.tokenizer.decode
    first, second = (decode(part.ids) for part in found.pieces)
    assert first.startswith("1988")
    assert [occurs("Fri", first), occurs("(토)", first)] == [True, False]
    assert [occurs("Fri", second), occurs("(토)", second)] == [False, True]


def test_attention_maps_and_copies_of_a_translator_work_as_ever(bundled):
    (found,) = bundled.translate(TEXTS[:1], terms={"friday": "Fri"})
    assert found.attention(words=True).target[-2] == found.text.split()[-1]
    for other in (copy.deepcopy(bundled), pickle.loads(pickle.dumps(bundled))):
        assert other.translate(TEXTS[:1], terms={"friday": "Fri"})[0].text == found.text


def test_a_model_of_edits_writes_prefixes_and_terms(tmp_path):
    from support.commands import RECIPE, well, write

    recipe = RECIPE.replace('[decoder]\nkind = "rnn"', '[decoder]\nkind = "transducer"')
    recipe = recipe.replace('kind = "char"', 'kind = "char"\nedits = true').replace("steps = 120", "steps = 2")
    well("train", write(tmp_path / "edits.toml", recipe), "--out", tmp_path / "run", "--device", "cpu")
    translator = TRANSLATION.load(tmp_path / "run", device="cpu")
    (found,) = translator.translate(["123"], prefix="7", terms={"123": "456"})
    assert found.text.startswith("7")
    assert occurs("456", found.text)
