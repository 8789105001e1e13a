"""`jumok train --resume`: the same text is known again wherever it is, and other text is refused."""

import contextlib
import os
import shutil
from pathlib import Path

import pytest
from PIL import Image

from jumok import train
from jumok.data import fingerprint
from support.commands import jumok, well, write
from support.refusals import contents, refused
from support.runs import assert_same_run

SMALL = "".join(f'[{half}]\nkind = "rnn"\nwidth = 8\nembedding = 8\n' for half in ("encoder", "decoder"))
LINES = [f"{number} {number + 1}\n" for number in range(60)]
MORE = "--set=training.steps=4"


COMMAND = ["train", "r.toml", "--device", "cpu", "--out", "run"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a run of two steps in `run`, and a copy of it; what it read is train.a and train.b."""
    folder, copy = (tmp_path_factory.mktemp(name) / "files" for name in ("work", "copy"))
    folder.mkdir()
    for name in ("train.a", "train.b"):
        write(folder / name, "".join(LINES))
    data = '[data]\nsource = "train.a"\ntarget = "train.b"\n[tokenizer]\nkind = "char"\n'
    training = "[training]\nsteps = 2\nvalidate_every = 1\nwarmup = 1\nlog_every = 1\n[decoding]\nbeam = 1\n"
    write(folder / "r.toml", data + SMALL + training)
    with contextlib.chdir(folder):
        well(*COMMAND)
    shutil.copytree(folder, copy)
    return folder, copy


@pytest.fixture
def command(trained, monkeypatch):
    """The command that made a run of two steps in `run`, where we are: in the same folder, as it was after that."""
    folder, copy = trained
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)
    monkeypatch.chdir(folder)
    return COMMAND


def resumed(command, *options):
    said = well(*command, "--resume", MORE, *options).err
    assert "resuming after step" in said
    assert "tokenising" not in said
    return said


@pytest.mark.slow
def test_the_same_file_by_another_name_is_resumed_from_without_being_read(command, monkeypatch):
    monkeypatch.setattr(fingerprint, "_sha256", None)
    resumed(command, "--set=data.source=./train.a")
    resumed(command, f"--set=data.source={Path.cwd()}/train.a", "--set=training.steps=5")


@pytest.mark.slow
def test_a_touched_or_copied_file_is_read_once_and_known_again(command, monkeypatch):
    os.utime("train.a", (1, 1))
    shutil.copy("train.b", "copy.b")
    resumed(command, "--set=data.target=copy.b")
    monkeypatch.setattr(fingerprint, "_sha256", None)
    resumed(command, "--set=data.target=copy.b", "--set=training.steps=5")


@pytest.mark.slow
def test_a_run_goes_on_to_the_same_bits_without_the_text_it_was_made_from(command):
    well(*command[:-1], "whole", MORE)
    os.rename("train.a", "away")
    os.remove("train.b")
    said = resumed(command)
    assert "train.a and train.b no longer exist; using the data prepared from them in run/data\n" in said
    assert_same_run(Path("whole"), Path("run"))


@pytest.mark.slow
def test_a_run_is_resumed_by_its_folder_alone(command):
    well(*command[:-1], "whole", MORE)
    resumed(["train", "run", "--device", "cpu"])
    assert_same_run(Path("whole"), Path("run"))
    run = train("run", resume=True, overrides={"training.steps": 5}, device="cpu")
    assert (run.folder, run.state.step) == (Path("run"), 5)
    assert refused("train", "run") == (
        "run is the folder of a run; resume it (--resume, in Python resume=True), or name a recipe, a .toml file"
    )
    os.remove("run/recipe.toml")
    assert refused("train", "run", "--resume").startswith("run has checkpoints but no recipe.toml; continue with")
    shutil.rmtree("run/checkpoints")
    assert refused("train", "run", "--resume").startswith("run is a folder without recipe.toml")
    os.mkdir("notes")
    assert refused("train", "notes") == (
        "notes holds no training run; name a recipe, a .toml file, instead of the folder"
    )
    assert refused("train", "runs/none", "--resume").startswith("there is no run to resume in runs/none")


def test_a_model_without_its_checkpoints_is_refused_before_a_new_run_is_announced(command):
    shutil.rmtree("run/checkpoints")
    before = contents(Path("run"))
    assert refused(*command, "--resume") == (
        "run holds a trained model but no checkpoint to continue from; train into another folder"
    )
    assert contents(Path("run")) == before


@pytest.mark.slow
def test_a_run_whose_text_is_too_small_for_its_vocabulary_goes_on_to_the_same_bits(command):
    pieces = [*command[:-1], "pieces", "--set=tokenizer.kind=unigram"]
    assert "tokenizer.size = 8000 is more than the training text allows" in well(*pieces).err
    well(*pieces, "--out", "whole", MORE)
    resumed(["train", "pieces", "--device", "cpu"])
    assert_same_run(Path("whole"), Path("pieces"))


@pytest.mark.slow
def test_a_run_whose_folder_was_renamed_is_resumed_from_its_copy_of_standard_input(command):
    with_input = [*command[:-1], "one", "--set=data.source=-"]
    well(*with_input, stdin="".join(LINES))
    os.rename("one", "other")
    resumed([*command[:-1], "other", "--set=data.source=-"])


def test_other_text_is_refused_by_name_and_harms_nothing(command):
    before = contents(Path("run"))
    write(Path("train.b"), "".join(reversed(LINES)))
    assert refused(*command, "--resume", MORE) == (
        "run/data was prepared from other contents than data.target = train.b; restore the original, or train into "
        "another folder"
    )
    assert contents(Path("run")) == before


@pytest.mark.slow
def test_a_file_that_never_was_is_refused_without_advice_to_delete_anything(command):
    said = refused(*command, "--resume", "--set=data.source=train.c")
    assert said.startswith("there is no file train.c")
    os.remove("run/data/train.store")
    os.remove("train.a")
    assert refused(*command, "--resume").startswith("there is no file train.a")


@pytest.mark.slow
def test_data_that_do_not_know_their_files_are_told_apart_by_name_and_time(command):
    os.remove("run/data/sources.json")
    resumed(command)
    os.utime("train.a", (1, 1))
    again = [*command, "--resume", "--set=training.steps=5"]
    assert "run/data" in refused(*again)
    os.rename("run/data", "old")
    assert "resuming after step 4" in well(*again).err
    os.remove("run/data/sources.json")
    os.remove("train.a")
    assert refused(*again).startswith("there is no file train.a")


GRAPH = """
[graph]
nodes = "nodes.tsv"
edges = "edges.tsv"
[network]
width = 2
heads = 1
[training]
steps = 2
validate_every = 1
warmup = 1
metric = "accuracy"
"""


def test_a_graph_is_known_again_by_its_content_and_another_one_harms_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(Path("nodes.tsv"), "label\tx\ty\n" + "".join(f"{n % 2}\t{n % 2}\t{n}\n" for n in range(20)))
    write(Path("edges.tsv"), "source\ttarget\n" + "".join(f"{n}\t{n + 1}\n" for n in range(19)))
    command = ["train", write(Path("g.toml"), GRAPH), "--device", "cpu", "--out", "run"]
    well(*command)
    os.utime("edges.tsv", (1, 1))
    resumed(command, "--set=graph.nodes=./nodes.tsv", "--set=training.steps=3")
    before, edges = contents(Path("run")), Path("edges.tsv").read_text()
    write(Path("edges.tsv"), edges + "3\t9\n")
    assert "graph.edges = edges.tsv" in refused(*command, "--resume", "--set=training.steps=5")
    assert contents(Path("run")) == before
    os.remove("edges.tsv")
    said = resumed(command, "--set=training.steps=5")
    assert "edges.tsv no longer exists; using the data prepared from it in run/data" in said


CAPTIONS = """
[images]
path = "images"
captions = "captions.tsv"
size = 16
[tokenizer]
kind = "char"
[encoder]
stem = "large"
blocks = [1]
channels = 4
width = 8
[decoder]
kind = "rnn"
width = 8
embedding = 8
[training]
steps = 2
validate_every = 1
warmup = 1
[decoding]
beam = 1
"""


@pytest.fixture
def captioning(tmp_path, monkeypatch):
    """The command that made a captioner of two steps in `run`, from images/ and captions.tsv, where we are."""
    monkeypatch.chdir(tmp_path)
    Path("images").mkdir()
    for number in range(12):
        Image.new("RGB", (16, 16), (20 * number, 0, 0)).save(f"images/{number}.png")
    write(Path("captions.tsv"), "".join(f"{number}.png\tred {number}\n" for number in range(12)))
    command = ["train", write(Path("c.toml"), CAPTIONS), "--device", "cpu", "--out", "run"]
    well(*command)
    return command


@pytest.mark.slow
def test_captioned_images_are_known_again_wherever_they_are_and_whatever_lies_beside_them(captioning):
    os.utime("captions.tsv", (1, 1))
    os.rename("images", "elsewhere")
    write(Path("elsewhere/notes.txt"), "new")
    said = resumed(captioning, "--set=images.path=elsewhere", "--set=training.steps=3")
    assert "reading 11 images" not in said


@pytest.mark.long
def test_a_captioner_goes_on_to_the_same_bits_without_the_images_it_was_made_from(captioning):
    well(*captioning[:-1], "whole", MORE)
    shutil.rmtree("images")
    os.remove("captions.tsv")
    said = resumed(captioning)
    assert "images and captions.tsv no longer exist; using the data prepared from them in run/data\n" in said
    assert_same_run(Path("whole"), Path("run"))


@pytest.mark.slow
@pytest.mark.parametrize("changed", ["captions", "path"])
def test_other_captions_or_images_are_refused_by_name_and_harm_nothing(captioning, changed):
    before, captions = contents(Path("run")), Path("captions.tsv")
    if changed == "captions":
        write(captions, captions.read_text().replace("red 3", "red three"))
    else:
        Image.effect_noise((16, 16), 50).save("images/3.png")
        write(Path("images/new.txt"), "a folder is looked at again when something was added")
    said = refused(*captioning, "--resume", MORE)
    assert f"images.{changed} = {'captions.tsv' if changed == 'captions' else 'images'};" in said
    assert contents(Path("run")) == before


@pytest.mark.slow
def test_word_links_by_another_name_are_the_same_links(command):
    write(Path("links"), "0-0 1-1\n" * len(LINES))
    guided = [*command[:-1], "guided", "--set=training.guided_alignment=0.1", "--set=data.alignments=links"]
    well(*guided)
    resumed(guided, "--set=data.alignments=./links")
    assert jumok(*guided, "--resume", "--set=data.alignments=train.a").code == 1


def test_a_folder_without_a_run_is_said_before_its_data_are_read_and_a_new_run_begins(command):
    said = well(*command[:-1], "typo", "--resume").err
    assert said.index("there is no run to resume in typo; starting a new one") < said.index("tokenising")
