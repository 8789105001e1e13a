"""A fourth task is one file of under 100 lines, which Python and the commands use as they use jumok's own tasks."""

import json
from pathlib import Path

import pytest

from jumok.errors import ArgumentError, ModelError
from jumok.tasks import load, read_task
from jumok.tasks.average import average_models
from jumok.tasks.inspect import inspect
from jumok.tasks.run import train
from jumok.training import Report
from support.commands import jumok, well, write
from support.runs import Remarks, assert_same_run, interrupt

FILE = Path(__file__).with_name("tagging.py")
TAGGING = read_task(FILE)


TABLES = {"tagger": {"width": 8}, "training": {"steps": 60, "learning_rate": 0.05, "warmup": 1, "validate_every": 20}}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagging") / "run"
    return train(TABLES, out=folder, device="cpu", report=Report(), draw=False, task=TAGGING)


def test_it_trains_and_validates(run):
    assert run.metrics["accuracy"] == 100
    assert run.model.tag("axe") == ["vowel", "consonant", "vowel"]
    assert "accuracy: 100% (validation)" in (run.folder / "README.md").read_text()


def test_it_is_loaded_from_its_folder(run):
    assert load(run.folder, device="cpu", task=TAGGING).tag("you") == ["consonant", "vowel", "vowel"]


def test_it_resumes_exactly(run, tmp_path):
    settings = {"device": "cpu", "draw": False, "task": TAGGING}
    first = train(TABLES, out=tmp_path / "run", report=Remarks({30: interrupt}), **settings)
    assert first.stopped == "interrupted"
    train(TABLES, out=tmp_path / "run", report=Remarks(), resume=True, **settings)
    assert_same_run(tmp_path / "run", run.folder)


def test_it_is_inspected(run):
    facts, shapes = inspect(run.folder, task=TAGGING)
    assert facts["does"] == "tags the characters of a text"
    assert facts["training"]["best"] == 100
    assert sum(facts["parts"].values()) == facts["parameters"] == 8 * 8 + 8 * 2 + 2
    assert shapes["0.weight"] == [8, 8]


def test_it_is_averaged(run, tmp_path):
    average_models([run.folder, run.folder], tmp_path / "mean", task=TAGGING)
    assert load(tmp_path / "mean", device="cpu", task=TAGGING).tag("axe") == run.model.tag("axe")


def test_it_is_one_file_of_under_100_lines():
    assert len(FILE.read_text(encoding="utf-8").splitlines()) < 100


# The commands are told its file


RECIPE = """
[tagger]
width = 8
[training]
steps = 30
learning_rate = 0.05
warmup = 1
validate_every = 10
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("commands")
    write(tmp_path / "tagging.toml", RECIPE)
    out, task = tmp_path / "run", ("--task", FILE, "--device", "cpu")
    well("train", tmp_path / "tagging.toml", "--out", out, "--set", "training.steps=20", *task)
    done = well("train", tmp_path / "tagging.toml", "--out", out, "--resume", *task)
    assert "resuming after step 20" in done.err
    assert f"jumok inspect {out} --task {FILE}" in done.err
    return out


def test_commands_train_resume_inspect_average_and_evaluate_it(folder, tmp_path):
    facts = json.loads(well("inspect", folder, "--task", FILE, "--json").out)
    assert (facts["does"], facts["training"]["steps"]) == ("tags the characters of a text", 30)
    well("average", folder, folder, "--out", tmp_path / "mean", "--task", FILE)
    models, options = (folder, tmp_path / "mean"), ("--task", FILE)
    scores = [json.loads(well("evaluate", model, *options, "--json").out)["accuracy"] for model in models]
    assert scores[0] == scores[1] > 90
    assert well("evaluate", folder, *options).out.split() == ["score", "value", "accuracy", f"{scores[0]:.1f}"]


def test_no_code_is_run_that_the_user_did_not_name(folder):
    for command in ("inspect", "evaluate"):
        done = jumok(command, folder)
        assert (done.code, done.err.count("\n")) == (1, 1)
        assert "the section [tagger], which belongs to no built-in task" in done.err
        assert "--task FILE" in done.err
    with pytest.raises(ModelError, match="which belongs to no built-in task"):
        load(folder)


def test_what_it_does_not_do_is_one_line(folder):
    for command, said in (
        (("evaluate", folder, "--beam", "2"), f"--beam does not apply to {folder}, which tags the characters"),
        (("look", folder, "axe"), "jumok cannot draw an attention map of a model that tags the characters of a text"),
    ):
        done = jumok(*command, "--task", FILE)
        assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
        assert said in done.err


@pytest.mark.parametrize("text", ["", "from jumok.tasks.translation import TranslationTask as Mine\n"])
def test_a_file_without_a_task_of_its_own_is_refused(tmp_path, text):
    path = write(tmp_path / "mine.py", text)
    with pytest.raises(ArgumentError, match=r"must define one class derived from .*Task; it defines none"):
        read_task(path)
    with pytest.raises(ArgumentError, match="there is no task in"):
        read_task(tmp_path / "missing.py")
