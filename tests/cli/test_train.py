"""`jumok train`: from two text files to a translator, and on from where it stopped."""

import json
import subprocess
import sys
import unicodedata
from types import SimpleNamespace

import pytest

from jumok.data import prepare
from jumok.tasks import TRANSLATION, read_recipe
from jumok.tasks import translation as training_run
from jumok.tasks.translator import TrainedTranslator
from support.commands import BRIEFLY, RECIPE, jumok, well, write
from support.runs import assert_same_run

LINES = [(f"the {size} {thing}", f"{thing} {size}") for size in ("big", "old", "new") for thing in "abcdefghij"]


@pytest.fixture
def two_files(tmp_path, monkeypatch):
    """A folder with train.en and train.xx, which is where we are."""
    monkeypatch.chdir(tmp_path)
    for name, side in (("train.en", 0), ("train.xx", 1)):
        write(tmp_path / name, "".join(f"{pair[side]}\n" for pair in 5 * LINES))
    return tmp_path


HALVES = ("encoder", "decoder")
SIX_LINES = """\
[data]
source = "train.en"
target = "train.xx"

[tokenizer]
size = 36
"""


@pytest.mark.slow
def test_six_lines_and_two_text_files_give_a_translator(two_files):
    write(two_files / "small.toml", SIX_LINES)
    small = [f"--set={half}.{name}=16" for half in ("encoder", "decoder") for name in ("width", "hidden")]
    done = well("train", "small.toml", *BRIEFLY, *small)
    assert done.out == ""
    assert "the model is in runs/small; use it: jumok translate runs/small" in done.err
    assert "kept " in done.err
    found = well("translate", "runs/small", stdin="the old b\n\nthe new c\n").out
    assert len(found.splitlines()) == 3
    assert found.splitlines()[1] == ""


@pytest.mark.slow
def test_how_many_pairs_are_held_out_is_said_and_that_few_tell_little(two_files):
    small = [f"--set={half}.{name}=8" for half in HALVES for name in ("width", "hidden")]
    command = ["train", write(two_files / "r.toml", SIX_LINES), "--device", "cpu", *BRIEFLY, *small]
    said = "with the same sources are left out; too few to compare models: give others by data.valid_source and"
    assert said in well(*command, "--out", "few").err
    given = ("--set=data.valid_source=train.en", "--set=data.valid_target=train.xx", "--set=training.metric=loss")
    assert "held out" not in well(*command, "--out", "given", *given).err
    assert training_run.held_out_message(1000) == (
        "1,000 pairs are held out of the training text to validate on; other pairs with the same sources are left out"
    )


def test_validation_does_not_depend_on_how_unicode_spells_the_targets(two_files, monkeypatch):
    korean = [f"{thing} {size}" for _ in range(5) for size in ("큰", "헌", "새") for thing in "책집꽃말길산강밥옷눈"]
    write(two_files / "train.xx", unicodedata.normalize("NFD", "".join(f"{line}\n" for line in korean)))
    write(two_files / "r.toml", SIX_LINES)
    recipe = read_recipe(two_files / "r.toml", ["training.metric=exact_match", "encoder.width=8", "decoder.width=8"])
    prepared = prepare(two_files / "data", recipe.data, recipe.tokenizer, recipe.filter)
    right = [SimpleNamespace(text=unicodedata.normalize("NFC", pair.target)) for pair in prepared.valid_pairs]
    monkeypatch.setattr(training_run.Translator, "translate", lambda *_: right)
    trained = TrainedTranslator(TRANSLATION.new_model(recipe, prepared.tokenizers), recipe, prepared.tokenizers)
    assert TRANSLATION.validate(trained, training_run.held_out_pairs(recipe, prepared))["exact_match"] == 100


def test_a_run_leaves_its_recipe_its_numbers_and_its_checkpoints(reverser):
    names = {path.name for path in reverser.iterdir()}
    assert names >= {"README.md", "recipe.toml", "metrics.jsonl", "model.safetensors", "checksums.json", "data"}
    assert [path.name for path in sorted((reverser / "checkpoints").iterdir())] == ["step-00000060", "step-00000120"]
    assert read_recipe(reverser / "recipe.toml").training.steps == 120
    lines = [json.loads(line) for line in (reverser / "metrics.jsonl").read_text().splitlines()]
    assert {"step", "loss"} <= lines[0].keys()
    assert any("exact_match" in line.get("validation", {}) for line in lines)
    assert "- exact match: 100% (validation)" in (reverser / "README.md").read_text()


