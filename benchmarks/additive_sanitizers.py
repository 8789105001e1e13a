"""Memory errors and races in the kernels of fused additive attention.

    python -m benchmarks.additive_sanitizers [--out FOLDER]

Runs checks of additive_checks.py that cover every kernel under NVIDIA's compute-sanitizer on a CUDA GPU: memcheck
finds accesses outside of tensors, racecheck finds races in shared memory. Writes additive_sanitizers.json with the
number of findings and of checks.
"""

import argparse
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from benchmarks import results
from benchmarks.results import Row

TOOLS = {"memcheck": r"ERROR SUMMARY: (\d+) error", "racecheck": r"RACECHECK SUMMARY: (\d+) hazard"}
"""And where each says how much it found."""


def watched(tool: str) -> Row:
    """One tool's finding; a summary that is missing, or a check that fails, is an error."""
    command = ["compute-sanitizer", "--tool", tool, sys.executable, "-m", "benchmarks.additive_checks", "--few"]
    # Every tensor has an allocation of its own: in PyTorch's cache the next one is no error to step on.
    alone = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", errors="replace", env=alone)
    output = done.stdout + done.stderr
    summary, failed = re.search(TOOLS[tool], output), re.search(r"checks: (\d+) wrong", output)
    if summary is None or failed is None or int(failed[1]):
        sys.exit(f"{tool} did not come to its end:\n{output[-3000:]}")
    checks = f"{len(re.findall(r' s ok', output))} checks"
    return Row(f"additive-sanitizer/{tool}", "jumok", int(summary[1]), "findings", checks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=results.FOLDER)
    results.FOLDER = parser.parse_args().out
    with ThreadPoolExecutor() as pool:
        rows = list(pool.map(watched, TOOLS))
    for row in rows:
        print(f"{row.id}: {row.value} {row.unit} in {row.conditions}")
    results.write("additive_sanitizers", rows, device=torch.cuda.get_device_name(), packages=("torch", "triton"))


if __name__ == "__main__":
    main()
