"""What `jumok train` says of folders and checkpoints it cannot use, and that it harms nothing in them."""

import errno
import os
from pathlib import Path

import pytest

from jumok.files import check_place
from support.commands import BRIEFLY, RECIPE, jumok, well, write
from support.refusals import contents, damage, full, names, refused, train, two_files, write_recipe

pytestmark = pytest.mark.usefixtures("here")


def test_a_run_resumed_with_another_shape_harms_nothing(model):
    before = contents(model)
    said = refused("train", write_recipe(RECIPE), "--out", model, "--resume", "--set=encoder.width=32")
    assert said == (
        "encoder.width was 64 and is now 32; a resumed run needs the settings and data it started with: repeat "
        f"--set encoder.width=64, put it back in the recipe, or train into another folder than {model}"
    )
    assert contents(model) == before


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ("data.size=1000", "data.size … 2000 … 1000"),
        ("tokenizer.lowercase=true", "tokenizer.lowercase … false … true"),
        ("filter.max_length=7", "filter.max_length … 8 … 7"),
        ("batch.tokens=400", "batch.tokens … 500 … 400"),
        ("decoder.attention=dot", 'decoder.attention … "additive" … "dot"'),
    ],
)
def test_a_run_resumed_with_another_setting_says_which_and_harms_nothing(model, change, facts):
    before = contents(model)
    recipe = write_recipe(RECIPE)
    names(refused("train", recipe, "--out", model, "--resume", "--device", "cpu", "--set", change), facts, model)
    assert contents(model) == before


def test_a_run_resumed_with_changed_text_harms_nothing_and_newer_copies_are_used():
    lines = b"".join(b"%d %d\n" % (number, number + 1) for number in range(60))
    small = "".join(f'[{half}]\nkind = "rnn"\nwidth = 8\nembedding = 8\n' for half in ("encoder", "decoder"))
    text = two_files(lines, lines) + small + "[training]\nsteps = 2\nwarmup = 1\nmetric = 'loss'\n"
    command = ["train", write_recipe(text), "--out", "run", "--device", "cpu"]
    well(*command)
    before = contents(Path("run"))
    two_files(lines + b"100 101\n", lines + b"100 101\n")
    resumed = [*command, "--resume", "--set=training.steps=3"]
    names(refused(*resumed), "data.source = train.a", "data.target = train.b")
    assert contents(Path("run")) == before
    two_files(lines, lines)  # the same text again, but newer
    names(well(*resumed).err, "step 2")


@pytest.mark.slow
def test_a_run_that_failed_before_its_first_checkpoint_is_not_in_the_way(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("jumok.training.checkpoint._write", full)
        names(train(RECIPE, *BRIEFLY), "No space left on device")
    assert os.path.isdir("run/checkpoints")
    well("train", "recipe.toml", "--out", "run", "--device", "cpu", *BRIEFLY)
    names(train(RECIPE), "run", "checkpoints, metrics.jsonl, model.safetensors")


def test_a_damaged_checkpoint_does_not_stop_a_resume(model):
    damage(model / "checkpoints/step-00000120/model.safetensors", "truncated")
    options = ["--set=training.steps=62", "--set=training.validate_every=60", "--device", "cpu"]
    done = well("train", write_recipe(RECIPE), "--out", model, "--resume", *options)
    names(done.err, "step-00000120", "step-00000060")


@pytest.mark.parametrize("options", [[], ["--set=data.size=1000"]], ids=["", "another recipe"])
def test_a_folder_that_holds_a_run_is_not_trained_into(model, options):
    before = contents(model)
    names(refused("train", write_recipe(RECIPE), "--out", model, *options), model, "training run")
    assert contents(model) == before


def test_a_full_disk_while_a_checkpoint_is_saved(model, monkeypatch):
    before = contents(model / "checkpoints")
    monkeypatch.setattr("jumok.training.checkpoint._write", full)
    said = refused("train", write_recipe(RECIPE), "--out", model, "--resume", "--set=training.steps=122")
    names(said, "No space left on device", "--resume")
    assert contents(model / "checkpoints") == before


def test_a_full_disk_while_data_are_prepared(monkeypatch):
    monkeypatch.setattr("jumok.files.os.fsync", full)
    names(train(RECIPE), "run/data/", "No space left on device")


def read_only(*arguments, **options):
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def test_a_folder_that_may_not_be_written_to(monkeypatch):
    monkeypatch.setattr("pathlib.Path.mkdir", read_only)
    names(train(RECIPE), "run", "Permission denied")


GRAPH = '[graph]\nnodes = "nodes.tsv"\nedges = "edges.tsv"\n[network]\n'
CAPTIONS = '[images]\npath = "images"\ncaptions = "captions.tsv"\n'
every_recipe = pytest.mark.parametrize("recipe", [RECIPE, GRAPH, CAPTIONS], ids=["texts", "graph", "captions"])


@every_recipe
@pytest.mark.parametrize("resume", [[], ["--resume"]], ids=["", "resume"])
def test_a_place_that_cannot_be_written_to_is_said_before_anything_is_read(recipe, resume, tmp_path):
    write(tmp_path / "file", "")
    for name in ("data", "checkpoints"):
        run = tmp_path / f"holds-{name}"
        run.mkdir()
        write(run / name, "in the way")
        names(train_into(run, *resume, recipe=recipe), run / name, "not a folder")
    names(train_into("file/run", *resume, recipe=recipe), "file is", "file/run", "not a folder")
    assert train_into("file", *resume, recipe=recipe) == "file is a file, not a folder; choose another folder"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="there is no /proc")
@every_recipe
def test_a_folder_that_takes_no_files_though_its_permissions_say_so(recipe):
    names(train_into("/proc/run", recipe=recipe), "/proc", "No such file or directory", "permissions")


def test_trying_a_place_out_leaves_nothing_there(tmp_path):
    check_place(tmp_path / "runs/new")
    assert list(tmp_path.iterdir()) == []


def train_into(out, *options, recipe=RECIPE):
    """What is said, which must be all: nothing was read or learned before."""
    done = jumok("train", write_recipe(recipe), "--out", out, *options)
    assert (done.code, done.err.count("\n")) == (1, 1)
    return done.err.removeprefix("jumok: ").strip()


def test_every_setting_that_differs_from_the_run_to_be_resumed_is_named(model):
    command = ["train", write_recipe(RECIPE), "--out", model, "--resume", "--device", "cpu", "--set=encoder.kind=rnn"]
    well(*command)  # the kind is what it was
    said = refused(*command, "--set=encoder.width=32", "--set=training.warmup=3")
    names(said, "encoder.width was 64 and is now 32", "training.warmup was 20 and is now 3")
