"""`jumok train NAME` finds the recipes that come with jumok from any folder."""

import json
import tomllib
from pathlib import Path

import pytest

from jumok.recipe import find_recipe, shipped_recipes
from support.commands import BRIEFLY, RECIPE, jumok, well, write

ROOT = Path(__file__).resolve().parents[1]


def test_the_recipes_of_the_repository_go_into_the_package():
    assert set(shipped_recipes()) == {path.stem for path in (ROOT / "recipes").glob("*.toml")}
    built = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    assert built["wheel"]["force-include"] == {"recipes": "jumok/recipes"}


@pytest.mark.parametrize("given", ["small-cpu", "small-cpu.toml", "recipes/small-cpu.toml"])
def test_a_recipe_is_found_by_its_name_from_any_folder(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    path, said = find_recipe(Path(given))
    assert path.read_text(encoding="utf-8") == (ROOT / "recipes/small-cpu.toml").read_text(encoding="utf-8")
    assert said == f"the recipe is small-cpu, which comes with jumok: {path}"


def test_a_recipe_of_ones_own_goes_before_and_that_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "dates.toml", RECIPE)
    assert find_recipe(Path("dates.toml")) == (Path("dates.toml"), "")
    path, said = find_recipe(Path("dates"))
    assert path == Path("dates.toml")
    assert said == "the recipe is dates.toml; the one of the same name that comes with jumok is not used"
    (tmp_path / "small-cpu").mkdir()
    assert find_recipe(Path("small-cpu"))[0].name == "small-cpu.toml"


def test_an_unknown_name_lists_those_there_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = jumok("train", "unheard-of")
    assert (done.code, done.out) == (1, "")
    assert (
        "there is no recipe unheard-of, and none of that name comes with jumok; `jumok recipes` lists them" in done.err
    )
    assert jumok("train", "smal-cpu").err.endswith("did you mean small-cpu?\n")


def test_a_mistyped_path_is_answered_with_the_nearest_file_in_its_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "dates-en.toml", RECIPE)
    assert jumok("train", "date-en.toml").err == "jumok: there is no recipe date-en.toml; did you mean dates-en.toml?\n"
    said = jumok("train", "recipes/smal-cpu.toml").err
    assert said == "jumok: there is no recipe recipes/smal-cpu.toml; jumok has a small-cpu of its own\n"


@pytest.mark.slow
def test_the_list_of_recipes_has_the_first_sentence_of_each():
    listed = json.loads(well("recipes", "--json").out)
    assert set(listed) == set(shipped_recipes())
    assert listed["small-cpu"] == "A small recurrent model for your own two text files"
    assert listed["cora-plain"].endswith("(Veličković et al. 2018)")
    assert all(listed.values())
    for line in (f"{name} {title}" for name, title in listed.items()):
        assert line.split() in [row.split() for row in well("recipes").out.splitlines()]


def test_a_recipe_is_printed_as_it_is():
    assert well("recipes", "small-cpu").out == (ROOT / "recipes/small-cpu.toml").read_text(encoding="utf-8")
    done = jumok("recipes", "smal-cpu")
    assert (done.code, done.out) == (1, "")
    assert done.err == "jumok: no recipe called smal-cpu comes with jumok; did you mean small-cpu?\n"
    assert "leave out one of them" in jumok("recipes", "small-cpu", "--json").err


@pytest.mark.slow
def test_training_by_a_name_writes_the_run_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = [f"--set={half}.width=16" for half in ("encoder", "decoder")]
    small += ["--set=data.size=200", "--set=training.warmup=1"]
    done = well("train", "reverse", "--device", "cpu", *BRIEFLY, *small)
    assert done.err.startswith("the recipe is reverse, which comes with jumok: ")
    assert (tmp_path / "runs/reverse/model.safetensors").exists()


def test_a_list_in_a_pipe_has_a_line_for_each_recipe_and_no_spaces_at_its_end():
    lines = well("recipes").out.split("\n")
    assert len(lines) == len(shipped_recipes()) + 2  # its head, and the end of the last line
    assert lines == [line.rstrip() for line in lines]
