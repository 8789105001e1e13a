"""The tables of the documentation are the benchmarks' own numbers."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from benchmarks.results import BESIDE, FOLDER, GOALS, MARKED, Row, table, with_tables, write

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("README*.md"), *ROOT.glob("docs/*.md")])
RESULTS = sorted(FOLDER.glob("*.json"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_of_a_page_are_made_from_the_results(page: Path):
    text = page.read_text(encoding="utf-8")
    assert text == with_tables(text), "run: python -m benchmarks.results"
    assert text.count("<!-- table:") == len(MARKED.findall(text)), "a table has no <!-- end -->"


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_results_say_where_when_and_with_what_they_were_measured(path: Path):
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found.keys() >= {"device", "versions", "date", "rows"}
    assert all(row.keys() == set(Row._fields) for row in found["rows"])
    # The claims compare our own models with each other; everything else, ours with others'.
    assert path.name.startswith("claims") or any(row["system"] == "jumok" for row in found["rows"])
    measured = [(row["id"], row["system"]) for row in found["rows"]]
    assert len(measured) == len(set(measured))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_what_begins_like_a_goal_is_that_goal_or_another_number_of_the_same_run(path: Path):
    for row in json.loads(path.read_text(encoding="utf-8"))["rows"]:
        for goal in GOALS:
            if row["id"].startswith(goal) and row["id"] not in GOALS:
                assert row["id"].removeprefix(goal) in BESIDE, f"{row['id']} begins like the goal {goal}"


def test_the_goals_that_were_measured_have_rows_under_their_ids():
    measured = {row["id"] for path in RESULTS for row in json.loads(path.read_text(encoding="utf-8"))["rows"]}
    assert measured >= {
        *("additive-forward", "additive-train", "kernel-regression-1m", "multi30k-en-de-2016", "aer-enfr"),
        *("cpu-train-rnn", "cpu-train-rnn-luong", "cpu-train-transformer", "cora", "citeseer"),
    }


def test_a_table_has_a_line_for_each_id_and_a_column_for_each_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("benchmarks.results.FOLDER", tmp_path)
    rows = [
        Row("walk/near", "jumok", 1.234, "ms", ""),
        Row("walk/near", "peer", 1234.5, "ms", ""),
        Row("walk/far", "jumok", 20.0, "ms", ""),
        Row("walk/far", "peer", None, "ms", "not run: too far; float32"),
        Row("swim/far", "jumok", 3.0, "s", ""),
    ]
    write("race", rows, device="a track")
    assert table("race", "walk/").splitlines() == [
        "| ms | jumok | peer |",
        "|---|---|---|",
        "| near | 1.23 | 1,234 |",
        "| far | 20 | not run: too far |",
    ]
    write("goal", [Row("cora", "jumok", 83.0, "%", ""), *rows[:1]], device="a track")
    assert table("goal", "walk/", "cora").splitlines()[2:] == ["| cora | 83.0 % |", "| near | 1.23 ms |"]
    assert table("race").splitlines()[0] == "|  | jumok | peer |"
    assert table("race").splitlines()[-1] == "| swim/far | 3 s |  |"
    page = "before\n<!-- table: race swim/ -->\nold\n<!-- end -->\nafter\n"
    assert with_tables(page) == (
        "before\n<!-- table: race swim/ -->\n| s | jumok |\n|---|---|\n| far | 3 |\n<!-- end -->\nafter\n"
    )


@pytest.mark.parametrize("name", ["README.md", "README.ko.md"])
def test_both_readmes_show_a_demo_that_was_run(name):
    """Its table by length is that of results/built_in.json, line by line."""
    rows = json.loads((FOLDER / "built_in.json").read_text(encoding="utf-8"))["rows"]
    measured = {(row["id"], row["system"]): row["value"] for row in rows}
    line = re.compile(r"^ +(\d+-\d+|over \d+|all) +\d+ +([\d.]+)% +([\d.]+)%$", re.MULTILINE)
    shown = line.findall((ROOT / name).read_text(encoding="utf-8"))
    assert len(shown) > 3
    for band, fixed, attention in shown:
        assert float(fixed) == measured[f"demo/{band}", "jumok, fixed context"]
        assert float(attention) == measured[f"demo/{band}", "jumok"]
    assert measured["demo/all", "jumok"] >= 95
    assert measured["recipe/dates", "jumok"] >= 99


@pytest.mark.parametrize("name", ["README.md", "README.ko.md"])
def test_both_readmes_say_what_a_small_recipe_takes_on_a_cpu_and_how_large_a_vocabulary_to_begin_with(name):
    rows = {row["id"]: row["value"] for row in json.loads((FOLDER / "small_cpu.json").read_text())["rows"]}
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "recipes/small-cpu.toml" in text
    assert re.search(rf"{rows['small-cpu-minutes']:.0f} ?(minutes|분)", text)
    assert f"BLEU {rows['small-cpu-bleu']:.1f}" in text
    (recipe,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert tomllib.loads(recipe)["tokenizer"] == {"size": 4000}
    assert set(tomllib.loads(recipe)) == {"data", "tokenizer"}


def test_the_bundled_model_is_as_good_as_it_says():
    rows = {row["id"]: row["value"] for row in json.loads((FOLDER / "bundled.json").read_text())["rows"]}
    described = (ROOT / "src/jumok/bundled/en-ko/README.md").read_text(encoding="utf-8")
    assert f"exact match of 2,000 unseen values: {rows['bundled-exact-match']:g}%" in described
    assert rows["bundled-exact-match"] >= 99
    assert rows["bundled-short"] >= 98
    assert rows["bundled-size"] <= 1.5


def test_both_readmes_compare_graph_layers_as_they_were_measured():
    rows = json.loads((FOLDER / "graph_attention.json").read_text(encoding="utf-8"))["rows"]
    measured = {(row["id"], row["system"]): row["value"] for row in rows}
    faster, smaller = (
        measured[name, "PyTorch Geometric"] / measured[name, "jumok"] for name in ("gat-train", "gat-memory")
    )
    text, korean = (
        " ".join((ROOT / name).read_text(encoding="utf-8").split()) for name in ("README.md", "README.ko.md")
    )
    assert f"PyTorch Geometric보다 {int(faster)}배 빠르게" in korean
    assert f"메모리는 1/{int(smaller / 10) * 10}만" in korean
    assert f"trains {int(faster)} times as fast as PyTorch Geometric's" in text
    assert f"in a {int(smaller / 10) * 10}th of the memory" in text
    assert measured["graph-checks-failed", "jumok"] == 0
