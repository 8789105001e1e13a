"""What `jumok train` says of data and recipes that cannot work: one clear line, exit code 1."""

import os
from pathlib import Path

import numpy as np
import pytest

from jumok.data import Pair, TokenizerConfig, TokenizerPair
from support.commands import BRIEFLY, RECIPE, jumok, well, write
from support.graphs import raw_graph
from support.refusals import contents, refused, train, two_files, write_recipe

pytestmark = pytest.mark.usefixtures("here")


def test_files_of_different_lengths():
    said = train(two_files(b"a\nb\nc\n", b"x\ny\n"))
    assert said.startswith(
        "train.a has 3 lines but train.b has 2, and line n of each must be the same sentence; their last"
    )


def test_invalid_utf8():
    said = train(two_files(b"a\nb\xff\n", b"x\ny\n"))
    assert said.startswith("train.a, line 2: byte 2 of the line (0xff) is not UTF-8; convert the file first")


@pytest.mark.parametrize("content", [b"", b"\n\n"])
def test_an_empty_corpus(content):
    said = train(two_files(content, content))
    assert said in (
        "train.a holds no pairs; is it the file you meant?",
        "no pair is left to learn from: every pair of train.a and train.b has an empty side",
    )


@pytest.mark.parametrize("kind", ["bpe", "char"])
def test_an_empty_side_is_said_before_a_tokenizer_fails_on_the_other(kind):
    recipe = two_files(b"one\ntwo\nthree\n", b"\n \n\n").replace('"char"', f'"{kind}"\nsize = 80\nshared = true')
    assert train(recipe) == "no pair is left to learn from: every pair of train.a and train.b has an empty side"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"a\n", "; give more than one sentence"),
        (b"a\na\n", ", and none of its 2 pairs has another source: all are equal; give sentences that differ"),
        (
            b"a\n" * 100 + b"b\na\n",
            ", and none of its 102 pairs has another source; give sentences that differ",
        ),
    ],
)
def test_a_corpus_that_is_held_out_as_a_whole_says_why_and_what_is_needed(content, why):
    assert train(two_files(content, content)) == (
        "train.a leaves no pair to train on: every hundredth pair, starting with the first, is held out for validation"
        f"{why}, or separate validation pairs (data.valid_source with data.valid_target, or data.valid_pairs)"
    )


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
    assert said == (
        f"{half}.longest = 256 positions are too few for filter.max_length = 256 tokens and their end; "
        f"set {half}.longest = 257 or filter.max_length = 255"
    )
    assert not os.path.exists("run")


def test_a_file_that_is_not_there():
    write_recipe("")
    said = train('[data]\nsource = "recipe.tmol"\ntarget = "x"\n')
    assert said == "there is no file recipe.tmol; did you mean recipe.toml?"


