"""What `make` says while it sets up, seen with a Python and a pip that do nothing."""

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PYTHON = """#!/bin/sh
if [ "$2" = venv ]; then
  mkdir -p .venv/bin
  for name in pip pytest ruff mypy jumok; do
    printf '#!/bin/sh\\necho %s "$@" >&2\\n' $name > .venv/bin/$name
    chmod +x .venv/bin/$name
  done
fi
"""


@pytest.fixture
def folder(tmp_path):
    if shutil.which("make") is None:
        pytest.skip("there is no make here")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def make(folder, target=".venv/.ready", **streams):
    return subprocess.run(["make", "PYTHON=./python", target], cwd=folder, check=True, **streams)


def commands(folder, target):
    """What `make target` runs of .venv/bin, a line each."""
    said = make(folder, target, capture_output=True, text=True).stderr.splitlines()
    return [line for line in said if line.split()[0] in ("pip", "pytest", "ruff", "mypy", "jumok")]


def extras(command):
    return command.rpartition("--editable .")[2]


def test_make_says_that_it_installs_and_when_it_is_done(folder):
    said = make(folder, capture_output=True, text=True).stderr.splitlines()
    assert said[0].startswith("setting up .venv")
    assert said[1].startswith("pip install")
    assert "--quiet" in said[1]
    assert said[2].startswith(".venv is ready")
    assert make(folder, capture_output=True, text=True).stderr == ""


def test_at_a_terminal_pip_shows_its_progress(folder):
    pty = pytest.importorskip("pty")
    terminal, end = pty.openpty()
    with open(terminal, "rb", buffering=0) as shown:
        with open(end, "wb") as stderr:
            make(folder, stdout=subprocess.DEVNULL, stderr=stderr)
        said = ""
        with suppress(OSError):  # so a terminal ends that nobody writes to
            while part := shown.read(4096):
                said += part.decode()
    assert "pip install" in said
    assert "--quiet" not in said


def test_the_demo_installs_no_test_packages_and_the_tests_add_them(folder):
    install, demo = commands(folder, "demo")
    assert (extras(install), demo) == ("[plot,sklearn]", "jumok demo")
    install, *_, tests = commands(folder, "test")
    assert extras(install) == "[test]"
    assert tests.startswith("pytest")


def test_nothing_is_installed_twice_between_demo_and_test(folder):
    assert [extras(line) for line in commands(folder, "test") if line.startswith("pip")] == ["[plot,sklearn]", "[test]"]
    for target in ("demo", "test", "test-fast", "test-all", "check", "demo"):
        assert not [line for line in commands(folder, target) if line.startswith("pip")], target
