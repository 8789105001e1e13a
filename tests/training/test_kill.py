"""Killed without warning at any moment, a run resumes to the very same bits; benchmarks/crash.py does it at length."""

import os

import pytest

from benchmarks.crash import campaign

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="kills are placed with the help of /proc")


@pytest.mark.long
def test_runs_that_are_killed_end_with_the_same_bits_and_their_folders_are_whole_meanwhile():
    found = campaign(["rnn", "graphs"], kills=6, seconds=30)
    assert not found.failures
    assert found.identical == found.runs >= 1
    assert found.kills.total() == found.whole + found.absent >= 4
