"""The everyday sentences of the benchmark of fine-tuning."""

import lzma
from pathlib import Path

from benchmarks import fine_tuning
from jumok.data.pairs import read_pairs


def test_no_english_sentence_of_a_test_is_trained_on_or_occurs_twice(tmp_path, monkeypatch):
    lines = [f"sentence {number}{end}\tphrase {number}{end}\n" for number in range(20) for end in (".", " !", "")]
    (tmp_path / "fra-eng").mkdir()
    with lzma.open(tmp_path / "fra-eng/eng-fra.tsv.xz", "wt", encoding="utf-8") as file:
        file.writelines(lines)
    monkeypatch.setenv("JUMOK_DATA", str(tmp_path))
    monkeypatch.setattr(fine_tuning, "SPLITS", {"test": 3, "valid": 3, "train": 10})
    monkeypatch.setattr(fine_tuning, "TEXT", tmp_path / "text")
    fine_tuning.write_text()
    found = {split: list(read_pairs(Path(tmp_path, f"text/{split}.tsv"))) for split in ("test", "valid", "train")}
    assert [len(pairs) for pairs in found.values()] == [3, 3, 10]
    written = [pair.source.rstrip(" .!") for pairs in found.values() for pair in pairs]
    assert len(set(written)) == len(written) == 16
    assert all(pair.target == pair.source.replace("sentence", "phrase") for pairs in found.values() for pair in pairs)
