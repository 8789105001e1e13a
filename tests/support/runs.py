"""Runs of training looked at from outside: what was said, what was written, and whether two are the same."""

import json
import os
import signal
from pathlib import Path

import torch
from safetensors.torch import load_file

from jumok.training import Report
from jumok.training.checkpoint import checkpoints


class Remarks(Report):
    """Remembers what was said, and can do something after a step."""

    def __init__(self, after=None):
        self.said, self.after = [], after or {}

    def say(self, message):
        self.said.append(message)

    def step(self, step):
        self.after.get(step, lambda: None)()


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def files_of(folder: Path) -> dict[str, dict[str, torch.Tensor]]:
    newest = checkpoints(folder / "checkpoints")[-1]
    return {path.name: load_file(path) for path in newest.glob("*.safetensors")}


def metrics_of(folder: Path) -> list[dict]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if "second" not in name} for line in lines]


def state_of(folder: Path) -> dict:
    saved = json.loads((checkpoints(folder / "checkpoints")[-1] / "state.json").read_text())
    return {name: value for name, value in saved["state"].items() if name != "seconds"}


def assert_same_run(one: Path, other: Path) -> None:
    assert metrics_of(one) == metrics_of(other)
    assert state_of(one) == state_of(other)
    first, second = files_of(one), files_of(other)
    assert first.keys() == second.keys()
    for file in first:
        assert first[file].keys() == second[file].keys()
        for name in first[file]:
            assert torch.equal(first[file][name], second[file][name]), (file, name)
    final, other_final = load_file(one / "model.safetensors"), load_file(other / "model.safetensors")
    assert all(torch.equal(final[name], other_final[name]) for name in final)
