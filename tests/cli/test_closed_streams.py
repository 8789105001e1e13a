"""Streams that are closed, as `>&-` does: results need somebody to take them, messages do not."""

import os
import subprocess
import sys

import pytest

from commands import RECIPE, write

pytestmark = pytest.mark.skipif(os.name != "posix", reason="closes streams by a shell")


def run(command, closed):
    """`jumok COMMAND` in a shell, with a stream closed."""
    line = f'exec "{sys.executable}" -m jumok.cli {command} {closed}'
    return subprocess.run(["sh", "-c", line], capture_output=True, encoding="utf-8", timeout=120)


@pytest.mark.parametrize("command", ["translate", "inspect", "evaluate", "--version"])
def test_closed_standard_output_is_one_line_and_an_error(command):
    done = run(command, ">&- < /dev/null")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("jumok: standard output is closed")
    assert done.stderr.count("\n") == 1


def test_nobody_needs_to_read_messages(tmp_path):
    recipe = write(tmp_path / "reverse.toml", RECIPE)
    few = "--set training.steps=2 --set data.size=100 --set data.valid_size=4 --device cpu --json"
    done = run(f'train "{recipe}" --out "{tmp_path}/run" {few}', "2>&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert '"stopped": "steps"' in done.stdout
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_an_error_nobody_reads_is_still_an_exit_code():
    assert run("inspect nothere", "2>&-").returncode == run("inspect nothere", ">&- 2>&-").returncode == 1
