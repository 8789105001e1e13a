"""One server for the tests that only ask it, and a busy thread for those that fill a queue."""

import re

import pytest

from jumok.tasks import read_task
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


GRAPH = """
[graph]
built_in = "planted"
size = 200
undirected = false
[network]
kind = "gatv2"
layers = 2
heads = 2
width = 16
dropout = 0.0
attention_dropout = 0.0
[training]
steps = 40
learning_rate = 0.05
validate_every = 20
metric = "accuracy"
"""

NAMED = {
    "nodes.csv": "id,label,size\n"
    + "".join(
        f"{name},{'' if name == '가' else 'cat' if at % 2 else 'dog'},{at % 2}\n"
        for at, name in enumerate("가나다라마바사아자차")
    ),
    "edges.csv": "source,target\n가,나\n나,다\n다,라\n라,가\n",
}
"""Of the nodes 가 has no label, and some have no neighbours."""


@pytest.fixture(scope="session")
def graph_model(tmp_path_factory):
    """The folder of a network of two layers with two heads for the nodes of a built-in graph."""

    def make(folder):
        well("train", write(folder / "graph.toml", GRAPH), "--out", folder / "model", "--device", "cpu")

    return shared(tmp_path_factory, "planted", make) / "model"


@pytest.fixture(scope="session")
def named_graph(tmp_path_factory):
    """The folder of a network for a graph whose nodes have names."""

    def make(folder):
        for name, text in NAMED.items():
            write(folder / name, text)
        tables = f'nodes = "{folder / "nodes.csv"}"\nedges = "{folder / "edges.csv"}"\n'
        recipe = f"[graph]\n{tables}[training]\nsteps = 4\nvalidate_every = 2\n"
        well("train", write(folder / "pets.toml", recipe), "--out", folder / "model", "--device", "cpu")

    return shared(tmp_path_factory, "pets", make) / "model"


MAPPED = """
import torch

from jumok.analysis.maps.attention_map import AttentionMap
from jumok.tasks.results import Classification, MappedOutput
from tasks.tagging import Tagging


class MappedTagging(Tagging):
    map_reads = "text"

    def map(self, predictor, source, options):
        tags = predictor.tag(source)
        shown = AttentionMap(tuple(source), tuple(tags), torch.eye(len(source))[None, None])
        shares = {"short": 0.75, "long": 0.25}
        return MappedOutput({"text": " ".join(tags)}, [shown], classification=Classification(shares))

    def map_examples(self, predictor, count):
        return ["axe", "you"]


del Tagging
"""
TAGGER = "[tagger]\nwidth = 8\n[training]\nsteps = 30\nlearning_rate = 0.05\nwarmup = 1\nvalidate_every = 10\n"


@pytest.fixture(scope="session")
def tagger(tmp_path_factory):
    """The folder of a model of a task of one's own, which says what its maps read, and the task."""

    def make(folder):
        task = ("--task", write(folder / "tagging.py", MAPPED), "--device", "cpu")
        well("train", write(folder / "tagging.toml", TAGGER), "--out", folder / "model", *task)

    folder = shared(tmp_path_factory, "tagger", make)
    return folder / "model", read_task(folder / "tagging.py")


@pytest.fixture
def held(batcher):
    """Keeps the thread of `batcher`, which the file of tests defines, waiting; what is submitted meanwhile gathers."""
    blocker = Blocker()
    batcher.submit(blocker, [None])
    assert blocker.begun.wait(10)
    yield blocker
    blocker.go_on.set()
