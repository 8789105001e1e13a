"""benchmarks/decode_cpu.py: the best CPU time of the rounds, and other toolkits beside ours; benchmarks/decoding.py."""

import sys
from importlib.metadata import version
from types import SimpleNamespace

from benchmarks import decode_cpu, decoding
from benchmarks.decoding import LENGTH, PeerWorker, Task
from benchmarks.results import Row, version_in


class Process:
    """A system whose rounds take 4, 2, 4, 2, … seconds of CPU time."""

    def __init__(self, task: Task, *place: object) -> None:
        self.task, self.place, self.seconds, self.ended = task, place, [4.0, 2.0] * 4, False

    def run(self, what: str) -> dict[str, float]:
        return {"busy": self.seconds.pop(0)}

    def end(self) -> None:
        self.ended = True


def test_the_round_with_the_least_cpu_time_counts(monkeypatch, tmp_path):
    for name in ("Worker", "PeerWorker"):
        monkeypatch.setattr(decode_cpu, name, Process)
    rows = list(decode_cpu.speed("base", "model", 2, {"Eole": "python"}, tmp_path))
    about = f"random weights, {LENGTH} tokens out, one thread on shared cores, by processor time; best of 2"
    batch = Row("many-base-beam-5", "Eole", 16.0 * LENGTH, "tok/CPU s", f"32 sentences of Multi30k, {about}")
    assert batch in rows
    assert Row("one-base-beam-1", "jumok", 2000.0, "ms", f"median of 4 sentences one by one, {about}") in rows
    assert not any(row.system == decoding.WORKERS for row in rows)


def test_other_toolkits_get_no_word_with_a_space_in_it(monkeypatch, tmp_path):
    class Tokenizer:
        pieces = ("<unk>", "</s>", "a", "\xa0", "b\u2028c")

        def encode(self, text: str) -> list[int]:
            return [1, 2, 3, 4, 1]

    import jumok

    trained = SimpleNamespace(trained=SimpleNamespace(tokenizers=SimpleNamespace(source=Tokenizer())))
    monkeypatch.setattr(jumok, "load", lambda folder, device: trained)
    monkeypatch.setattr(decoding, "test_set", lambda language: ["a text"])
    worker = PeerWorker.__new__(PeerWorker)
    worker.task, worker.python, worker.folder = Task("Eole", "base", 1, "model", 1), "python", tmp_path / "work"
    worker.command()
    assert (tmp_path / "work" / "vocabulary").read_text(encoding="utf-8") == "a\n␣\nb␣c\n"
    assert (tmp_path / "work" / "sentences").read_text(encoding="utf-8") == "a ␣ b␣c\n"


def test_the_version_of_a_package_in_another_environment_is_read_there():
    assert version_in(sys.executable, "torch") == version("torch")
