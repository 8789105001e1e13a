"""What every test shares: one thread per worker, a fixed search for counterexamples, the backends and devices."""

import gc
import os

# Some CPUs advertise AMX and die using it for bfloat16; and Keras reads its backend when it is imported.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
os.environ.setdefault("KERAS_BACKEND", "torch")

import hypothesis
import pytest
import torch

import support
from support.browser import chromium
from support.shared import shared

# The same examples every time: a failure seen once is seen again.
hypothesis.settings.register_profile("jumok", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("jumok")

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # and in every program that a test starts


# What is imported while tests are collected lives to the end: looking through it for garbage costs seconds per worker.
gc.disable()

SLOW_FIXTURES = {"reverser", "transformer", "captioner", "opus", "original", "keras", "alone", "pair"}
"""Models that take seconds to train, a library that takes seconds to import, and runs of several processes."""


def pytest_addoption(parser):
    parser.addoption("--fast", action="store_true", help="only the first example of every test that is not slow")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        if "browser" in item.fixturenames:
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.long)
    if config.getoption("fast"):
        keep_first_examples(config, items)
    yield  # -m chooses
    items.sort(key=seconds_of, reverse=True)  # so that no worker begins a long one when the others have finished


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


def seconds_of(item):
    """How long a test takes, if it says so."""
    return max((mark.kwargs.get("seconds", 0) for mark in item.iter_markers("long")), default=0)


def keep_first_examples(config, items):
    """Leave out slow tests, and all but the first example of the others."""
    seen, kept, dropped = set(), [], []
    for item in items:
        name = item.nodeid.partition("[")[0]
        slow = any(item.get_closest_marker(marker) for marker in ("slow", "long"))
        slow = slow or not SLOW_FIXTURES.isdisjoint([*item.fixturenames, *fixtures_by_parameter(item)])
        (dropped if slow or name in seen else kept).append(item)
        seen.add(name)
    config.hook.pytest_deselected(items=dropped)
    items[:] = kept


def fixtures_by_parameter(item):
    """The texts among a test's parameters: fixtures such as `translator` take names of others."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return [value for value in parameters.values() if isinstance(value, str)]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    support.begin_test(check=item.path.parent.name != "bad_input")  # where our own messages are what is tested


@pytest.fixture(autouse=True)
def seeded():
    torch.default_generator.manual_seed(0)  # torch.manual_seed keeps a stack for each absent device: a millisecond
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(0)


@pytest.fixture(params=["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"])
def device(request):
    return torch.device(request.param)


@pytest.fixture(scope="session")
def keras():
    """Keras, which takes seconds to import."""
    import keras

    return keras


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of a single row, so that several run at the sizes of these tests."""
    monkeypatch.setattr("jumok.attention.blocks.BLOCK_BYTES", 1)


@pytest.fixture(params=["direct", "blocked", "sdpa"])
def backend(request):
    """Every backend in turn; "blocked" one row at a time."""
    if request.param == "blocked":
        request.getfixturevalue("small_blocks")
    return request.param


@pytest.fixture(scope="module")
def browser():
    """A running Chromium. Tests that ask for it are marked `browser`, and skipped where there is none."""
    with chromium() as running:
        yield running


@pytest.fixture(scope="session")
def reverser(tmp_path_factory):
    """The folder of a small model that has learned to write digits backwards; not to be changed."""
    from support.commands import RECIPE, well, write

    def make(folder):
        well("train", write(folder / "reverse.toml", RECIPE), "--out", folder / "model", "--device", "cpu")

    return shared(tmp_path_factory, "reverser", make) / "model"


@pytest.fixture(scope="session")
def transformer(tmp_path_factory):
    """The folder of a small Transformer that has learned next to nothing; not to be changed."""
    from support.commands import BRIEFLY, RECIPE, well, write

    half = "width = 16\nheads = 2\nhidden = 16\nlayers = 2\n"
    text = RECIPE.replace('kind = "rnn"\nwidth = 64\nembedding = 32\n', f'kind = "transformer"\n{half}')

    def make(folder):
        well("train", write(folder / "reverse.toml", text), "--out", folder / "model", "--device", "cpu", *BRIEFLY)

    return shared(tmp_path_factory, "transformer", make) / "model"
