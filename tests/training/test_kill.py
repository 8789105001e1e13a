"""Killed without warning at any moment, a run resumes to the very same bits."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runs import assert_same_run

SCRIPT = """
import sys
import torch
torch.set_num_threads(1)
from tiny import TinyBatches, TinyModel, validate
from jumok.training import TrainingConfig, train
config = TrainingConfig(
    steps={steps}, accumulate=2, warmup=4, ema=0.9, clip=0.5, patience=0,
    validate_every=4, save_every=3, log_every=2, metric="loss", keep=2,
)
train(TinyModel(), TinyBatches(), config, folder=sys.argv[1], validate=validate, resume="resume" in sys.argv)
print("done")
"""
TESTS = Path(__file__).parent.parent


def start(folder: Path, steps: int, *, resume: bool) -> subprocess.Popen:
    script = f"import sys; sys.path.insert(0, {str(TESTS)!r})\n" + SCRIPT.replace("{steps}", str(steps))
    command = [sys.executable, "-c", script, str(folder), *(["resume"] if resume else [])]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def kill_and_resume(folder: Path, steps: int, kills: int, seed: int) -> None:
    """Start, kill after a random while, start again, ...; then let it finish."""
    draws, ends = random.Random(seed), []
    for number in range(kills):
        process = start(folder, steps, resume=number > 0)
        reached(process, folder)
        time.sleep(draws.uniform(0, 0.3))
        process.kill()
        process.communicate()
        ends.append(process.returncode)
    assert -signal.SIGKILL in ends
    output, _ = start(folder, steps, resume=True).communicate(timeout=300)
    assert output == b"done\n"


def reached(process: subprocess.Popen, folder: Path) -> None:
    """Wait until training writes something new, so that kills fall among steps and not into imports."""
    path = folder / "metrics.jsonl"
    before = path.stat().st_mtime_ns if path.exists() else 0
    while process.poll() is None and (not path.exists() or path.stat().st_mtime_ns == before):
        time.sleep(0.005)


def test_a_run_killed_at_random_moments_ends_with_the_same_bits(tmp_path):
    start(tmp_path / "whole", 60, resume=False).communicate()
    kill_and_resume(tmp_path / "killed", 60, kills=3, seed=0)
    assert_same_run(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 5))
def test_a_run_killed_many_times_ends_with_the_same_bits(tmp_path, seed):
    start(tmp_path / "whole", 150, resume=False).communicate()
    kill_and_resume(tmp_path / "killed", 150, kills=10, seed=seed)
    assert_same_run(tmp_path / "whole", tmp_path / "killed")
