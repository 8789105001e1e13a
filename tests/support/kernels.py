"""Checks of GPU kernels, run in a process of their own: on a GPU, or in Triton's interpreter where there is none.

The interpreter is chosen when Triton is imported, and its kernels cannot be wrapped by the checks of signatures.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

TESTS = Path(__file__).parents[1]
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")


def run_checks(*files: str, some: str = "") -> None:
    """The tests in these files of tests/, or those of them that `-k` chooses."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore::RuntimeWarning", "-k", some]
    if not torch.cuda.is_available():
        variables |= {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        options += ["-p", "support.interpreter"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *(str(TESTS / file) for file in files)],
        cwd=TESTS.parent, env=variables, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