def test_a_vocabulary_larger_than_the_data_allows():
    text = two_files(b"a b\nb a\n" * 9, b"b a\na b\n" * 9).replace('kind = "char"', 'kind = "unigram"\nsize = 5000')
    assert train(text).startswith("tokenizer.size = 5000 is more than the training text allows; the most is ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[data]\ncorpus = 'reverse'\nsizes = 3", "recipe.toml: data.sizes is not a setting; did you mean size?"),
        ("[dta]\ncorpus = 'reverse'", "recipe.toml: there is no section [dta]; did you mean data?"),
        ("corpus = 'reverse'", "recipe.toml: corpus stands before the first section; put it below one"),
        ("data = 3", "recipe.toml: [data] must be a section of its own, but it is the value 3"),
        ("encoder = 'rnn'\n[data]\ncorpus = 'reverse'", "recipe.toml: [encoder] must be a section of its own"),
        ("[[data]]\ncorpus = 'reverse'", "recipe.toml: [data] must be a section of its own"),
        ("[data]\ncorpus = 'reversed'", "recipe.toml: data.corpus = 'reversed' must be one of 'cldr', 'phrases'"),
        ("[data]\ncorpus = 3", "recipe.toml: data.corpus = 3 must be one of"),
        ("[data]\nsize = 3", "recipe.toml: give one of data.source (with data.target)"),
        ("", "recipe.toml: give one of data.source (with data.target)"),
        ("[data]\ncorpus = 'reverse'\nsize = 'x'", "recipe.toml: data.size = 'x' must be a whole number"),
        ("[data]\ncorpus = 'reverse'\nsize = 2.5", "recipe.toml: data.size = 2.5 must be a whole number"),
        ("[data]\ncorpus = 'reverse'\nsize = true", "recipe.toml: data.size = True must be a whole number"),
        ("[data]\ncorpus = 'reverse'\nlocales = 'en'", "recipe.toml: data.locales = 'en' must be a list"),
        ("[data]\ncorpus = 'reverse'\nlocales = ['en']", "recipe.toml: data.locales = ['en'] must have 2 entries"),
        ("[data]\npairs = 'a.tsv'\ncolumns = [1, 'b']", "recipe.toml: data.columns = [1, 'b'] must be"),
        ("[data]\ncorpus = 'reverse'\n[training]\nclip = 'x'", "recipe.toml: training.clip = 'x' must be a number"),
        ("[data]\ncorpus = 'reverse'\n[training]\nsteps = 0", "recipe.toml: training.steps = 0 must be at least 1"),
        ("[data]\ncorpus = 'reverse'\n[encoder]\nkind = 'rmn'", "encoder.kind = 'rmn' is not one of transformer, rnn"),
        ("[data]\ncorpus = 'reverse'\n[encoder]\nkind = ['rnn']", "recipe.toml: encoder.kind = ['rnn'] is not one of"),
        ("[data]\ncorpus = 'reverse'\n[encoder]\nheads = 3", "encoder.heads = 3"),
        ("[data]\ncorpus = 'reverse'\n[encoder]\nkind = 'rnn'\nheads = 3", "encoder.heads is a setting of"),
        ("[data\n", "recipe.toml is not TOML: "),
        ("[data]\nsource = '$NOT_SET/a'\ntarget = 'b'", "needs the environment variable NOT_SET, which is not set"),
    ],
)  # fmt: skip
def test_a_recipe_that_cannot_work_is_said_with_its_place(text, said):
    assert said in train(text)


def test_a_recipe_that_is_not_there_or_not_text(tmp_path):
    assert refused("train", "none.toml") == "there is no recipe none.toml"
    assert refused("train", tmp_path) == f"{tmp_path} is a folder; name a recipe, a .toml file"
    (tmp_path / "wide.toml").write_text("[data]", encoding="utf-16")
    assert refused("train", "wide.toml").startswith("wide.toml is not UTF-8 text")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("training.steps", "--set training.steps must look like training.steps=2000"),
        ("steps=3", "--set steps=3 must look like training.steps=2000"),
        ("=3", "--set =3 must look like training.steps=2000"),
        ("training.step=3", "--set training.step=3: training.step is not a setting; did you mean steps?"),
        ("trainings.steps=3", "--set trainings.steps=3: there is no section [trainings]; did you mean training?"),
        ("training.steps=many", "--set training.steps=many: training.steps = 'many' must be a whole number"),
        ("training.steps.more=3", "--set training.steps.more=3: training.steps.more is not a setting"),
        ("training.steps=3\nx = 4", "training.steps = '3\\nx = 4' must be a whole number"),
        ("encoder.kind=rmn", "--set encoder.kind=rmn: encoder.kind = 'rmn' is not one of"),
        ("decoder.half_window=0", "--set decoder.half_window=0: decoder.half_window = 0 must be at least 1"),
    ],
)
def test_a_wrong_change_from_outside(change, said):
    assert said in train(RECIPE, "--set", change)


