"""What `jumok train` says of data and recipes that cannot work: one clear line, exit code 1."""

import os
from pathlib import Path

import numpy as np
import pytest

from jumok.data import Pair, TokenizerConfig, TokenizerPair
from support.commands import BRIEFLY, RECIPE, jumok, well, write
from support.graphs import raw_graph
from support.refusals import contents, names, refused, train, two_files, write_recipe

pytestmark = pytest.mark.usefixtures("here")
DEV = {"valid_source": "dev.a", "valid_target": "dev.b"}
REVERSE = "[data]\ncorpus = 'reverse'\n"


@pytest.mark.parametrize(("content", "facts"), [(b"", "train.a"), (b"\n\n", "train.a … train.b … empty")])
def test_an_empty_corpus(content, facts):
    names(train(two_files(content, content)), facts)


@pytest.mark.parametrize("kind", ["bpe", "char"])
def test_an_empty_side_is_said_before_a_tokenizer_fails_on_the_other(kind):
    recipe = two_files(b"one\ntwo\nthree\n", b"\n \n\n").replace('"char"', f'"{kind}"\nsize = 80\nshared = true')
    names(train(recipe), "train.a", "train.b", "empty")


@pytest.mark.parametrize(
    ("content", "facts"),
    [(b"a\n", "more than one"), (b"a\na\n", "2 pairs … equal"), (b"a\n" * 100 + b"b\na\n", "102 pairs … differ")],
)
def test_a_corpus_that_is_held_out_as_a_whole_says_why_and_what_is_needed(content, facts):
    names(train(two_files(content, content)), "train.a", "held out for validation", facts, "data.valid_pairs")


def test_validation_text_of_nothing_but_empty_lines():
    recipe = two_files(b"a b\nb a\n", b"b a\na b\n")
    write(Path("empty"), "\n\n")
    said = train(recipe, "--set=data.valid_source=empty", "--set=data.valid_target=empty")
    assert said == "no pair is left to validate on: kept 0 of 2 pairs (dropped: 2 empty)"


@pytest.mark.parametrize(("half", "kind"), [("encoder", "transformer"), ("decoder", "transformer"), ("decoder", "rnn")])
def test_fewer_positions_than_tokens(half, kind):
    recipe = two_files(b"a b\nb a\n", b"b a\na b\n")
    setting = "positions=learned" if kind == "transformer" else "attention=location"
    said = train(recipe, f"--set={half}.kind={kind}", f"--set={half}.{setting}", f"--set={half}.longest=256")
    names(said, f"{half}.longest = 256", "filter.max_length = 256", f"{half}.longest = 257", "filter.max_length = 255")
    assert not os.path.exists("run")


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("source = train.en", 'text needs quotes: source = "train.en"'),
        ("source = train.en  # English", 'text needs quotes: source = "train.en"'),
        ("source = ~/data/train.en", 'text needs quotes: source = "~/data/train.en"'),
        ("shared = True", "write shared = true"),
        ("size = 1,000", ""),
        ('source = "train.en', ""),
    ],
)
def test_a_line_that_is_not_toml_is_shown_with_what_to_write(line, hint):
    said = train(f"[data]\n{line}\n")
    names(said, "recipe.toml is not TOML", "at line 2", f": {line}")
    assert said.endswith(f": {line}; {hint}" if hint else f": {line}")


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (f"{REVERSE}sizes = 3", "data.sizes … size?"),
        ("[dta]\ncorpus = 'reverse'", "[dta] … data?"),
        ("corpus = 'reverse'", "corpus … section"),
        ("data = 3", "[data] … 3"),
        (f"encoder = 'rnn'\n{REVERSE}", "[encoder]"),
        ("[[data]]\ncorpus = 'reverse'", "[data]"),
        ("[data]\ncorpus = 'reversed'", "data.corpus = 'reversed' … 'cldr', 'phrases'"),
        ("[data]\ncorpus = 3", "data.corpus = 3"),
        ("", "data.source … data.target"),
        (f"{REVERSE}size = 'x'", "data.size = 'x' … whole number"),
        (f"{REVERSE}locales = 'en'", "data.locales = 'en' … list"),
        (f"{REVERSE}locales = ['en']", "data.locales = ['en'] … 2"),
        ("[data]\npairs = 'a.tsv'\ncolumns = [1, 'b']", "data.columns = [1, 'b']"),
        (f"{REVERSE}[training]\nclip = 'x'", "training.clip = 'x' … number"),
        (f"{REVERSE}[encoder]\nkind = 'rmn'", "encoder.kind = 'rmn' … transformer, rnn"),
        (f"{REVERSE}[encoder]\nkind = ['rnn']", "encoder.kind = ['rnn']"),
        (f"{REVERSE}[encoder]\nheads = 3", "encoder.heads = 3"),
        (f"{REVERSE}[encoder]\nkind = 'rnn'\nheads = 3", 'encoder.heads … "transformer" … "rnn"'),
        ("[data\n", "TOML"),
        ("[data]\nsource = '$NOT_SET/a'\ntarget = 'b'", "environment variable NOT_SET"),
        (f"{REVERSE}[encoder]\nwidth = {2**63}", f"encoder.width = {2**63} … too large"),
    ],
)
def test_a_recipe_that_cannot_work_is_said_with_its_place(text, facts):
    names(train(text), "recipe.toml", facts)


