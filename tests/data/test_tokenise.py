"""Tokenising in several processes: the same rows, in the same order, as in one."""

import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from jumok.data import DataConfig, TokenizerConfig, TokenizerPair, corpus_pairs, prepare, tokenise
from jumok.data.pairs import Pair
from jumok.data.tokenise import Chunk, TokenisingProcess, tokenise_chunks, tokenised
from jumok.errors import DataError

PAIRS = [*corpus_pairs("cldr", 500), Pair("", "x"), Pair(" two  spaces ", "<b> 한국어"), *corpus_pairs("cldr", 3)]
KINDS = [
    TokenizerConfig(size=300),
    TokenizerConfig(kind="bpe", size=400, shared=False, byte_fallback=True),
    TokenizerConfig(kind="char", edits=True),
    TokenizerConfig(kind="word", size=50, lowercase=True),
]


@pytest.fixture
def in_processes(monkeypatch):
    """Two processes, however small the corpus and however many cores there are."""
    monkeypatch.setattr(tokenise, "ALONE", 1)
    monkeypatch.setattr(tokenise, "CHUNK", 40)
    monkeypatch.setattr(tokenise, "process_count", lambda: 2)


def files(folder):
    return {path.name: path.read_bytes() for path in sorted(Path(folder).glob("*.store"))}


@pytest.mark.parametrize("config", KINDS, ids=lambda config: config.kind)
def test_many_texts_at_once_have_the_ids_of_each_by_itself(config):
    pairs = PAIRS[-20:] if config.edits else PAIRS  # learning edits takes a while
    tokenizers = TokenizerPair.train(pairs, config)
    chunk = tokenised(next(Chunk.of_pairs(pairs)), tokenizers)
    ends = chunk.sentences.lengths.cumsum()
    found = [part.tolist() for part in np.split(chunk.sentences.ids, ends[:-1])]
    assert found == [side for pair in pairs for side in tokenizers.encode(pair)]


@pytest.mark.slow
def test_the_files_of_several_processes_are_those_of_one_byte_for_byte(tmp_path, in_processes, monkeypatch):
    text, links = tmp_path / "pairs.tsv", tmp_path / "links"
    text.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in PAIRS), encoding="utf-8")
    links.write_text("".join("0-0\n" if all(map(str.strip, pair)) else "\n" for pair in PAIRS))
    data = DataConfig(pairs=str(text), alignments=str(links), joined=(1, 2))
    several = prepare(tmp_path / "several", data, KINDS[0])
    monkeypatch.setattr(tokenise, "process_count", lambda: 1)
    alone = prepare(tmp_path / "alone", data, KINDS[0])
    assert several.report == alone.report
    assert files(tmp_path / "several") == files(tmp_path / "alone")


def test_a_small_corpus_starts_no_process(monkeypatch):
    monkeypatch.setattr(tokenise, "TokenisingProcess", None)
    tokenizers = TokenizerPair.train(PAIRS, KINDS[3])
    assert len(list(tokenise_chunks(Chunk.of_pairs(PAIRS), tokenizers))) == 1


@pytest.mark.slow
def test_only_as_much_text_is_read_as_there_are_processes_for(in_processes):
    tokenizers, read = TokenizerPair.train(PAIRS, KINDS[3]), []
    pairs = (read.append(pair) or pair for pair in PAIRS)
    found = tokenise_chunks(Chunk.of_pairs(pairs), tokenizers)
    list(islice(found, 3))
    assert len(read) <= (3 + 2 + 1) * 40
    found.close()


@pytest.mark.long
def test_a_process_that_is_killed_is_told_in_one_line_and_leaves_none_behind(in_processes, monkeypatch):
    started = []

    class Watched(TokenisingProcess):
        def __init__(self, tokenizers):
            super().__init__(tokenizers)
            started.append(self.process)

    monkeypatch.setattr(tokenise, "TokenisingProcess", Watched)
    found = tokenise_chunks(Chunk.of_pairs(PAIRS), TokenizerPair.train(PAIRS, KINDS[3]))
    list(islice(found, 3))
    started[0].kill()
    with pytest.raises(DataError, match="a process that tokenises the text ended with code -9"):
        list(found)
    assert [process.poll() for process in started] == [-9, -9]


SCRIPT = """
from jumok.data import DataConfig, TokenizerConfig, prepare, tokenise
tokenise.ALONE, tokenise.CHUNK, tokenise.process_count = 1, 40, lambda: 2
print("once", flush=True)
prepare("out", DataConfig(source="a", target="a"), TokenizerConfig(kind="char"))
print("done", flush=True)
"""


@pytest.mark.long
def test_a_script_without_a_guard_of_its_main_part_runs_once(tmp_path):
    (tmp_path / "a").write_text("".join(f"{number}\n" for number in range(400)))
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("once\ndone\n", "")


ENDLESS = """
from itertools import repeat
from jumok.data import Pair, TokenizerConfig, TokenizerPair, tokenise
tokenise.ALONE, tokenise.CHUNK, tokenise.process_count = 1, 40, lambda: 2
tokenizers = TokenizerPair.train([Pair("12", "21")], TokenizerConfig(kind="char"))
for number, _ in enumerate(tokenise.tokenise_chunks(tokenise.Chunk.of_pairs(repeat(Pair("12", "21"))), tokenizers)):
    if number == 5:
        print("busy", flush=True)
"""


@pytest.mark.long
def test_ctrl_c_interrupts_one_process_and_the_others_end_silently(tmp_path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    running = subprocess.Popen(
        [sys.executable, "-c", ENDLESS],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores Ctrl-C
    )
    with running:
        try:
            assert running.stdout.readline() == "busy\n"
            os.killpg(running.pid, signal.SIGINT)
            _, said = running.communicate(timeout=60)  # which ends when no process holds standard error any more
        finally:
            running.kill()
    assert said.count("Traceback") == 1
    assert said.endswith("KeyboardInterrupt\n")
