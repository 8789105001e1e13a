"""`torchrun -m jumok train`: one run of several processes, stopped, killed, restarted and refused."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from support.commands import RECIPE, write
from support.processes import free_port
from support.runs import metrics_of, state_of

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="processes are found with the help of /proc"),
]
CHANGES = ("training.validate_every=10", "training.log_every=2", "data.size=300", "data.valid_size=8")
BRIEF = ("--device", "cpu", *(f"--set={change}" for change in CHANGES))


class Launched:
    """A run of two processes, and what it has said so far."""

    def __init__(self, folder: Path, *arguments: str, torchrun: tuple[str, ...] = ()) -> None:
        self.log = folder / "log"
        recipe = write(folder / "recipe.toml", RECIPE)
        launch = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()), *torchrun)
        command = [sys.executable, *launch, "-m", "jumok", "train", str(recipe), *BRIEF, *arguments]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"OMP_NUM_THREADS": "1"})

    @property
    def said(self) -> str:
        return self.log.read_text()

    def wait_for(self, pattern: str) -> None:
        began = time.monotonic()
        while not re.search(pattern, self.said):
            assert self.process.poll() is None, self.said
            assert time.monotonic() - began < 120, self.said
            time.sleep(0.05)

    def workers(self) -> list[int]:
        found = []
        for name in os.listdir("/proc"):
            with suppress(OSError, ValueError):
                if f"\nPPid:\t{self.process.pid}\n" in Path(f"/proc/{int(name)}/status").read_text():
                    found.append(int(name))
        return sorted(found)

    def end(self) -> int:
        return self.process.wait(180)


def test_ctrl_c_stops_all_processes_with_everything_saved_and_resume_goes_on(tmp_path):
    run = Launched(tmp_path, "--out", str(tmp_path / "run"), "--set", "training.steps=100000")
    run.wait_for("step 12/")
    run.process.send_signal(signal.SIGINT)
    assert run.end() != 0
    stopped = state_of(tmp_path / "run")["step"]
    assert f"stopped after step {stopped}, all saved in" in run.said
    assert run.said.count("jumok: ") == run.said.count("jumok: interrupted") == 1
    again = Launched(
        tmp_path, "--out", str(tmp_path / "run"), "--resume", "--set", f"training.steps={stopped + 4}", "--json"
    )
    assert again.end() == 0
    assert f"resuming after step {stopped}" in again.said
    assert again.said.count('"stopped": "steps"') == 1
    assert state_of(tmp_path / "run")["step"] == stopped + 4


@pytest.mark.long(seconds=20)
def test_a_killed_process_is_restarted_and_goes_on_from_the_newest_checkpoint(tmp_path):
    saving = ("--set", "training.steps=40", "--set", "training.save_every=5")
    run = Launched(tmp_path, "--out", str(tmp_path / "run"), *saving, torchrun=("--max-restarts", "1"))
    run.wait_for("step 12/")
    os.kill(run.workers()[1], signal.SIGKILL)
    assert run.end() == 0
    assert run.said.count("resuming after step ") == run.said.count("another process of this run has ended") == 1
    whole = Launched(tmp_path, "--out", str(tmp_path / "whole"), *saving)
    assert whole.end() == 0
    assert metrics_of(tmp_path / "run") == metrics_of(tmp_path / "whole")


def test_what_is_wrong_is_said_once(tmp_path):
    (tmp_path / "run").mkdir()
    write(tmp_path / "run/metrics.jsonl", "a user's own")
    run = Launched(tmp_path, "--out", str(tmp_path / "run"))
    assert run.end() != 0
    assert re.findall("(?m)^jumok: .*$", run.said) == [
        f"jumok: {tmp_path / 'run'} holds metrics.jsonl, which the model's own would overwrite; train into another "
        "folder: --out runs/NAME (in Python out=)"
    ]
    other = Launched(tmp_path, "--unknown")
    assert other.end() != 0
    assert len(re.findall("(?m)^jumok: ", other.said)) == 1


def test_a_script_may_train_twice_and_every_process_has_the_model(tmp_path):
    script = """
import os, tomllib
import jumok
tables = tomllib.loads(open("recipe.toml").read())
brief = {"training.steps": 4, "training.validate_every": 2, "data.valid_size": 8}
for name in ("first", "second"):
    run = jumok.train(tables, out=name, overrides=brief, draw=False, device="cpu")
    said = run.model.translate(["1 2"])[0].text
    open(f"{name}.{run.state.step}.{os.environ['RANK']}", "w").write(said)
"""
    write(tmp_path / "recipe.toml", RECIPE)
    write(tmp_path / "script.py", script)
    launch = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()), "script.py")
    subprocess.run([sys.executable, *launch], cwd=tmp_path, check=True, capture_output=True)
    texts = {path.name: path.read_text() for path in tmp_path.glob("*.4.*")}
    assert texts.keys() == {"first.4.0", "first.4.1", "second.4.0", "second.4.1"}
    assert len(set(texts.values())) == 1
