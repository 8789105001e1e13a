"""Texts are UTF-8, in and out, whatever the locale says; only a terminal has letters of its own."""

import os
import subprocess
import sys

import pytest

from support.commands import jumok

PLAIN = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""A locale in which Python takes everything for ASCII."""


@pytest.mark.parametrize("encoding", ["ascii", "cp949", "utf-16"])
def test_results_are_utf8_whatever_the_encoding_of_standard_output(encoding):
    assert jumok("translate", stdin="two days ago\n", encoding=encoding).out == "2일 전\n"


def test_messages_in_a_file_are_utf8_too():
    done = jumok("inspect", "모델", encoding="ascii")
    assert done.code == 1
    assert "모델" in done.err


@pytest.mark.skipif(os.name != "posix", reason="needs a locale of POSIX")
@pytest.mark.long
def test_a_text_behind_a_command_is_utf8_where_the_locale_is_not():
    command = [sys.executable, "-m", "jumok", "look", "two days ago", "--target", "2일 전", "--json"]
    done = subprocess.run(command, capture_output=True, env=os.environ | PLAIN, timeout=120)
    assert '"text": "2일 전"' in done.stdout.decode()


@pytest.mark.skipif(os.name != "posix", reason="needs a terminal of POSIX")
def test_a_terminal_without_the_letters_of_a_result_is_told_once():
    code = "from jumok.cli.streams import open_streams; open_streams(); print('2\\uc77c'); print('2\\uc77c')"
    seen, terminal = os.openpty()
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=terminal,
        stderr=subprocess.PIPE,
        env=os.environ | PLAIN,
        encoding="utf-8",
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    shown = os.read(seen, 100).decode().splitlines()
    os.close(terminal)
    os.close(seen)
    assert shown == ["2?", "2?"]
    assert done.stderr.count("\n") == 1
    assert "this terminal" in done.stderr
    assert "> output.txt" in done.stderr
