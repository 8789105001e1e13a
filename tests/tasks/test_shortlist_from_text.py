"""A shortlist from a user's own text: int8 considers its words, and all words for a sentence that it does not cover."""

import json
import shutil

import pytest

import jumok
from jumok.analysis.alignment.shortlist import make_shortlist
from jumok.data import corpus_pairs
from jumok.data.dataset import write_dataset
from jumok.decoding.shortlist import Shortlist, read_shortlist
from jumok.errors import ArgumentError, DataError
from jumok.model_folder import BUNDLED
from jumok.tasks import TRANSLATION, make_recipe
from jumok.tasks.shortlist_from_text import LEAST, save_shortlist
from jumok.tasks.translator import TrainedTranslator, Translator
from support.commands import jumok as command
from support.commands import well, write

PAIRS = list(corpus_pairs("cldr", 300, split="train", source="en", target="ko"))
DATES = [pair.source for pair in PAIRS if "198" in pair.source or "days" in pair.source]


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(BUNDLED, tmp_path / "model")


def test_without_translations_the_model_makes_them(folder):
    translator = jumok.load(folder, device="cpu")
    saved = save_shortlist(translator, DATES)
    outputs = [output.text for output in translator.translate(DATES, beam=1)]
    found = read_shortlist(saved.path, translator.trained.tokenizers)
    saved.path.unlink()
    save_shortlist(translator, DATES, outputs)
    assert found.likely == read_shortlist(saved.path, translator.trained.tokenizers).likely
    assert saved.pairs == len(DATES)
    assert 0.5 < saved.covered <= 1
    assert saved.considered < saved.vocabulary == translator.tokenizer.size


def test_it_is_joined_with_the_one_that_is_there(folder):
    translator = jumok.load(folder, device="cpu")
    half = len(PAIRS) // 2
    for part in (PAIRS[:half], PAIRS[half:]):
        saved = save_shortlist(translator, [pair.source for pair in part], [pair.target for pair in part])
    both = read_shortlist(saved.path, translator.trained.tokenizers)
    saved.path.unlink()
    save_shortlist(translator, [pair.source for pair in part], [pair.target for pair in part])
    alone = read_shortlist(saved.path, translator.trained.tokenizers)
    assert alone.always <= both.always
    assert alone.likely.keys() < both.likely.keys()


def test_it_is_joined_with_that_of_the_training_text(folder):
    translator = jumok.load(folder, device="cpu")
    rows = [[*map(list, translator.trained.tokenizers.encode(pair))] for pair in PAIRS]
    (folder / "data").mkdir()
    write_dataset(folder / "data/train.store", rows, size=translator.tokenizer.size)
    saved = save_shortlist(translator, ["12 days ago"] * 3, ["12일 전"] * 3)
    found = read_shortlist(saved.path, translator.trained.tokenizers)
    assert found.likely.keys() == {id for source, _ in rows for id in source[1:-1]}


def test_rare_tokens_are_left_out_and_sentences_with_them_are_not_covered():
    sources, targets = [[5, 6], [5, 6], [5, 7]], [[8], [8], [9]]
    found = make_shortlist(sources, targets, shared=False, least=LEAST)
    assert found.likely.keys() == {5}
    assert [found.covers(source) for source in ([5], [5, 2], [5, 6], [])] == [True, True, False, True]


def test_a_sentence_that_is_not_covered_is_translated_with_all_words(folder):
    pytest.importorskip("ctranslate2")
    known, unknown = "12 days ago", "Tuesday, March 3, 2011"
    plain = jumok.load(folder, device="cpu").translate([known, unknown], precision="int8")
    translator = jumok.load(folder, device="cpu")
    cover = translator.trained.tokenizers.source.encode(known)[1:-1]
    wrong = translator.tokenizer.encode("1988년")[1:-1]
    # A shortlist that allows nothing sensible shows where it is used.
    Shortlist(frozenset({0, 1, 2, 3, *wrong}), dict.fromkeys(cover, ())).write(
        folder / "shortlist.txt", translator.trained.tokenizers
    )
    first, second = translator.translate([known, unknown], precision="int8")
    assert set(first.pieces[0].ids) <= set(wrong)
    assert second.text == plain[1].text


@pytest.mark.slow
def test_recurrent_models_consider_all_words_for_a_batch_that_is_not_covered(folder):
    tokenizers = jumok.load(device="cpu").trained.tokenizers
    side = {"kind": "rnn", "width": 8, "embedding": 8}
    recipe = make_recipe({"data": {"corpus": "cldr"}, "encoder": side, "decoder": side})
    trained = TrainedTranslator(TRANSLATION.build(recipe, tokenizers).eval(), recipe, tokenizers)
    source = tokenizers.source.encode("12 days ago")[1:]
    Shortlist(frozenset({0, 1, 2, 3}), dict.fromkeys(source[:-1], ())).write(folder / "shortlist.txt", tokenizers)
    engines = Translator(trained, folder=folder).engines
    config = recipe.decoding.__class__(precision="int8")
    covered = engines.recurrent(config, [source], watched=False)
    other = engines.recurrent(config, [source, tokenizers.source.encode("Friday")[1:]], watched=False)
    if covered is None:
        pytest.skip("PyTorch has no 8-bit products on this processor")
    assert covered[1].tolist() == [0, 1, 2, 3]
    assert other[1] is None


def test_the_command_saves_it_and_says_what_it_covers(folder, tmp_path):
    text = write(tmp_path / "text", "".join(f"{line}\n" for line in DATES))
    found = well("shortlist", folder, "--source", text)
    assert (found.out, found.err.count("\n")) == ("", 1)
    assert f"{folder / 'shortlist.txt'}: from {len(DATES)} pairs" in found.err
    tsv = write(tmp_path / "pairs.tsv", "".join(f"{pair.source}\t{pair.target}\n" for pair in PAIRS))
    saved = json.loads(well("shortlist", folder, "--source", tsv, "--json").out)
    assert saved["pairs"] == len(PAIRS)
    assert saved["path"] == str(folder / "shortlist.txt")


def test_models_that_have_no_use_for_it_are_refused(tmp_path):
    with pytest.raises(ArgumentError, match="model folder of your own"):
        save_shortlist(jumok.load(device="cpu"), DATES)
    tokenizers = jumok.load(device="cpu").trained.tokenizers
    side = {"kind": "rnn", "width": 8, "embedding": 8}
    recipe = make_recipe({"data": {"corpus": "cldr"}, "encoder": side, "decoder": side | {"copy": True}})
    trained = TrainedTranslator(TRANSLATION.build(recipe, tokenizers).eval(), recipe, tokenizers)
    with pytest.raises(ArgumentError, match="int8"):
        save_shortlist(Translator(trained, folder=tmp_path), DATES)


def test_a_text_without_words_is_refused_and_the_old_shortlist_kept(folder):
    translator = jumok.load(folder, device="cpu")
    path = save_shortlist(translator, DATES).path
    before = path.read_bytes()
    with pytest.raises(DataError, match="no pair"):
        save_shortlist(translator, ["", " "], ["", ""])
    assert path.read_bytes() == before
    assert command("shortlist", folder, "--source", folder / "missing").code == 1
