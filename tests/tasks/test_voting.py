"""Models that write the same sounds in different tokens, a transducer its edits, vote on what they write."""

import math
import random

import pytest

import jumok
from jumok.decoding.consensus import by_mean_reciprocal_rank
from jumok.errors import ArgumentError
from support.commands import well

RECIPE = """
[data]
pairs = "train.tsv"
valid_pairs = "train.tsv"

[tokenizer]
source_kind = "char"
target_kind = "word"
shared = false
edits = {edits}

[encoder]
kind = "rnn"
width = 16
embedding = 8

[decoder]
kind = "{kind}"
width = 16
embedding = 8

[filter]
duplicates = false

[training]
steps = 15
warmup = 5
learning_rate = 0.02
label_smoothing = 0.0
seed = {seed}

[decoding]
beam = 4
length_penalty = 0.0
max_length = {longest}
"""
SOUNDS = {"a": "ɑ", "e": "ɛ", "s": "s", "k": "k", "x": "k s", "t": "t"}
WORDS = ["tax", "sake", "exe", "kat"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two models with hard attention and a transducer."""
    folder = tmp_path_factory.mktemp("voting")
    draws = random.Random(1)
    spelt = [draws.choices(list(SOUNDS), k=draws.randint(2, 5)) for _ in range(100)]
    lines = ["".join(letters) + "\t" + " ".join(SOUNDS[letter] for letter in letters) for letters in spelt]
    (folder / "train.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for seed, kind in enumerate(["hard", "transducer", "hard"]):
            edits = kind == "transducer"
            recipe = RECIPE.format(kind=kind, seed=seed, edits=str(edits).lower(), longest=30 if edits else 15)
            (folder / f"{seed}.toml").write_text(recipe, encoding="utf-8")
            jumok.train(folder / f"{seed}.toml", out=folder / str(seed), device="cpu", draw=False)
    return [folder / str(seed) for seed in range(3)]


@pytest.mark.slow
@pytest.mark.parametrize("order", [[0, 1, 2], [1, 2, 0]], ids=["sounds first", "edits first"])
def test_the_output_has_the_highest_mean_reciprocal_rank_in_the_lists_of_the_models(folders, order):
    chosen = [folders[number] for number in order]
    found = jumok.load(chosen, device="cpu").translate(WORDS, n_best=4)
    lists = [jumok.load(folder, device="cpu").translate(WORDS, n_best=4) for folder in chosen]
    for number, of_word in enumerate(zip(*lists, strict=True)):
        ballots = [[one.text for one in translation.n_best] for translation in of_word]
        wanted = by_mean_reciprocal_rank(ballots)[:4]
        assert [one.text for one in found[number].n_best] == [text for text, _ in wanted]
        assert found[number].score == pytest.approx(math.log(wanted[0][1]))


@pytest.mark.slow
def test_they_translate_on_the_command_line_and_the_map_is_that_of_the_first(folders):
    found = jumok.load(folders, device="cpu").translate(["tax"])[0]
    assert well("translate", *folders, stdin="tax\n").out == found.text + "\n"
    weights = jumok.load(folders[0], device="cpu").attention("tax", found.text).weights
    assert found.attention().weights.equal(weights)


@pytest.mark.slow
def test_samples_and_minimum_risk_are_refused(folders):
    voting = jumok.load(folders, device="cpu")
    for settings in ({"samples": 2}, {"mbr": True}):
        with pytest.raises(ArgumentError, match="vote on what beam search finds; leave out `samples=` and `mbr=`"):
            voting.translate(["tax"], **settings)
