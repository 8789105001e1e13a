"""Commands that torchrun starts in several processes: all but `jumok train` refuse, once."""

import pytest

from jumok.cli import app
from jumok.cli.app import COMMANDS
from support.commands import jumok


def start(monkeypatch, *, rank: int, world: int) -> None:
    """The environment that torchrun gives to one of its processes."""
    monkeypatch.setattr(app, "HEAD_START", 0.0)
    values = {"RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "localhost", "MASTER_PORT": 1}
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"train"}))
def test_a_command_other_than_train_says_how_to_start_it(command, monkeypatch):
    start(monkeypatch, rank=0, world=2)
    done = jumok(command, "runs/x")
    assert (done.code, done.out) == (1, "")
    assert done.err.count("\n") == 1
    assert f"start it without torchrun: jumok {command} ..." in done.err


def test_the_other_processes_are_silent(monkeypatch):
    start(monkeypatch, rank=1, world=2)
    assert jumok("translate", "runs/x") == (1, "", "")


def test_one_process_of_torchrun_runs_every_command(monkeypatch):
    start(monkeypatch, rank=0, world=1)
    assert jumok("recipes").code == 0


def test_train_is_started_in_any_number_of_processes(monkeypatch):
    start(monkeypatch, rank=0, world=2)
    done = jumok("train", "--help")
    assert (done.code, done.err) == (0, "")
