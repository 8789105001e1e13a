"""A decoder of the user's own, as docs/layers.md shows it: the commands train and use it with --task."""

import json
import re
from pathlib import Path

import pytest

from support.commands import BRIEFLY, RECIPE, jumok, well, write

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """The file gru.py of the page, and a model trained with it for two steps in the folder model."""
    folder = tmp_path_factory.mktemp("own")
    section = (ROOT / "docs/layers.md").read_text(encoding="utf-8").split("## Custom decoders")[1]
    decoder, _, task = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    write(folder / "gru.py", decoder + task)
    write(folder / "small.toml", RECIPE)
    out = ("--out", folder / "model", "--device", "cpu", "--set", "training.steps=2")
    done = well("train", folder / "small.toml", *BRIEFLY, *out, "--task", folder / "gru.py")
    assert f"jumok translate {folder / 'model'} --task {folder / 'gru.py'} < input.txt > output.txt" in done.err
    return folder


def test_it_is_trained_and_used(work):
    model, task = work / "model", ("--task", work / "gru.py")
    assert len(well("translate", model, *task, stdin="1 2 3\n4 5\n").out.splitlines()) == 2
    assert len(well("align", model, *task, stdin="1 2 3 ||| 3 2 1\n").out.splitlines()) == 1
    assert json.loads(well("look", model, "1 2 3", "--target", "3 2 1", "--json", *task).out)["text"] == "3 2 1"
    well("backtranslate", model, "--text", "-", "--out", work / "pairs.tsv", *task, stdin="1 2 3\n")
    times = well("compare", "speed", model, "--lengths=4", "--tokens=8", "--repeats=1", "--json", *task).out
    assert len(json.loads(times)["model"]) == 1
    digits = write(work / "digits.txt", "1 2\n3\n")
    lengths = ("--source", digits, "--reference", digits, "--metric", "chrf", "--json")
    assert json.loads(well("compare", "length", model, *lengths, *task).out)["sentences"] == 2
    assert "--task" not in jumok("export", model, "--out", work / "exported", *task).err
    assert "jumok translate THIS_FOLDER --task FILE < input.txt" in (model / "README.md").read_text(encoding="utf-8")


def test_it_is_inspected_under_its_own_name(work):
    decoder = re.search(r"class (\w+)\(Decoder\)", (work / "gru.py").read_text(encoding="utf-8"))[1]
    facts = json.loads(well("inspect", work / "model", "--json", "--task", work / "gru.py").out)
    assert facts["decoder"] == decoder
    assert facts["encoder"] in ("transformer", "rnn")
    assert decoder in (work / "model/README.md").read_text(encoding="utf-8")


def test_it_is_served(work):
    pytest.importorskip("fastapi")
    from jumok.serve.models import load_models
    from jumok.tasks import read_task

    task = read_task(work / "gru.py")
    assert load_models({"gru": work / "model"}, device="cpu", task=task)["gru"].parameters


@pytest.mark.parametrize("command", ["translate", "align", "inspect"])
def test_without_its_file_the_error_says_what_may_be_missing(work, command):
    done = jumok(command, work / "model", stdin="1 ||| 1\n")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert "if it was trained with --task, give the same file" in done.err


def test_tasks_that_do_not_fit_are_refused(work):
    tagging = ROOT / "tests/tasks/tagging.py"
    for arguments, said in (
        (("translate", work / "model", "--task", tagging), "needs a task derived from TranslationTask, but"),
        (("translate", work / "model", work / "model", "--task", work / "gru.py"), "applies to a single model"),
        (("serve", work / "model", f"b={work / 'model'}", "--task", work / "gru.py"), "applies to a single model"),
        (("align", "--task", work / "gru.py"), "--task needs a model"),
    ):
        done = jumok(*arguments, stdin="1\n")
        assert (done.code, done.err.count("\n")) == (1, 1)
        assert said in done.err
