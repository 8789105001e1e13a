"""A short version of benchmarks/soak.py: mixed load, hang-ups and too much at once, then SIGTERM under load."""

import sys

import pytest

from benchmarks.soak import soak
from jumok.model_folder import BUNDLED


@pytest.mark.long
@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGTERM")
def test_under_mixed_load_no_answer_is_lost_or_somebody_elses():
    result = soak(str(BUNDLED), seconds=3, clients=4, burst=3, short=12, long=1)
    assert result.tally.outcomes["answered"] > 0
    assert (result.tally.outcomes["lost"], result.tally.outcomes["mixed"]) == (0, 0), result.tally.notes
    assert result.exit_code == 0
    assert result.log_bytes < 10_000