def test_a_recipe_that_is_not_there_or_not_text(tmp_path):
    assert refused("train", "none.toml") == "there is no recipe none.toml"
    names(refused("train", tmp_path), tmp_path, "folder", ".toml")
    (tmp_path / "wide.toml").write_text("[data]", encoding="utf-16")
    names(refused("train", "wide.toml"), "wide.toml", "UTF-8")


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ("training.steps", "training.steps=2000"),
        ("steps=3", "training.steps=2000"),
        ("=3", "training.steps=2000"),
        ("training.step=3", "training.step … steps?"),
        ("trainings.steps=3", "[trainings] … training?"),
        ("training.steps=many", "training.steps = 'many' … whole number"),
        ("training.steps.more=3", "training.steps.more"),
        ("training.steps=3\nx = 4", "training.steps = '3\\nx = 4'"),
        ("encoder.kind=rmn", "encoder.kind = 'rmn'"),
        ("decoder.half_window=0", "decoder.half_window = 0 … 1"),
        ("data.columns=en,ko", """must be a list; write ["en", "ko"] … --set 'data.columns=["en", "ko"]'"""),
        ("data.columns=[1, 2", "--set 'data.columns=[1, 2]'"),
        ("data.columns=en", """--set 'data.columns=["en", "…"]'"""),
        ("tokenizer.unsplit=%s", """--set 'tokenizer.unsplit=["%s"]'"""),
    ],
)
def test_a_wrong_change_from_outside(change, facts):
    names(train(RECIPE, "--set", change), f"--set {change.partition(chr(10))[0]}", facts)


def test_a_change_is_blamed_only_for_what_it_changed():
    broken = RECIPE.replace("warmup = 20", "warmups = 20")
    said = train(broken, "--set", "training.steps=4")
    assert said == "recipe.toml: training.warmups is not a setting; did you mean warmup?"
    said = train(RECIPE, "--set", "training.steps=0", "--set", "training.keep=2")
    assert said == "--set training.steps=0: training.steps = 0 must be at least 1"
    names(train("data = 3", "--set", "data.size=3"), "recipe.toml", "[data]")


@pytest.mark.slow
def test_a_recipe_with_a_byte_order_mark_is_a_recipe(tmp_path):
    recipe = write(tmp_path / "r.toml", "\ufeff" + RECIPE)
    assert well("train", recipe, "--out", tmp_path / "run", "--device=cpu", *BRIEFLY).code == 0


def test_a_run_that_is_there_says_how_to_continue_it_from_the_command_line_and_from_python(tmp_path):
    (tmp_path / "run/checkpoints/step-00000001").mkdir(parents=True)
    said = train(RECIPE, "--out", tmp_path / "run")
    names(said, "already holds a training run", "--resume (in Python resume=True)")


@pytest.mark.parametrize("name", ["README.md", "tokenizer.model", "metrics.jsonl", "curve.png", "checksums.json"])
def test_a_file_of_the_users_own_with_a_name_that_a_run_writes_is_not_overwritten(name):
    recipe = two_files(b"a b\nb a\n" * 20, b"b a\na b\n" * 20)
    write(Path(name), "my own")
    said = refused("train", write_recipe(recipe), "--out", ".", "--device", "cpu", "--set=training.steps=1")
    names(said, "recipe.toml", name, "overwrite")
    assert Path(name).read_text() == "my own"
    assert Path("recipe.toml").read_text(encoding="utf-8") == recipe


def test_the_arrays_of_a_graph_are_not_overwritten_by_those_that_are_learned_from():
    raw = raw_graph()
    Path("data").mkdir()
    for name in ("edges", "features", "labels"):
        np.save(f"data/{name}.npy", getattr(raw, name))
    before = contents(Path("data"))
    write(Path("mine.toml"), '[graph]\npath = "data"\n[training]\nsteps = 1\n')
    said = refused("train", "mine.toml", "--out", ".", "--device", "cpu")
    names(said, "data holds", "features.npy", "labels.npy", "overwrite", "--out runs/NAME")
    assert contents(Path("data")) == before
    well("train", "mine.toml", "--out", "runs/mine", "--device", "cpu")
    assert contents(Path("data")) == before