def test_a_change_is_blamed_only_for_what_it_changed():
    broken = RECIPE.replace("warmup = 20", "warmups = 20")
    said = train(broken, "--set", "training.steps=4")
    assert said == "recipe.toml: training.warmups is not a setting; did you mean warmup?"
    said = train(RECIPE, "--set", "training.steps=0", "--set", "training.keep=2")
    assert said == "--set training.steps=0: training.steps = 0 must be at least 1"


def test_a_change_of_a_section_that_is_no_section():
    assert "[data] must be a section of its own" in train("data = 3", "--set", "data.size=3")


@pytest.mark.slow
def test_a_recipe_with_a_byte_order_mark_is_a_recipe(tmp_path):
    recipe = write(tmp_path / "r.toml", "\ufeff" + RECIPE)
    assert well("train", recipe, "--out", tmp_path / "run", "--device=cpu", *BRIEFLY).code == 0


@pytest.mark.parametrize("name", ["tokenizer.model", "metrics.jsonl", "curve.png", "checksums.json"])
def test_a_file_of_the_users_own_with_a_name_that_a_run_writes_is_not_overwritten(name):
    Path("mine").mkdir()
    write(Path("mine") / name, "my own")
    recipe = two_files(b"a b\nb a\n" * 20, b"b a\na b\n" * 20)
    said = refused("train", write_recipe(recipe), "--out", "mine", "--device", "cpu", "--set=training.steps=1")
    assert f"mine holds {name}, which the model's own would overwrite" in said
    assert (Path("mine") / name).read_text() == "my own"


def test_files_of_the_users_own_are_not_overwritten():
    recipe = two_files(b"a b\nb a\n" * 20, b"b a\na b\n" * 20)
    write(Path("README.md"), "my notes")
    said = refused("train", write_recipe(recipe), "--out", ".", "--device", "cpu", "--set=training.steps=1")
    assert "holds recipe.toml and README.md, which the model's own would overwrite" in said
    assert Path("README.md").read_text(encoding="utf-8").strip() == "my notes"
    assert Path("recipe.toml").read_text(encoding="utf-8") == recipe


def test_the_arrays_of_a_graph_are_not_overwritten_by_those_that_are_learnt_from():
    raw = raw_graph()
    Path("data").mkdir()
    for name in ("edges", "features", "labels"):
        np.save(f"data/{name}.npy", getattr(raw, name))
    before = contents(Path("data"))
    write(Path("mine.toml"), '[graph]\npath = "data"\n[training]\nsteps = 1\n')
    assert refused("train", "mine.toml", "--out", ".", "--device", "cpu") == (
        "data holds features.npy and labels.npy, which the run's own data would overwrite; "
        "train into another folder: --out runs/NAME"
    )
    assert contents(Path("data")) == before
    well("train", "mine.toml", "--out", "runs/mine", "--device", "cpu")
    assert contents(Path("data")) == before


def test_a_vocabulary_of_the_users_own_is_not_overwritten_and_one_of_a_stopped_run_is():
    recipe = write_recipe(two_files(b"a b\nb a\n" * 20, b"b a\na b\n" * 20))
    Path("run/data").mkdir(parents=True)
    write(Path("run/data/tokenizer.model"), "my own")
    options = ("--out", "run", "--device", "cpu", "--set=training.steps=1")
    said = refused("train", recipe, *options)
    assert "run/data holds tokenizer.model, which the run's own data would overwrite" in said
    assert Path("run/data/tokenizer.model").read_text() == "my own"
    TokenizerPair.train([Pair("a b", "b a")], TokenizerConfig(kind="char")).save("run/data")
    well("train", recipe, *options)


@pytest.mark.parametrize("command", [("train", "recipe.toml"), ("average", "one"), ("demo",)])
def test_an_empty_name_of_a_folder_is_no_name(command):
    done = jumok(*command, "--out", "")
    assert done.code == 2
    assert 'the name is empty: "";' in done.err
    assert not list(Path().iterdir())


