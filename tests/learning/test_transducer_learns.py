"""A transducer, and hard attention, from a table of words to a model that pronounces, inflects, aligns and draws."""

import random

import pytest

import jumok
from jumok.tasks.alignment import default_aligner

pytestmark = pytest.mark.long

RECIPE = """
[data]
pairs = "train.tsv"
valid_pairs = "valid.tsv"
{data}

[tokenizer]
{tokenizer}

[encoder]
kind = "rnn"
cell = "lstm"
width = 32
embedding = 16
dropout = 0.0

[decoder]
width = 32
embedding = 16
dropout = 0.0
{decoder}

[filter]
duplicates = false

[batch]
tokens = 600

[training]
steps = {steps}
warmup = 10
learning_rate = 0.01
schedule = "cosine"
label_smoothing = 0.0
validate_every = 60
metric = "exact_match"

[decoding]
beam = 2
length_penalty = 0.0
"""
SOUNDS = {"a": "ɑ", "e": "ɛ", "s": "s", "sh": "ʃ", "k": "k", "x": "k s", "t": "t"}


def words(count, seed):
    """Made-up words: "sh" is one sound, "x" two."""
    draws = random.Random(seed)
    spelt = [draws.choices(list(SOUNDS), k=draws.randint(2, 5)) for _ in range(count)]
    return [("".join(letters), " ".join(SOUNDS[letter] for letter in letters)) for letters in spelt]


def verbs(count, seed):
    """Made-up verbs: the past ends in "-ed", after an "e" in "-d"; the negative begins with "un-"."""
    draws, rows = random.Random(seed), []
    for _ in range(count):
        stem = "".join(draws.choices("abdeklmnors", k=draws.randint(2, 6)))
        past = stem + ("d" if stem.endswith("e") else "ed")
        rows += draws.choice([[(stem, past, "V;PST")], [(stem, "un" + past, "V;NEG;PST")], [(stem, stem, "V")]])
    return rows


def trained(folder, rows, steps, **sections):
    for name, part in (("train.tsv", rows[:-60]), ("valid.tsv", rows[-60:])):
        (folder / name).write_text("".join("\t".join(row) + "\n" for row in part), encoding="utf-8")
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE.format(steps=steps, **sections), encoding="utf-8")
    return jumok.train(recipe, out=folder / "run", device="cpu", draw=False)


@pytest.fixture(scope="module")
def pronouncing(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sounds")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        kinds = 'source_kind = "char"\ntarget_kind = "word"\nshared = false\nedits = true'
        run = trained(
            folder, words(360, 1), 180, data="", tokenizer=kinds, decoder='kind = "transducer"\ncontext = true'
        )
    return folder / "run", run


@pytest.mark.long(seconds=15)
def test_a_transducer_learns_to_pronounce(pronouncing):
    folder, run = pronouncing
    assert run.metrics["exact_match"] >= 90
    model = jumok.load(folder, device="cpu")
    (output,) = model.translate(["sexat"])
    assert output.text == "s ɛ k s ɑ t"


@pytest.mark.long
def test_its_map_has_a_row_for_each_sound_and_all_weight_on_one_letter(pronouncing):
    model = jumok.load(pronouncing[0], device="cpu")
    shown = model.attention("tashe", "t ɑ ʃ ɛ")
    assert shown.target == ("▁t", "▁ɑ", "▁ʃ", "▁ɛ", "</s>")
    weights = shown.weights[0, 0]
    assert weights.max(-1).values.tolist() == [1] * 5
    letters = [shown.source[place] for place in weights.argmax(-1).tolist()]
    assert letters[0] == "t"
    assert letters[1] == "a"
    assert letters[2] in "sh"
    assert letters[3:] == ["e", "</s>"]


@pytest.mark.long
def test_it_aligns_letters_and_votes_in_an_ensemble(pronouncing):
    folder, _ = pronouncing
    aligner = default_aligner(jumok.load(folder, device="cpu").trained)
    (links,) = aligner.align([jumok.data.Pair("ta", "t ɑ")])
    assert links == {(0, 0), (1, 1)}
    both = jumok.load([folder, folder], device="cpu")
    alone = jumok.load(folder, device="cpu")
    assert both.translate(["shaxe"])[0].text == alone.translate(["shaxe"])[0].text


@pytest.mark.long(seconds=15)
def test_a_transducer_that_copies_inflects_words_of_letters_it_has_seen_little(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    columns = "columns = [[3, 1], 2]\nfeatures = [3]"
    decoder = 'kind = "transducer"\ncopy = true'
    run = trained(tmp_path, verbs(400, 2), 240, data=columns, tokenizer='kind = "char"\nedits = true', decoder=decoder)
    assert run.metrics["exact_match"] >= 85


@pytest.mark.long(seconds=20)
def test_hard_attention_learns_to_pronounce_and_where_each_sound_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kinds = 'source_kind = "char"\ntarget_kind = "word"\nshared = false'
    run = trained(tmp_path, words(360, 1), 180, data="", tokenizer=kinds, decoder='kind = "hard"')
    assert run.metrics["exact_match"] >= 80
    shown = run.model.attention("take", "t ɑ k ɛ")
    letters = [shown.source[place] for place in shown.weights[0, 0].argmax(-1).tolist()]
    assert letters[:4] == ["t", "a", "k", "e"]
