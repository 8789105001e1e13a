"""benchmarks/gpu.py: parts that end well, fail, take too long or are not there."""

from unittest.mock import ANY

import pytest

from benchmarks import gpu, results
from benchmarks.commands import COMMANDS, GPU, tables
from benchmarks.gpu import Part, collect, run, table
from benchmarks.results import Row


@pytest.fixture
def part(tmp_path, monkeypatch):
    """Turns a program into a part."""
    (tmp_path / "benchmarks").mkdir()
    monkeypatch.setattr(results, "FOLDER", tmp_path / "out")
    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.setattr(gpu, "find_spec", lambda name: name != "benchmarks.missing")

    def make(program: str) -> Part:
        (tmp_path / "benchmarks" / "program.py").write_text(program)
        return Part("program", 60)

    return make


ROW = '{"id": "gat-train", "system": "jumok", "value": 4.5, "unit": "ms", "conditions": ""}'
WRITES = f"""
import os, pathlib
folder = pathlib.Path(os.environ["JUMOK_RESULTS"])
folder.mkdir()
(folder / "program.json").write_text('{{"device": "a GPU", "rows": [{ROW}]}}')
"""


def test_the_goals_that_parts_wrote_are_collected(part, monkeypatch):
    monkeypatch.setattr(gpu, "PARTS", {"program": part(WRITES), "another": Part("another", 60)})
    assert run(gpu.PARTS["program"], 60) == ("done", ANY, True)
    assert collect() == ("a GPU", [Row("gat-train", "jumok", 4.5, "ms", "")])


@pytest.mark.parametrize(
    ("program", "limit", "ended"),
    [("raise SystemExit(3)", 60, "failed with exit code 3"), ("while True: pass", 1, "stopped after 1 s")],
)
def test_a_part_that_fails_or_takes_too_long_is_reported(part, program, limit, ended):
    assert run(part(program), limit).ended == ended


@pytest.mark.slow
def test_a_part_that_is_cut_short_keeps_what_it_wrote(part):
    assert run(part(WRITES + "while True: pass"), 2).written


def test_a_part_that_is_not_there_is_left_out(part):
    assert run(part("")._replace(module="missing"), 60).ended == "is not there"


def test_the_table_shows_goals_with_their_aims_and_others():
    rows = [Row("gat-train", "jumok", 4.5, "ms", ""), Row("gat-train", "PyTorch Geometric", 92.0, "ms", "")]
    assert table(rows).splitlines()[-1] == "| gat-train | 4.5 ms | ≤ 5 | PyTorch Geometric 92 ms |"


def test_every_gpu_table_of_the_pages_on_speed_has_a_part():
    shown = {table.name for table in tables() if table.page.name in ("speed.md", "kernels.md")}
    measured = {name for name in shown if COMMANDS[name].device == GPU} - {"multi30k_time"}  # which trains for minutes
    # The checks of additive attention run before it is timed, and write a file of their own.
    assert measured - {part.result for part in gpu.PARTS.values()} == {"additive_checks"}


def test_all_parts_fit_into_the_default_time_limit():
    assert sum(part.seconds for part in gpu.PARTS.values()) <= 60 * gpu.MINUTES


def test_what_is_measured_next_begins_with_tests_that_are_there():
    assert set(gpu.NEXT) <= gpu.PARTS.keys()
    assert gpu.NEXT[0] == "tests"
    assert all((results.ROOT / path).exists() for path in gpu.GPU_TESTS)
    paths = [gpu.PARTS[name].path for name in gpu.NEXT]
    assert paths == ["pytest", "benchmarks.decode_gpu", "benchmarks.scale", "benchmarks.attend_gpu"]
