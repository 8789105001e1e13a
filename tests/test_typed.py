"""Type checkers read a package's annotations only where it says that they are there."""

import tomllib
from importlib.resources import files
from pathlib import Path


def test_the_package_says_that_it_is_typed():
    assert files("jumok").joinpath("py.typed").is_file()


def test_a_wheel_brings_every_file_of_the_package():
    # Hatch takes all that lies in a package and is not ignored by Git.
    project = tomllib.loads(Path(__file__).parents[1].joinpath("pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["src/jumok"]
    assert not wheel.keys() & {"include", "exclude", "only-include"}
