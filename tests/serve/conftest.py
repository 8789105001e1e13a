"""One server for the tests that only ask it."""

import re

import pytest

from support.commands import RECIPE, well, write
from support.serving import serving


@pytest.fixture(scope="session")
def words(tmp_path_factory):
    """The folder of a Transformer of two layers with two heads each that puts two words in the other order."""
    folder = tmp_path_factory.mktemp("words")
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
    return folder / "model"


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
    """The folder of a small captioner that has learnt some words."""
    folder = tmp_path_factory.mktemp("captioner")
    well("train", write(folder / "scenes.toml", CAPTIONER), "--out", folder / "model", "--device", "cpu")
    return folder / "model"


@pytest.fixture(scope="session")
def both(words, captioner):
    """A server with a translator and a captioner."""
    with serving({"words": words, "scenes": captioner}) as running:
        yield running
