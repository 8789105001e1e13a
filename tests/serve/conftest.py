"""One server for the tests that only ask it, and a busy thread for those that fill a queue."""

import re

import pytest

from support.commands import RECIPE, well, write
from support.serving import Blocker, serving
from support.shared import shared


@pytest.fixture(scope="session")
def words(tmp_path_factory):
    """The folder of a Transformer of two layers with two heads each that puts two words in the other order."""
    return shared(tmp_path_factory, "words", train_words) / "model"


def train_words(folder):
    pairs = [
        f"the {size} {thing}\t{thing} {size}\n"
        for thing in ("house", "tree", "dog", "boat")
        for size in ("old", "new", "red")
    ]
    write(folder / "pairs.tsv", 30 * "".join(pairs))
    half = 'kind = "transformer"\nwidth = 16\nheads = 2\nhidden = 16\nlayers = 2\n'
    text = RECIPE.replace('kind = "rnn"\nwidth = 64\nembedding = 32\n', half)
    text = re.sub(r"\[data\][^[]*", f'[data]\npairs = "{folder / "pairs.tsv"}"\nvalid_size = 4\n\n', text)
    text = text.replace('kind = "char"', 'kind = "word"').replace("[filter]", "[filter]\nduplicates = false")
    well(
        "train",
        write(folder / "words.toml", text),
        "--out",
        folder / "model",
        "--device",
        "cpu",
        "--set",
        "training.steps=60",
        "--set",
        "decoding.max_source=8",  # texts longer than the pairs, at once
    )


@pytest.fixture(scope="session")
def live(reverser, words):
    with serving({"reverser": reverser, "words": words}) as running:
        yield running


CAPTIONER = """
[images]
scenes = "en"
count = 60
valid_count = 6
size = 32
[tokenizer]
kind = "word"
size = 60
[encoder]
stem = "large"
blocks = [1, 1]
channels = 8
width = 16
[decoder]
kind = "rnn"
width = 16
embedding = 8
[batch]
tokens = 200
[training]
steps = 40
learning_rate = 0.01
warmup = 2
validate_every = 40
metric = "loss"
[decoding]
beam = 2
max_length = 12
"""


@pytest.fixture(scope="session")
def captioner(tmp_path_factory):
    """The folder of a small captioner that has learned some words."""

    def make(folder):
        well("train", write(folder / "scenes.toml", CAPTIONER), "--out", folder / "model", "--device", "cpu")

    return shared(tmp_path_factory, "captioner", make) / "model"


@pytest.fixture(scope="session")
def both(words, captioner):
    """A server with a translator and a captioner."""
    with serving({"words": words, "scenes": captioner}) as running:
        yield running


@pytest.fixture
def held(batcher):
    """Keeps the thread of `batcher`, which the file of tests defines, waiting; what is submitted meanwhile gathers."""
    blocker = Blocker()
    batcher.submit(blocker, [None])
    assert blocker.begun.wait(10)
    yield blocker
    blocker.go_on.set()
