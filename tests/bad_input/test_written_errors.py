"""What is read is never written over, and what cannot work is said before the work."""

import os
from pathlib import Path

import numpy as np
import pytest

from support.commands import jumok, write
from support.graphs import raw_graph
from support.refusals import contents, refused

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

    monkeypatch.setattr("jumok.tasks.translator.Translator.load", load)
    monkeypatch.setattr("jumok.cli.align.align_text", load)


@pytest.mark.parametrize("place", ["src", "ref.svg", "./ref.svg", "linked", "hard", "model/recipe.toml"])
def test_evaluate_does_not_save_over_what_it_reads(model, texts, tmp_path, unused, place):
    os.symlink("src", "linked")
    os.link("ref.svg", "hard")
    before = contents(tmp_path)
    said = refused("evaluate", model, *texts, "--save", place)
    assert said.startswith(f"--save {Path(place)} ")
    assert said.endswith("would be overwritten, but it is an input; name another file")
    assert contents(tmp_path) == before


def test_other_files_may_be_written_into_a_model_folder_and_written_again(model, texts):
    for _ in range(2):
        assert jumok("evaluate", model, *texts, "--save", model / "outputs.txt", "--metrics=wer").code == 0


def test_outputs_that_are_scored_are_not_saved_over_nor_made_a_report(texts):
    for name in ("out.html", "other.html"):
        write(Path(name), "2 1\n3\n")
    given = ["evaluate", "--output", "out.html", *texts]
    assert "--save out.html would be overwritten" in refused(*given, "--save", "out.html")
    assert "--report out.html would be overwritten" in refused(*given, "--report", "out.html")
    assert "both new.html" in refused(*given, "--save", "new.html", "--report", "new.html")
    compared = [*given, "--report", "other.html", "--compare", "theirs=other.html"]
    assert "--report other.html would be overwritten" in refused(*compared)
    assert Path("out.html").read_text() == "2 1\n3\n"


def test_compare_and_look_do_not_draw_over_what_they_read(model, texts, unused):
    assert "--out ref.svg would be" in refused("compare", "length", model, *texts, "--out", "ref.svg")
    assert "--out ref.svg would be" in refused("compare", "gradient", model, *texts, "--out", "ref.svg")
    assert "checksums.json would be" in refused("look", model, "1 2", "--out", model / "checksums.json")


def test_the_classes_of_a_graph_are_not_saved_over_the_graph(tmp_path):
    raw = raw_graph(nodes=40, edges=80)
    np.savez(tmp_path / "graph.npz", edges=raw.edges, features=raw.features, labels=raw.labels)
    recipe = write(tmp_path / "graph.toml", '[graph]\npath = "graph.npz"\n[training]\nsteps = 1\n')
    assert jumok("train", recipe, "--out", "pets", "--device=cpu").code == 0
    assert "--save graph.npz would be overwritten" in refused("evaluate", "pets", "--save", "graph.npz")


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("nothere", "nothere"),
        ("short", "short has 1 outputs, but there are 2 source sentences"),
        ("empty", "empty is not a complete model: recipe.toml is missing"),
    ],
)
def test_what_a_report_cannot_compare_with_is_said_before_the_first_model_works(model, texts, unused, other, said):
    os.mkdir("empty")
    write(Path("short"), "1\n")
    report = ["--save", "s.txt", "--report", "r.html", "--compare", other]
    assert said in refused("evaluate", model, *texts, *report)
    assert said in refused("compare", "length", model, other, *texts)
    assert not os.path.exists("s.txt")


def test_a_model_that_cannot_be_compared_is_said_before_the_others_are_timed(model, monkeypatch):
    monkeypatch.setattr("jumok.tasks.comparison.speed_by_length", None)
    assert "there is no model folder nothere" in refused("compare", "speed", model, "nothere", "--device=cpu")


@pytest.mark.parametrize(("gold", "said"), [("0-0\n", "g has links for 1 pairs"), ("0-0\nx\n", "g, line 2: 'x' is")])
def test_gold_that_does_not_fit_is_said_before_anything_is_aligned(texts, unused, gold, said):
    write(Path("g"), gold)
    assert said in refused("align", "--source", "src", "--target", "ref.svg", "--gold", "g")
