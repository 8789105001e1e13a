"""Streams that are closed, as `>&-` does, or take no more: results need somebody to take them, messages do not."""

import os
import signal
import subprocess
import sys

import pytest

from support.commands import RECIPE, write

pytestmark = pytest.mark.skipif(os.name != "posix", reason="closes streams by a shell")


def run(command, closed):
    """`jumok COMMAND` in a shell, with a stream closed."""
    line = f'exec "{sys.executable}" -m jumok {command} {closed}'
    return subprocess.run(["sh", "-c", line], capture_output=True, encoding="utf-8", timeout=120)


@pytest.mark.parametrize("command", ["translate", "inspect", "evaluate", "--version"])
def test_closed_standard_output_is_one_line_and_an_error(command):
    done = run(command, ">&- < /dev/null")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("jumok: standard output is closed")
    assert done.stderr.count("\n") == 1


@pytest.mark.long
def test_nobody_needs_to_read_messages(tmp_path):
    recipe = write(tmp_path / "reverse.toml", RECIPE)
    few = "--set training.steps=2 --set data.size=100 --set data.valid_size=4 --device cpu --json"
    done = run(f'train "{recipe}" --out "{tmp_path}/run" {few}', "2>&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert '"stopped": "steps"' in done.stdout
    assert (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.slow
def test_an_error_nobody_reads_is_still_an_exit_code():
    assert run("inspect nothere", ">&- 2>&-").returncode == 1
    assert run("nothing-of-that-name", "2>&-").returncode == 2


@pytest.mark.parametrize(("command", "unbuffered"), [("--help", ""), ("--version", "1"), ("translate --json", "")])
@pytest.mark.long
def test_who_has_read_enough_ends_a_command_as_any_other_program(command, unbuffered, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    read, write = os.pipe()
    os.close(read)
    line = f'echo 1 | "{sys.executable}" -m jumok {command}'
    try:
        done = subprocess.run(["sh", "-c", line], stdout=write, stderr=subprocess.PIPE, encoding="utf-8", timeout=120)
    finally:
        os.close(write)
    assert done.returncode == 128 + signal.SIGPIPE
    assert "jumok:" not in done.stderr
    assert "Error" not in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="has no disk that is always full")
@pytest.mark.parametrize(("command", "unbuffered"), [("--help", ""), ("--version", "1")])
def test_a_full_disk_below_standard_output_is_said_to_be_that(command, unbuffered, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    done = run(command, "> /dev/full")
    assert (done.returncode, done.stderr) == (1, "jumok: cannot write to standard output: No space left on device\n")
