"""All checks and timings on a CUDA GPU, in one table.

    JUMOK_DATA=path/to/data python -m benchmarks.gpu [--only attend,graphs] [--minutes 5] [--out FOLDER]
    python -m benchmarks.gpu --only next    # what is to be measured next, in this order: NEXT
    python -m benchmarks.gpu --collect      # measures nothing

Where a command may take only nine minutes: --only tests, and then --only decoding,scale,attend.
The part `resume` needs Multi30k in JUMOK_DATA, and `sanitizers` needs NVIDIA's compute-sanitizer; all others need
neither. Models that train for many minutes, such as those of Multi30k, have scripts of their own (`make results`).
Runs each benchmark in its own process with a time limit, so that one that fails or takes too long does not stop the
others. Each writes its own JSON file. The script then collects the measurements that are goals of the project from
these files, whenever they were written, prints them and writes them to gpu.json.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from benchmarks import results
from benchmarks.results import GOALS, Row


class Part(NamedTuple):
    """A module of benchmarks/, what it is called with, and the seconds it may take."""

    module: str
    seconds: int
    arguments: tuple[str, ...] = ()
    writes: str = ""
    """The name of its JSON file; the module's by default."""

    @property
    def result(self) -> str:
        return self.writes or self.module

    @property
    def path(self) -> str:
        """The module as Python imports it: pytest, or one of benchmarks/."""
        return self.module if self.module == PYTEST else f"benchmarks.{self.module}"


PYTEST = "pytest"
GPU_TESTS = tuple(
    f"tests/{name}.py"
    for name in (
        *("training/test_gpu", "training/test_cuda_graph", "decoding/test_static_search", "decoding/test_gpu_search"),
        *("tasks/test_part_search", "attention/flash/test_flash", "attention/additive/test_gpu"),
    )
)


PARTS = {
    "attend": Part("attend_gpu", 120),
    "graphs": Part("graph_attention", 60),
    "rnn": Part("rnn_gpu", 90),
    "transformer": Part("train_gpu", 300),
    "scale": Part("scale", 120, ("gpu",), "scale_gpu"),
    "decoding": Part("decode_gpu", 400),
    "regression-check": Part("regression", 30, ("check",)),
    "regression": Part("regression", 60, ("gpu",), "regression_gpu"),
    "additive": Part("additive_gpu", 75, ("--only", "checks,times")),
    "curves": Part("train_curves", 160),
    "control": Part("train_curves", 240, ("control",), "train_curves_control"),
    "profile": Part("train_profile", 60),
    "additive-more": Part("additive_gpu", 120, ("--only", "pieces,spread,long")),
    "claims": Part("claims", 150, ("speed", "--device", "cuda"), "claims_speed_gpu"),
    "resume": Part("resume_gpu", 240),
    "sanitizers": Part("additive_sanitizers", 300),
    "tests": Part(PYTEST, 480, ("-q", *GPU_TESTS)),
}
"""In the order in which they run, which matters if the time is limited."""
NEXT = ("tests", "decoding", "scale", "attend")
"""What has changed since it was last measured, or was never run on a GPU."""
MINUTES = 55.0
"""Enough for all parts, should each take all its seconds."""

WANTED = {
    "attend-causal": "≤ 1.05",
    "attend-lengths": "≤ 0.7",
    "rnnsearch-train": "≥ 1,000,000",
    "transformer-train": "≥ 1,100,000",
    "gpu-decode": "≥ 200,000",
    "gat-train": "≤ 5",
    "gat-memory": "≤ 3",
    "gatv2-train": "≤ 8",
    "kernel-regression-1m": "≤ 0.26",
    "additive-forward": "≤ 0.20",
    "additive-train": "≤ 1.0",
}
"""What the project aims at."""


class Outcome(NamedTuple):
    """How a part ended, and whether it wrote its file."""

    ended: str
    seconds: float
    written: bool


def run(part: Part, limit: float) -> Outcome:
    """Run a part, and end it and all that it started when its time is up."""
    if not find_spec(part.path):
        return Outcome("is not there", 0.0, False)
    began, path = time.time(), results.FOLDER / f"{part.result}.json"
    command = [sys.executable, "-u", "-W", "ignore", "-m", part.path, *part.arguments]
    environment = os.environ | {"JUMOK_RESULTS": str(results.FOLDER)}
    process = subprocess.Popen(command, cwd=results.ROOT, env=environment, start_new_session=True)
    try:
        code = process.wait(timeout=limit)
        ended = "done" if code == 0 else f"failed with exit code {code}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        ended = f"stopped after {limit:.0f} s"
    return Outcome(ended, time.time() - began, path.exists() and path.stat().st_mtime >= began)


def collect() -> tuple[str, list[Row]]:
    """The devices, and the goals among the rows, of all files that parts wrote."""
    paths = dict.fromkeys(results.FOLDER / f"{part.result}.json" for part in PARTS.values())
    read = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
    goals = [(result["device"], Row(**row)) for result in read for row in result["rows"] if row["id"] in GOALS]
    return "; ".join(dict.fromkeys(device for device, _ in goals)), [row for _, row in goals]


def table(rows: list[Row]) -> str:
    """A line for each goal that was measured: ours, what is wanted, and the others."""
    lines = ["| id | jumok | aim | others |", "|---|---|---|---|"]
    for goal in (goal for goal in GOALS if any(row.id == goal for row in rows)):
        values = {row.system: row for row in rows if row.id == goal}
        ours = values.pop("jumok", None)
        others = ", ".join(f"{system} {_shown(row)}" for system, row in values.items())
        lines.append(f"| {goal} | {'' if ours is None else _shown(ours)} | {WANTED.get(goal, '')} | {others} |")
    return "\n".join(lines)


def _shown(row: Row) -> str:
    return "–" if row.value is None else f"{row.value:,.4g} {row.unit}" if row.value < 1e4 else f"{row.value:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help=f"parts, separated by commas: {', '.join(PARTS)}")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="parts that would begin later are left out")
    parser.add_argument("--out", type=Path, help="folder of the JSON files; benchmarks/results by default")
    parser.add_argument("--collect", action="store_true", help="only collect what was measured before")
    given = parser.parse_args()
    if given.out is not None:
        results.FOLDER = given.out.resolve()
    chosen = [] if given.collect else given.only.split(",") if given.only else list(PARTS)
    chosen = list(NEXT) if chosen == ["next"] else chosen
    if unknown := [name for name in chosen if name not in PARTS]:
        parser.error(f"{unknown[0]} is not a part; parts are {', '.join(PARTS)}")
    end = time.time() + 60 * given.minutes
    outcomes: dict[str, Outcome] = {}
    for name in chosen:
        left = end - time.time()
        print(f"=== {name}", flush=True)
        outcomes[name] = (
            run(PARTS[name], min(PARTS[name].seconds, left)) if left > 5 else Outcome("no time", 0.0, False)
        )
    for name, outcome in outcomes.items():
        wrote = "" if outcome.written else ", wrote nothing"
        print(f"{name}: {outcome.ended}, {outcome.seconds:.0f} s{wrote}")
    device, rows = collect()
    print(table(rows))
    print(results.write("gpu", rows, device=device, packages=()))
    sys.exit(any(outcome.ended not in ("done", "is not there") for outcome in outcomes.values()))


if __name__ == "__main__":
    main()
