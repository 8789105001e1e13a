"""The tables of the documentation are the benchmarks' own numbers."""

import argparse
import json
import re
import runpy
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

from benchmarks import l10n
from benchmarks.commands import COMMANDS, listing, shown, tables
from benchmarks.results import BESIDE, FOLDER, GOALS, MARKED, Row, is_korean, table, with_tables, write

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("README*.md"), *ROOT.glob("docs/*.md")])
RESULTS = sorted(FOLDER.glob("*.json"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_of_a_page_are_made_from_the_results(page: Path):
    text = page.read_text(encoding="utf-8")
    assert text == with_tables(text, korean=is_korean(page)), "run: python -m benchmarks.results"
    assert text.count("<!-- table:") == len(MARKED.findall(text)), "a table has no <!-- end -->"


def test_every_table_has_the_commands_that_measure_it():
    assert {table.name for table in tables()} <= COMMANDS.keys(), "add the commands to benchmarks/commands.py"
    assert {path.stem for path in RESULTS} <= COMMANDS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_last_command_of_results_is_a_script_that_writes_them(name: str):
    modules = [re.fullmatch(r"(?:JUMOK_DATA=\S+ )?python -m benchmarks\.(\w+)( .*)?", line) for line in shown(name)]
    assert modules[-1] is not None
    script = (ROOT / f"benchmarks/{modules[-1][1]}.py").read_text(encoding="utf-8")
    # The speed of the claims is written under the name of the device.
    assert f'write("{name}"' in script or (name.startswith("claims_speed_") and 'write(f"claims_speed_' in script)
    assert all((ROOT / f"benchmarks/{module[1]}.py").exists() for module in modules if module)


SCRIPTS = sorted({command for commands in COMMANDS.values() for command in commands.run if "benchmarks." in command})


@pytest.mark.parametrize("command", SCRIPTS)
def test_a_script_understands_its_listed_arguments(command: str, monkeypatch):
    module, *arguments = shlex.split(command)
    script, parse = ROOT / f"{module.replace('.', '/')}.py", argparse.ArgumentParser.parse_args
    if "parse_args()" not in script.read_text(encoding="utf-8"):
        assert not arguments, f"{script.name} takes no arguments"
        return

    def parse_alone(parser: argparse.ArgumentParser) -> None:
        parse(parser)
        sys.exit("parsed")

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_alone)
    monkeypatch.setattr(sys, "argv", [str(script), *arguments])
    with pytest.raises(SystemExit, match=r"^parsed$"):
        runpy.run_path(str(script), run_name="__main__")


@pytest.mark.long
def test_training_of_software_text_that_fails_names_its_log(tmp_path, monkeypatch):
    monkeypatch.setenv("JUMOK_L10N", str(tmp_path / "nothing"))
    with pytest.raises(SystemExit, match=r"training failed; read .*en-ko\.1\.log"):
        l10n.train(tmp_path, ["en-ko"], [1], [])
    assert "nothing" in (tmp_path / "en-ko.1.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["README.md", "README.ko.md", "docs/results.md"])
def test_pages_say_that_a_time_limit_stopped_runs_they_show(page: str):
    rows = json.loads((FOLDER / "multi30k.json").read_text(encoding="utf-8"))["rows"]
    stopped = {row["system"] for row in rows if "time limit" in row["conditions"] and "en-de-2016" in row["id"]}
    text = (ROOT / page).read_text(encoding="utf-8")
    assert stopped == {"jumok, Luong"}
    assert "time limit" in text or "시간제한" in text


def test_make_results_lists_every_table_of_a_page():
    lines = list(listing(["results.md"]))
    assert lines[0] == "docs/results.md"
    (multi30k,) = [line for line in lines if "multi30k.json" in line]
    assert "multi30k-en-de-…, multi30k-en-fr-…, multi30k-de-en-…" in multi30k
    assert "    python -m benchmarks.built_in runs/built-in" in lines


@pytest.mark.parametrize("name", ["g2p", "inflection"])
def test_the_page_of_results_has_the_commands_that_make_results_lists(name: str):
    lines = (ROOT / "docs/results.md").read_text(encoding="utf-8").splitlines()
    assert [line.strip() for line in lines if f"python -m benchmarks.{name} " in line] == shown(name)


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


def test_every_goal_has_rows_under_its_id():
    measured = {row["id"] for path in RESULTS for row in json.loads(path.read_text(encoding="utf-8"))["rows"]}
    assert not GOALS.keys() - measured


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


def test_a_deviation_follows_its_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("benchmarks.results.FOLDER", tmp_path)
    rows = [
        Row("cora", "jumok", 84.25, "%", ""),
        Row("cora-deviation", "jumok", 0.55, "%", ""),
        Row("cora", "peer", 83.0, "%", ""),
    ]
    write("graphs", rows, device="a track")
    assert table("graphs").splitlines() == ["| % | jumok | peer |", "|---|---|---|", "| Cora | 84.2 ± 0.6 | 83.0 |"]


def test_results_with_many_systems_have_a_line_for_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("benchmarks.results.FOLDER", tmp_path)
    rows = [
        Row("multi30k-2016", "jumok, Luong", 33.32, "BLEU", ""),
        Row("multi30k-2016-cased", "jumok, Luong", 32.98, "BLEU", ""),
    ]
    write("multi30k", rows, device="a track")
    assert table("multi30k", "multi30k-").splitlines() == [
        "| BLEU | 2016 | 2016, cased |",
        "|---|---|---|",
        "| jumok, Luong | 33.32 | 32.98 |",
    ]


def test_numbers_of_one_run_in_several_units_share_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("benchmarks.results.FOLDER", tmp_path)
    write("texts", [Row("news", "jumok", 7.76, "chrF", ""), Row("news-bleu", "jumok", 0.69, "BLEU", "")], device="")
    assert table("texts").splitlines() == ["|  | chrF | BLEU |", "|---|---|---|", "| news | 7.76 | 0.69 |"]


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
def test_both_readmes_name_the_small_recipe_and_how_large_a_vocabulary_to_begin_with(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "recipes/small-cpu.toml" in text
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
