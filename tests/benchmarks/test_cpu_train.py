"""benchmarks/cpu_train.py: speed from a log, rows that stay, and a refusal to write nothing."""

import json
import sys

import pytest

from benchmarks import cpu_train, cpu_train_peers, results
from benchmarks.cpu_train import Reading, Speed, measure, speed, with_kept
from benchmarks.results import Row

PROGRAM = """
import time
for step in (10, 20, 30):
    sum(range(1_000_000))
    print(f"step {step} tok/s 100.0", flush=True)
time.sleep(600)
"""
LIMITS = {"steps": 30, "warmup": 10, "threads": 1}


def test_speed_counts_the_tokens_and_the_cpu_time_after_the_warm_up():
    log = [Reading(10, 5.0, 1.0, 1.0), Reading(20, 100.0, 3.0, 2.0), Reading(30, 50.0, 7.0, 5.0)]
    assert speed(log, 10) == Speed((100 * 2 + 50 * 4) / 4, 20)
    assert speed(log[:1], 10) is None
    assert speed([], 10) is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="CPU time is read from /proc")
def test_a_system_is_measured_until_its_last_step():
    found, memory = measure([sys.executable, "-c", PROGRAM], cpu_train.SPEED, **LIMITS)
    assert found is not None
    assert (found.steps, memory > 0) == (20, True)


@pytest.mark.parametrize("command", [[sys.executable, "-c", "print('no model')"], ["no-such-python"]])
def test_a_system_that_fails_is_reported(command, capfd):
    assert measure(command, cpu_train.SPEED, **LIMITS) == (None, 0)
    assert capfd.readouterr().err.startswith("failed: ")


def test_rows_that_were_not_measured_again_say_where_they_were_measured(tmp_path, monkeypatch):
    path = tmp_path / "cpu_train.json"
    path.write_bytes((results.FOLDER / "cpu_train.json").read_bytes())
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    before = json.loads(path.read_text(encoding="utf-8"))
    new = [Row("cpu-train-rnn", "jumok", 1.0, "tok/CPU s", "now")]
    same = {(row.id, row.system): row for row in with_kept(new, before["device"])}
    assert same.keys() == {(row["id"], row["system"]) for row in before["rows"]}
    assert same["cpu-train-rnn", "jumok"] == new[0]
    assert [row._asdict() for row in same.values() if row not in new] == [
        row
        for row in sorted(before["rows"], key=lambda row: list(same).index((row["id"], row["system"])))
        if (row["id"], row["system"]) != ("cpu-train-rnn", "jumok")
    ]
    for _ in range(2):  # the second time they are marked already
        rows = with_kept(new, "another processor")
        results.write("cpu_train", rows, device="another processor")
    assert all(row.conditions.count(f"; measured on {before['device']}, 2026-") == (row not in new) for row in rows)


def test_nothing_is_written_if_no_system_could_be_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(cpu_train, "write_text", lambda folder: None)
    monkeypatch.setattr(cpu_train, "measure", lambda *arguments, **limits: (None, 0))
    monkeypatch.setattr(sys, "argv", ["cpu_train"])
    with pytest.raises(SystemExit, match="nothing was measured"):
        cpu_train.main()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("toolkit", cpu_train.PEERS)
@pytest.mark.parametrize("model", cpu_train.MODELS)
def test_another_toolkit_gets_its_settings_in_a_file(toolkit, model, tmp_path):
    command, _ = cpu_train_peers.command(toolkit, "/there/bin/python", model, 40, tmp_path, tmp_path)
    assert command[0].startswith("/there/bin/")
    assert str(tmp_path / "settings.yaml") in command
    assert "40" in (tmp_path / "settings.yaml").read_text(encoding="utf-8")
