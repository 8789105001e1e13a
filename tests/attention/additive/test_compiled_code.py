"""What Triton makes of the fused additive kernels for a GPU that is not here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

triton = pytest.importorskip("triton")
TOOL = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
ROOT = Path(__file__).parents[3]


@pytest.mark.long
@pytest.mark.skipif(not TOOL.exists(), reason="this Triton brings no tool that shows machine code")
def test_the_loop_over_features_is_seventeen_instructions_for_four_and_leaves_room_for_many_tiles(tmp_path):
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    subprocess.run(
        [sys.executable, "-m", "benchmarks.additive_code", "--out", tmp_path],
        env={**os.environ, "PYTHONPATH": paths, "TRITON_INTERPRET": "0"},
        check=True,
        capture_output=True,
    )
    rows = json.loads((tmp_path / "additive_code.json").read_text())["rows"]
    found = {row["id"]: row["value"] for row in rows}
    assert found["additive-instructions/arithmetic"] == 17 / 4
    assert found["additive-instructions/with v in a uniform register"] == 6 / 4
    assert found["additive-registers/tiles of 32 × 32"] <= 80
