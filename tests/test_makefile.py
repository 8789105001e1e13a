"""What `make` says while it sets up, seen with a Python and a pip that do nothing."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PYTHON = """#!/bin/sh
if [ "$2" = venv ]; then
  mkdir -p .venv/bin
  printf '#!/bin/sh\\necho pip "$@" >&2\\n' > .venv/bin/pip
  chmod +x .venv/bin/pip
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


def make(folder, **streams):
    return subprocess.run(["make", "PYTHON=./python", ".venv/.ready"], cwd=folder, check=True, **streams)


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
    with open(end, "wb") as stderr, open(terminal, "rb", buffering=0) as shown:
        make(folder, stdout=subprocess.DEVNULL, stderr=stderr)
        said = shown.read(4096).decode()
    assert "pip install" in said
    assert "--quiet" not in said