def test_a_setting_of_another_kind_is_said_to_be_one():
    said = train(two_files(b"a b\n" * 20, b"b a\n" * 20), "--set=decoder.attention=additive")
    assert 'decoder.attention is a setting of decoder.kind = "rnn", but the kind is "transformer"' in said


@pytest.mark.parametrize("fault", ["encoder.width=80000000", "decoder.layers=1000000000", "encoder.hidden=1000000000"])
def test_a_model_that_no_memory_holds_is_refused_before_anything_is_read(fault):
    done = jumok("train", write_recipe(two_files(b"a b\nb a\n", b"b a\na b\n")), "--out", "run", "--set", fault)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert done.err.startswith("jumok: the model would have ")
    assert done.err.endswith(f" GiB of memory; make {fault.replace('=', ' = ')} smaller\n")
    assert not os.path.exists("run")


def test_a_model_too_large_with_its_vocabulary_is_refused_before_it_is_made(monkeypatch):
    monkeypatch.setattr("jumok.models.memory_check.memory_of", lambda device: 1 << 19)
    words = "".join(f"w{number}\n" for number in range(3000)).encode()
    small = [f"--set={half}.{setting}" for half in ("encoder", "decoder") for setting in ("width=8", "hidden=8")]
    said = train(
        two_files(words, words).replace("char", "word"), "--set=tokenizer.size=4000", "--set=training.steps=1", *small
    )
    assert said.startswith("the model would have ")
    assert Path("run/data").exists()


def test_memory_that_runs_out_is_said_in_one_line(monkeypatch):
    def run_out(*arguments, **options):
        raise MemoryError

    monkeypatch.setattr("jumok.tasks.task.Task.new_model", run_out)
    said = train(two_files(b"a b\nb c\nc a\n" * 20, b"b a\nc b\na c\n" * 20), "--set=training.steps=1")
    assert said.startswith("there is not enough memory; make the model smaller")


@pytest.mark.parametrize(
    ("files", "changes", "said"),
    [
        ({"train.b": b"x\ny\n"}, {}, "train.a has 3 lines but train.b has 2"),
        ({"train.b": None}, {}, "there is no file train.b"),
        ({"train.b": b"x\n\xff\nz\n"}, {}, "train.b, line 2: byte 1 of the line (0xff) is not UTF-8"),
        ({}, {"valid_source": "dev.a", "valid_target": "dev.b"}, "there is no file dev.a"),
        (
            {"dev.a": b"1\n2\n", "dev.b": b"1\n"},
            {"valid_source": "dev.a", "valid_target": "dev.b"},
            "dev.a has 2 lines",
        ),
        (
            {"dev.a": b"1\n"},
            {"valid_source": "dev.a", "valid_target": "nowhere/dev.b"},
            "there is no file nowhere/dev.b",
        ),
        ({"dev.tsv": b"1\n"}, {"valid_pairs": "dev.tsv"}, "dev.tsv, line 1 has 1 columns"),
        ({"links": b"0-0\n0-x\n"}, {"alignments": "links", "training.guided_alignment": 0.1}, "links, line 2"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_before_a_vocabulary_is_learnt(files, changes, said):
    recipe = write_recipe(two_files(b"a b\nb a\nb b\n", b"x y\ny x\ny y\n"))
    for name, content in files.items():
        Path(name).unlink(missing_ok=True)
        if content is not None:
            Path(name).write_bytes(content)
    changed = [f"--set={key if '.' in key else 'data.' + key}={value}" for key, value in changes.items()]
    done = jumok("train", recipe, "--out", "run", *changed)
    assert done.code == 1
    assert done.err.startswith(f"jumok: {said}")


def test_a_number_that_no_library_can_hold():
    assert f"encoder.width = {2**63} is too large" in train(RECIPE, f"--set=encoder.width={2**63}")
