"""Trains a sentencepiece model in a process of its own: its C++ hears no Ctrl-C, but a process can be ended.

Run as a file it is that process, which imports nothing but sentencepiece: sentences and options come as JSON on
standard input, the model goes to standard output.
"""

import io
import json
import subprocess
import sys
from typing import Any

import sentencepiece

FAILED = 3
SHORT = 200_000
"""Characters that are learnt from within a second, for which no process is started."""


def train_sentencepiece(sentences: list[str], options: dict[str, Any]) -> bytes:
    """The model file; a RuntimeError with sentencepiece's message where it cannot be trained."""
    if not sys.executable or sum(map(len, sentences)) < SHORT:
        return _train(sentences, options)
    done = subprocess.run(
        [sys.executable, "-P", __file__], input=json.dumps([sentences, options]).encode(), capture_output=True
    )
    if done.returncode == 0:
        return done.stdout
    said = done.stderr.decode("utf-8", "replace")
    raise RuntimeError(said if done.returncode == FAILED else f"its process ended with code {done.returncode}\n{said}")


def _train(sentences: list[str], options: dict[str, Any]) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sentences), model_writer=model, **options)
    return model.getvalue()


def _main() -> None:
    sentences, options = json.load(sys.stdin.buffer)
    try:
        sys.stdout.buffer.write(_train(sentences, options))
    except RuntimeError as error:
        sys.stderr.buffer.write(str(error).encode())
        sys.exit(FAILED)


if __name__ == "__main__":
    _main()