@pytest.mark.slow
def test_a_vocabulary_of_the_users_own_is_not_overwritten_and_one_of_a_stopped_run_is():
    recipe = write_recipe(two_files(b"a b\nb a\n" * 20, b"b a\na b\n" * 20))
    Path("run/data").mkdir(parents=True)
    write(Path("run/data/tokenizer.model"), "my own")
    options = ("--out", "run", "--device", "cpu", "--set=training.steps=1")
    names(refused("train", recipe, *options), "run/data", "tokenizer.model", "overwrite")
    assert Path("run/data/tokenizer.model").read_text() == "my own"
    TokenizerPair.train([Pair("a b", "b a")], TokenizerConfig(kind="char")).save("run/data")
    well("train", recipe, *options)


@pytest.mark.parametrize("command", [("train", "recipe.toml"), ("average", "one"), ("demo",)])
def test_an_empty_name_of_a_folder_is_no_name(command):
    done = jumok(*command, "--out", "")
    assert done.code == 2
    names(done.err, "--out", '""')
    assert not list(Path().iterdir())


@pytest.mark.parametrize("fault", ["encoder.width=80000000", "encoder.hidden=1000000000"])
def test_a_model_that_no_memory_holds_is_refused_before_anything_is_read(fault):
    said = train(two_files(b"a b\nb a\n", b"b a\na b\n"), "--set", fault)
    names(said, "GiB of memory", fault.replace("=", " = "))
    assert not os.path.exists("run")


def test_a_model_of_more_layers_than_anyone_trains_is_refused():
    said = train(two_files(b"a b\nb a\n", b"b a\na b\n"), "--set", "decoder.layers=1000000000")
    names(said, "decoder.layers = 1000000000", "at most 1000")


def test_a_model_too_large_with_its_vocabulary_is_refused_before_it_is_made(monkeypatch):
    monkeypatch.setattr("jumok.models.memory_check.memory_of", lambda device: 1 << 19)
    words = "".join(f"w{number}\n" for number in range(3000)).encode()
    small = [f"--set={half}.{setting}" for half in ("encoder", "decoder") for setting in ("width=8", "hidden=8")]
    recipe = two_files(words, words).replace("char", "word")
    names(train(recipe, "--set=tokenizer.size=4000", "--set=training.steps=1", *small), "the model", "memory")
    assert Path("run/data").exists()


def test_memory_that_runs_out_is_said_in_one_line(monkeypatch):
    def run_out(*arguments, **options):
        raise MemoryError

    monkeypatch.setattr("jumok.tasks.task.Task.new_model", run_out)
    said = train(two_files(b"a b\nb c\nc a\n" * 20, b"b a\nc b\na c\n" * 20), "--set=training.steps=1")
    names(said, "not enough memory", "smaller model")


@pytest.mark.parametrize(
    ("files", "changes", "facts"),
    [
        ({"train.b": b"x\ny\n"}, {}, "train.a … 3 lines … train.b … 2"),
        ({"train.b": None}, {}, "no file train.b"),
        ({"train.b": b"x\n\xff\nz\n"}, {}, "train.b, line 2: byte 1 … 0xff … UTF-8"),
        ({}, DEV, "no file dev.a"),
        ({"dev.a": b"1\n2\n", "dev.b": b"1\n"}, DEV, "dev.a … 2 lines … dev.b … 1"),
        ({"dev.a": b"1\n"}, DEV | {"valid_target": "nowhere/dev.b"}, "no file nowhere/dev.b"),
        ({"dev.tsv": b"1\n"}, {"valid_pairs": "dev.tsv"}, "dev.tsv, line 1 … 1 columns"),
        ({"links": b"0-0\n0-x\n"}, {"alignments": "links", "training.guided_alignment": 0.1}, "links, line 2"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_before_a_vocabulary_is_learned(files, changes, facts):
    recipe = write_recipe(two_files(b"a b\nb a\nb b\n", b"x y\ny x\ny y\n"))
    for name, content in files.items():
        Path(name).unlink(missing_ok=True)
        if content is not None:
            Path(name).write_bytes(content)
    changed = [f"--set={key if '.' in key else 'data.' + key}={value}" for key, value in changes.items()]
    done = jumok("train", recipe, "--out", "run", *changed)
    assert (done.code, done.err.startswith("jumok: ")) == (1, True)
    names(done.err, facts)