@pytest.mark.slow
def test_json_is_the_only_thing_on_standard_output(tmp_path):
    recipe = write(tmp_path / "r.toml", RECIPE)
    done = well("train", recipe, "--out", tmp_path / "run", "--json", "--device", "cpu", *BRIEFLY)
    found = json.loads(done.out)
    assert found["folder"] == str(tmp_path / "run")
    assert found["stopped"] == "steps"
    assert 0 <= found["exact_match"] <= 100
    assert "step 4" in done.err


@pytest.mark.slow
def test_data_are_prepared_first_and_trained_on_later(two_files):
    recipe = write(two_files / "six.toml", SIX_LINES)
    command = ["train", recipe, "--out", two_files / "run", *BRIEFLY[:2], "--set=training.metric=loss"]
    done = well(*command, "--prepare-only")
    assert done.err.splitlines()[-1] == (
        f"the data are prepared in {two_files}/run/data; the same command without --prepare-only trains the model"
    )
    assert {path.name for path in (two_files / "run").iterdir()} == {"data"}
    stores = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in (two_files / "run/data").glob("*.store")}
    assert "tokenising" not in well(*command).err
    assert stores == {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in stores}
    assert (two_files / "run/model.safetensors").exists()
    assert "already holds a training run" in jumok(*command, "--prepare-only").err
    assert "leave out --prepare-only" in jumok(*command, "--prepare-only", "--resume").err


@pytest.mark.slow
def test_set_changes_the_recipe_that_is_saved(tmp_path):
    recipe = write(tmp_path / "r.toml", RECIPE)
    well("train", recipe, "--out", tmp_path / "run", *BRIEFLY, "--set", "decoder.attention=dot")
    saved = read_recipe(tmp_path / "run/recipe.toml")
    assert (saved.training.steps, saved.decoder.attention) == (4, "dot")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["rnn", "transformer"])
def test_two_runs_of_four_steps_are_one_of_eight_bit_for_bit(tmp_path, kind):
    recipe = write(tmp_path / "r.toml", RECIPE.replace("dropout = 0.0", "dropout = 0.3"))
    if kind == "transformer":
        half = {"kind": "transformer", "width": 16, "heads": 2, "hidden": 16, "dropout": 0.3}
        tables = [f"[{name}]\n" + "".join(f"{key} = {json.dumps(half[key])}\n" for key in half) for name in HALVES]
        before, after = RECIPE.split("[encoder]")
        recipe = write(tmp_path / "r.toml", before + "\n".join(tables) + "\n[batch]" + after.split("[batch]")[1])
    settings = [*BRIEFLY, "--set=training.ema=0.9", "--set=training.log_every=1"]
    well("train", recipe, "--out", tmp_path / "whole", "--device", "cpu", *settings, "--set=training.steps=8")
    broken = ["train", recipe, "--out", tmp_path / "broken", "--device", "cpu", *settings]
    well(*broken)
    done = well(*broken, "--set=training.steps=8", "--resume")
    assert "resuming after step 4" in done.err
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


