"""What is read is never written over, and what cannot work is said before the work."""

import os
from pathlib import Path

import numpy as np
import pytest

from support.commands import BRIEFLY, jumok, write
from support.graphs import raw_graph
from support.refusals import contents, names, refused

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("here")]


@pytest.fixture
def texts(tmp_path):
    write(tmp_path / "src", "1 2\n3\n")
    write(tmp_path / "ref.svg", "2 1\n3\n")
    return ["--source", "src", "--reference", "ref.svg"]


@pytest.fixture
def unused(monkeypatch):
    """No model may begin to work."""

    def load(*arguments, **options):
        raise AssertionError("the work has begun")

    monkeypatch.setattr("jumok.tasks.translator.Translator.translate", load)
    monkeypatch.setattr("jumok.tasks.alignment.align_text", load)


@pytest.mark.parametrize("place", ["src", "./ref.svg", "linked", "hard", "model/recipe.toml"])
def test_evaluate_does_not_save_over_what_it_reads(model, texts, tmp_path, unused, place):
    os.symlink("src", "linked")
    os.link("ref.svg", "hard")
    before = contents(tmp_path)
    names(refused("evaluate", model, *texts, "--save", place), f"--save {Path(place)} ", "overwritten")
    assert contents(tmp_path) == before


def test_other_files_may_be_written_into_a_model_folder_and_written_again(model, texts):
    for _ in range(2):
        assert jumok("evaluate", model, *texts, "--save", model / "outputs.txt", "--metrics=wer").code == 0


def test_outputs_that_are_scored_are_not_saved_over_nor_made_a_report(texts):
    for name in ("out.html", "other.html"):
        write(Path(name), "2 1\n3\n")
    given = ["evaluate", "--output", "out.html", *texts]
    assert refused(*given, "--save", "out.html") == (
        "--save out.html would be overwritten, but it is an input; name another file"
    )
    names(refused(*given, "--report", "out.html"), "--report out.html", "overwritten")
    names(refused(*given, "--save", "new.html", "--report", "new.html"), "new.html")
    compared = [*given, "--report", "other.html", "--compare", "theirs=other.html"]
    names(refused(*compared), "--report other.html", "overwritten")
    assert Path("out.html").read_text() == "2 1\n3\n"


def test_compare_and_look_do_not_draw_over_what_they_read(model, texts, unused):
    for kind in ("length", "gradient"):
        names(refused("compare", kind, model, *texts, "--out", "ref.svg"), "--out ref.svg", "overwritten")
    names(refused("look", model, "1 2", "--out", model / "checksums.json"), "checksums.json", "overwritten")


def test_the_text_that_a_translator_was_trained_on_is_not_overwritten(texts, tmp_path):
    for name in ("train.a", "train.html", "valid.a", "valid.b"):
        write(tmp_path / name, "1 2\n3 4\n5\n")
    sides = 'source = "train.a"\ntarget = "train.html"\nvalid_source = "valid.a"\nvalid_target = "valid.b"\n'
    recipe = write(tmp_path / "mix.toml", f'[[data.mix]]\n{sides}[tokenizer]\nkind = "char"\n')
    assert jumok("train", recipe, "--out", "mixed", "--device=cpu", *BRIEFLY).code == 0
    before = contents(tmp_path)
    for option, path in (("--save", "train.a"), ("--save", "valid.b"), ("--report", "train.html")):
        names(refused("evaluate", "mixed", *texts, option, path), f"{option} {path}", "overwritten")
    assert contents(tmp_path) == before


def test_the_classes_of_a_graph_are_not_saved_over_the_graph(tmp_path):
    raw = raw_graph(nodes=40, edges=80)
    np.savez(tmp_path / "graph.npz", edges=raw.edges, features=raw.features, labels=raw.labels)
    recipe = write(tmp_path / "graph.toml", '[graph]\npath = "graph.npz"\n[training]\nsteps = 1\n')
    assert jumok("train", recipe, "--out", "pets", "--device=cpu").code == 0
    names(refused("evaluate", "pets", "--save", "graph.npz"), "--save graph.npz", "overwritten")


@pytest.mark.parametrize(
    ("other", "facts"),
    [("nothere", "nothere"), ("short", "short … 1 … 2"), ("empty", "empty … recipe.toml")],
)
def test_what_a_report_cannot_compare_with_is_said_before_the_first_model_works(model, texts, unused, other, facts):
    os.mkdir("empty")
    write(Path("short"), "1\n")
    report = ["--save", "s.txt", "--report", "r.html", "--compare", other]
    names(refused("evaluate", model, *texts, *report), facts)
    names(refused("compare", "length", model, other, *texts), facts)
    assert not os.path.exists("s.txt")


def test_a_model_that_cannot_be_compared_is_said_before_the_others_are_timed(model, monkeypatch):
    monkeypatch.setattr("jumok.tasks.comparison.step_times", None)
    names(refused("compare", "speed", model, "nothere", "--device=cpu"), "no model folder nothere")


@pytest.mark.parametrize(("gold", "facts"), [("0-0\n", "g … 1 … 2"), ("0-0\nx\n", "g, line 2 … 'x'")])
def test_gold_that_does_not_fit_is_said_before_anything_is_aligned(texts, unused, gold, facts):
    write(Path("g"), gold)
    names(refused("align", "--source", "src", "--target", "ref.svg", "--gold", "g"), facts)
