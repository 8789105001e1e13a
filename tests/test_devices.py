"""bfloat16 on a CPU must not end the program, whatever the machine claims to be able to do."""

import os
import subprocess
import sys

import pytest
import torch

from jumok import devices as cpu


@pytest.fixture
def no_limit(monkeypatch):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)


def pretend(monkeypatch, *, advertised: bool, permitted: bool) -> None:
    monkeypatch.setattr(cpu, "_advertised", lambda: advertised)
    monkeypatch.setattr(cpu, "_permitted", lambda: permitted)


def test_amx_that_is_refused_is_left_alone_when_torch_is_not_loaded_yet(monkeypatch, no_limit):
    pretend(monkeypatch, advertised=True, permitted=False)
    monkeypatch.delitem(sys.modules, "torch")
    cpu.avoid_broken_amx()
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE_BF16"


def test_when_torch_is_loaded_already_onednn_is_switched_off_instead(monkeypatch, no_limit):
    pretend(monkeypatch, advertised=True, permitted=False)
    before = torch.backends.mkldnn.enabled
    try:
        cpu.avoid_broken_amx()
        assert not torch.backends.mkldnn.enabled
    finally:
        torch.backends.mkldnn.set_flags(before)


@pytest.mark.parametrize(("advertised", "permitted"), [(False, False), (True, True)])
def test_a_machine_that_keeps_its_word_is_left_as_it_is(monkeypatch, no_limit, advertised, permitted):
    pretend(monkeypatch, advertised=advertised, permitted=permitted)
    before = torch.backends.mkldnn.enabled
    cpu.avoid_broken_amx()
    assert "ONEDNN_MAX_CPU_ISA" not in os.environ
    assert torch.backends.mkldnn.enabled == before


@pytest.mark.parametrize(
    ("given", "spins"), [({}, "5000"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "None"), ({"GOMP_SPINCOUNT": "7"}, "7")]
)
def test_threads_wait_briefly_unless_told_otherwise(given, spins):
    program = "import jumok, os; print(os.environ.get('GOMP_SPINCOUNT'))"
    plain = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=plain | given, timeout=60)
    assert ran.stdout.strip() == spins, ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("first", ["jumok", "torch"])
def test_bfloat16_attention_runs_on_this_machine(first):
    program = (
        f"import {first}, torch; from jumok.attention import attend; x = torch.randn(2, 4, 64, 64).bfloat16(); "
        "print(attend(x, x, x).values.isfinite().all().item())"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ran.stdout.strip() == "True", ran.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a setting of glibc")
def test_memory_that_a_step_frees_is_kept_for_the_next():
    program = """
import resource, sys, torch
from jumok.devices import keep_freed_memory

def faults():
    start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        tensors = [torch.zeros(2**20) for _ in range(20)]  # 4 MiB each
        del tensors
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start

keep_freed_memory()
faults()
print(faults())
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert int(ran.stdout) < 2000, "20 rounds of 80 MiB are 400,000 pages"


def test_a_c_library_without_the_setting_is_left_as_it_is(monkeypatch):
    import ctypes

    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    cpu.keep_freed_memory()