@pytest.mark.slow
def test_a_run_that_diverges_after_a_validation_ends_well_with_the_best_model(tmp_path, monkeypatch):
    monkeypatch.setattr("jumok.training.loop.learning_rate", lambda step, *_, **__: 0.001 if step < 4 else 1e37)
    recipe = write(tmp_path / "r.toml", RECIPE)
    changes = [*BRIEFLY, "--set=training.steps=40", "--set=training.log_every=1"]
    done = well("train", recipe, "--out", tmp_path / "run", "--device", "cpu", "--json", *changes)
    assert json.loads(done.out)["stopped"] == "diverged"
    assert "the loss is not finite since step 4, so nothing is learned any more; the best is step 2" in done.err
    assert len(well("translate", tmp_path / "run", stdin="12\n").out.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("valid_split", ["validation", ""])
def test_a_hugging_face_dataset_on_disk_gives_a_translator_offline(tmp_path, monkeypatch, valid_split):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr("socket.socket.connect", refuse)
    rows = [{"translation": {"en": source, "xx": target}} for source, target in LINES]
    splits = {"train": datasets.Dataset.from_list(rows[:25]), "validation": datasets.Dataset.from_list(rows[25:])}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "pairs")
    keys = '["translation.en", "translation.xx"]'
    data = f'[data]\ndataset = "{tmp_path}/pairs"\ncolumns = {keys}\nvalid_split = "{valid_split}"\n'
    recipe = write(tmp_path / "r.toml", data + "[tokenizer]" + RECIPE.partition("[tokenizer]")[2])
    done = well("train", recipe, "--out", tmp_path / "run", "--device", "cpu", *BRIEFLY, "--set=filter.max_length=20")
    assert f"kept {25 if valid_split else 24} of" in done.err
    assert len(well("translate", tmp_path / "run", stdin="the old b\n").out.splitlines()) == 1
    assert f"- trained on: {tmp_path}/pairs" in (tmp_path / "run/README.md").read_text()
    assert f"{tmp_path}/pairs" in well("inspect", tmp_path / "run").out


@pytest.mark.slow
def test_a_validation_pair_too_long_for_the_model_is_left_out_and_that_is_said_once(two_files):
    write(two_files / "valid.tsv", "the old a\ta old\n" + 9 * "the old a " + "\ta old\n")
    small = ("width=16", "hidden=16", "positions=learned", "longest=24")
    settings = [f"--set={half}.{setting}" for half in HALVES for setting in small]
    data = "--set=data.valid_pairs=valid.tsv", "--set=filter.max_length=23"
    done = well("train", write(two_files / "r.toml", SIX_LINES), "--device", "cpu", *BRIEFLY, *settings, *data)
    left_out = [line for line in done.err.splitlines() if "validation pairs" in line]
    assert left_out == ["skipped 1 of 2 validation pairs, which are longer than filter.max_length = 23 tokens"]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["pairs", "source", "target"])
def test_standard_input_can_be_trained_on_and_the_run_resumed_without_it(two_files, form):
    text = "".join("\t".join(pair) + "\n" for pair in LINES)
    data = {
        "pairs": 'pairs = "-"',
        "source": 'source = "-"\ntarget = "train.xx"',
        "target": 'source = "train.en"\ntarget = "-"',
    }
    if form != "pairs":
        text = (two_files / ("train.en" if form == "source" else "train.xx")).read_text()
    recipe = write(two_files / "r.toml", f"[data]\n{data[form]}\n[tokenizer]" + RECIPE.partition("[tokenizer]")[2])
    command = ["train", recipe, "--out", "run", "--device", "cpu", *BRIEFLY, "--set=filter.max_length=20"]
    done = well(*command, stdin=text)
    assert "kept " in done.err
    assert "standard input" in (two_files / "run/README.md").read_text()
    for stdin in ("", "other\ttext\n"):
        assert "resuming after step 4" in well(*command, "--resume", stdin=stdin).err
    assert jumok(*command[:3], "new", *command[4:]).err == (
        f"jumok: data.{form} is standard input, which is empty; pipe text in, or name a file\n"
    )


def refuse(*arguments):
    raise AssertionError("a dataset on disk needs no network")


def test_a_finished_run_is_not_trained_over(reverser, tmp_path):
    before = {path: path.read_bytes() for path in reverser.rglob("*") if path.is_file()}
    done = jumok("train", write(tmp_path / "r.toml", RECIPE), "--out", reverser)
    assert done.code == 1
    assert "already holds a training run" in done.err
    assert {path: path.read_bytes() for path in reverser.rglob("*") if path.is_file()} == before


@pytest.mark.long
def test_the_program_writes_results_and_messages_to_different_streams(tmp_path):
    recipe = write(tmp_path / "r.toml", RECIPE)
    command = [sys.executable, "-m", "jumok", "train", str(recipe), "--out", str(tmp_path / "run"), "--json"]
    done = subprocess.run([*command, *BRIEFLY], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["folder"] == str(tmp_path / "run")
    assert "step 4" in done.stderr
