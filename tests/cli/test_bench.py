"""`jumok bench`: a table on standard output, and the same numbers in a file."""

import json

import pytest

from support.commands import well

BRIEFLY = ["--size", "small", "--seconds", "0", "--device", "cpu"]


def test_the_table_has_a_line_for_every_system_and_the_file_its_numbers(tmp_path):
    done = well("bench", "attention", *BRIEFLY, "--json", tmp_path / "attention.json")
    header, first, second, *_ = done.out.splitlines()
    assert header.split("  ")[0] == "work"
    assert "jumok's" in header
    assert first.startswith("no mask, float32 [8, 4, 32, 32]")
    assert "PyTorch sdpa" in second
    assert done.err == f"wrote {tmp_path / 'attention.json'}\n"
    written = json.loads((tmp_path / "attention.json").read_text(encoding="utf-8"))
    assert {"device", "versions", "date", "rows"} == written.keys()
    row = written["rows"][0]
    assert row["id"] == "attention/no mask, float32 [8, 4, 32, 32]"
    assert (row["system"], row["unit"], row["conditions"]) == ("jumok", "ms", "small")
    assert f"{row['value']:.3g} ms" in first


@pytest.mark.parametrize("subject", ["training", "graphs", "regression", "decoding"])
@pytest.mark.long
def test_every_subject_is_timed(subject):
    lines = well("bench", subject, *BRIEFLY).out.splitlines()
    assert any(" jumok " in line for line in lines)
    assert ("tokens/s" in lines[0]) == (subject in ("training", "decoding"))
    assert "failed" not in "".join(lines)
