"""Several models as one, outputs drawn at random and chosen by risk, through the command line and in Python."""

import json

import pytest

import jumok
from jumok.errors import ArgumentError
from support.commands import jumok as run
from support.commands import well

TEXT = "123\n98\n\n5 7\n"


def test_a_model_with_itself_translates_as_alone(reverser):
    alone = well("translate", reverser, stdin=TEXT).out
    assert well("translate", reverser, reverser, stdin=TEXT).out == alone
    texts = [line for line in TEXT.splitlines() if line]
    together = jumok.load([reverser, reverser], device="cpu").translate(texts)
    assert [one.text for one in together] == [line for line in alone.splitlines() if line]
    assert together[0].attention().weights.sum(-1).allclose(together[0].attention().weights.new_ones(1))


def test_a_file_may_follow_the_models(reverser, tmp_path):
    (tmp_path / "in.txt").write_text(TEXT)
    wanted = well("translate", reverser, stdin=TEXT).out
    assert well("translate", reverser, reverser, tmp_path / "in.txt").out == wanted


def test_models_with_other_vocabularies_are_refused(reverser):
    found = run("translate", reverser, jumok.model_folder.BUNDLED, stdin=TEXT)
    assert found.code == 1
    assert "has another vocabulary than" in found.err
    with pytest.raises(ArgumentError, match="no model folder"):
        jumok.load([])


def test_an_ensemble_is_evaluated_like_a_model(reverser, tmp_path):
    for name, lines in (("in", "123\n98\n"), ("out", "321\n89\n")):
        (tmp_path / f"{name}.txt").write_text(lines)
    files = ("--source", tmp_path / "in.txt", "--reference", tmp_path / "out.txt")
    alone = well("evaluate", reverser, *files, "--json").out
    assert well("evaluate", reverser, reverser, *files, "--json").out == alone


@pytest.mark.parametrize("kind", ["cross", "encoder", "decoder"])
def test_look_shows_the_mean_attention_of_several_models(transformer, kind):
    options = ("123", "--target", "321", "--kind", kind, "--tokens", "--json")
    assert well("look", transformer, transformer, *options).out == well("look", transformer, *options).out


def test_samples_repeat_with_their_seed_and_differ_without(reverser):
    for other in (("--sample",), ("--mbr", 4)):
        beside = run("translate", reverser, *other, "--beam", 3, stdin=TEXT)
        assert (beside.code, beside.out) == (1, "")
        assert "--beam 3 has no effect" in beside.err
    hot = ("translate", reverser, "--sample", "--temperature", 3)
    first = well(*hot, "--seed", 1, stdin=TEXT).out
    assert first == well(*hot, "--seed", 1, "--batch", 1, stdin=TEXT).out
    assert first != well(*hot, "--seed", 2, stdin=TEXT).out
    assert first.splitlines()[2] == ""
    assert len(well(*hot, "--n-best", 3, stdin="123\n").out.split("\t")) == 6


def test_the_only_token_that_may_be_drawn_is_that_of_greedy_search(reverser):
    greedy = well("translate", reverser, "--beam", 1, stdin=TEXT).out
    assert well("translate", reverser, "--sample", "--top-k", 1, stdin=TEXT).out == greedy


def test_minimum_risk_chooses_among_samples_or_hypotheses(reverser):
    wanted = well("translate", reverser, stdin="123\n98\n").out
    assert well("translate", reverser, "--mbr", 4, stdin="123\n98\n").out == wanted
    assert well("translate", reverser, "--sample", "--mbr", 8, "--temperature", 0.5, stdin="123\n98\n").out == wanted


def test_minimum_risk_shows_the_score_that_orders_its_list(reverser):
    drawn = ("translate", reverser, "--sample", "--mbr", 8, "--temperature", 3, "--n-best", 4)
    found = json.loads(well(*drawn, "--json", stdin="12345\n").out)
    expected = [one["expected_chrf"] for one in found["n_best"]]
    assert len(expected) > 1
    assert expected == sorted(expected, reverse=True)
    assert found["expected_chrf"] == expected[0]
    assert all(one["score"] < 0 for one in found["n_best"])
    shown = well(*drawn, stdin="12345\n").out.rstrip("\n").split("\t")
    assert [float(score) for score in shown[1::2]] == expected


def test_minimum_risk_chooses_among_what_several_models_write(reverser):
    wanted = well("translate", reverser, stdin="123\n98\n").out
    together = ("translate", reverser, reverser)
    assert well(*together, "--mbr", 4, stdin="123\n98\n").out == wanted
    assert well(*together, "--sample", "--mbr", 8, "--temperature", 0.5, stdin="123\n98\n").out == wanted


@pytest.mark.parametrize("given", [("translate",), ("evaluate", "--source", "in.txt", "--reference", "in.txt")])
def test_settings_of_sampling_need_sampling(reverser, given):
    found = run(given[0], reverser, *given[1:], "--top-k", 3, stdin=TEXT)
    assert found.code == 1
    assert found.err.startswith("jumok: --top-k applies only with --sample")
