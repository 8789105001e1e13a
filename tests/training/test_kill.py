"""Killed without warning at any moment, a run resumes to the very same bits."""

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from killed import start
from runs import assert_same_run

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes are forked, and killed, as POSIX has it")


def kill_and_resume(folder: Path, steps: int, kills: int, seed: int) -> None:
    """Start, kill after a random while, start again, ...; then let it finish."""
    draws, ends = random.Random(seed), []
    for number in range(kills):
        process = start(folder, steps, resume=number > 0)
        reached(process, folder)
        time.sleep(draws.uniform(0, 0.3))
        process.kill()
        process.join()
        ends.append(process.exitcode)
    assert -signal.SIGKILL in ends
    finished(start(folder, steps, resume=True))


def reached(process: Any, folder: Path) -> None:
    """Wait until training writes something new, so that kills fall among steps and not into the beginning."""
    path = folder / "metrics.jsonl"
    before = path.stat().st_mtime_ns if path.exists() else 0
    while process.is_alive() and (not path.exists() or path.stat().st_mtime_ns == before):
        time.sleep(0.005)


def finished(process: Any) -> None:
    process.join(300)
    assert process.exitcode == 0


def test_a_run_killed_at_random_moments_ends_with_the_same_bits(tmp_path):
    finished(start(tmp_path / "whole", 60, resume=False))
    kill_and_resume(tmp_path / "killed", 60, kills=3, seed=0)
    assert_same_run(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_a_run_killed_many_times_ends_with_the_same_bits(tmp_path, seed):
    finished(start(tmp_path / "whole", 150, resume=False))
    kill_and_resume(tmp_path / "killed", 150, kills=10, seed=seed)
    assert_same_run(tmp_path / "whole", tmp_path / "killed")
