"""Type checkers read a package's annotations only where it says that they are there."""

import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest


def test_the_package_says_that_it_is_typed():
    assert files("jumok").joinpath("py.typed").is_file()


@pytest.mark.long(seconds=15)
def test_what_is_loaded_has_the_type_that_the_task_gives(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import jumok\n"
        "from jumok.tasks import CAPTIONING, NODE_CLASSIFICATION\n"
        "a: jumok.Translator = jumok.load()\n"
        "b: jumok.Captioner = jumok.load('x', task=CAPTIONING)\n"
        "c: int = jumok.load('x', task=NODE_CLASSIFICATION)\n"
        "d: int = jumok.load()\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(program)]
    said = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False).stdout
    assert [line.split(":")[1] for line in said.splitlines() if "error" in line and "program.py" in line] == ["5", "6"]


def test_a_wheel_brings_every_file_of_the_package():
    # Hatch takes all that lies in a package and is not ignored by Git.
    project = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["src/jumok"]
    assert not wheel.keys() & {"include", "exclude", "only-include"}
