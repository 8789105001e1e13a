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


@pytest.mark.long(seconds=10)
@pytest.mark.skipif(not TOOL.exists(), reason="this Triton brings no tool that shows machine code")
def test_the_loop_over_features_is_seventeen_instructions_for_four_and_leaves_room_for_many_tiles():
    program = "import json; from benchmarks import additive_code as code\n"
    program += "print(json.dumps({row.id: row.value for row in code.large_tiles()}))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "TRITON_INTERPRET": "0"},
        check=True,
        capture_output=True,
    )
    found = json.loads(done.stdout)
    assert found["additive-instructions/arithmetic"] == 17 / 4
    assert found["additive-instructions/with v in a uniform register"] == 6 / 4
    assert found["additive-registers/tiles of 32 × 32"] <= 80
