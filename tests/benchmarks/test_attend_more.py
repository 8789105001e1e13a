"""benchmarks/attend_more.py: jumok and flex attention compute the same, here on a CPU and not compiled."""

import sys

import pytest
import torch

from benchmarks import attend_gpu, results
from benchmarks.attend_more import BEFORE, Case, cases, difference

SHAPE = 2, 2, BEFORE + 22, 16
NAMES = ("additive bias", "ALiBi, causal", "soft cap, causal", f"window of {BEFORE}, causal")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # flex attention warns that it is not compiled
def test_a_case_gives_the_same_values_as_flex_attention():
    found = list(cases(SHAPE, "cpu", torch.float32))
    assert tuple(case.name for case in found) == NAMES
    for case in found:
        assert difference(case) < 1e-5, case.name


def test_a_case_that_fails_leaves_the_others(monkeypatch, capsys):
    query = torch.ones(2, requires_grad=True)
    well = Case("well", lambda: 2 * query, lambda: query + query, "a sum", [query], [query])
    wrong = well._replace(name="wrong", theirs=lambda: 3 * query)
    fails = well._replace(name="fails", theirs=lambda: query @ torch.ones(3))
    monkeypatch.setattr(attend_gpu.attend_more, "cases", lambda shape: iter([wrong, fails, well]))
    monkeypatch.setattr(attend_gpu, "milliseconds", lambda compute: 1.0)
    rows = attend_gpu.measure_more((2,))
    assert [(row.id, row.system) for row in rows] == [("attend-more/well", "jumok"), ("attend-more/well", "PyTorch")]
    assert "wrong: values differ by 1, so it is not timed" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_measured(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["attend_gpu"])
    monkeypatch.setattr(results, "FOLDER", results.FOLDER)  # which --out replaces
    with pytest.raises(SystemExit, match="needs a CUDA GPU"):
        attend_gpu.main()
