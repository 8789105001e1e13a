"""What can go wrong with a run's folder, its checkpoints and its settings: one clear line, and nothing harmed."""

import errno
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256

import pytest
import torch

from jumok.errors import CheckpointError, ConfigError, DataError, JumokError, TrainingError
from jumok.models.weights import load_weights, read_tensors, to_bytes
from jumok.tasks.translation import TranslationTraining
from jumok.training import TrainingConfig, read_metrics, train
from jumok.training.checkpoint import checkpoints, write_checkpoint
from jumok.training.resume import will_go_on
from jumok.training.step import autocast
from support.runs import Remarks
from support.tiny import TinyBatches, TinyModel, validate

CONFIG = TrainingConfig(steps=6, validate_every=2, log_every=2, metric="loss", ema=0.9, warmup=2)


def run(folder, config=CONFIG, *, model=None, check=validate, **options):
    return train(model or TinyModel(), TinyBatches(), config, folder=folder, validate=check, **options)


@pytest.fixture
def finished(tmp_path):
    """The folder of a run with checkpoints after steps 2, 4 and 6."""
    run(tmp_path / "run")
    return tmp_path / "run"


def newest(folder):
    return checkpoints(folder / "checkpoints")[-1]


def damage(folder, how, name):
    path = newest(folder) / name
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[:-7])
    else:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)


FILES = ["model.safetensors", "optimiser.safetensors", "average.safetensors", "state.json"]
SAID = {
    "missing": "{path} is missing; copy step-00000006 again from where it is whole, or delete it to go on from the one",
    "truncated": "bytes but was written with",
    "tampered": "{path} was changed after it was written: its checksum differs",
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", SAID)
def test_a_damaged_file_is_named_and_the_checkpoint_before_is_used_only_by_saying_so(finished, how, name):
    damage(finished, how, name)
    path, report = newest(finished) / name, Remarks()
    result = run(finished, report=report, resume=True)
    assert SAID[how].format(path=path) in report.said[0]
    assert str(path) in report.said[0]
    assert report.said[1] == ("going on from step-00000004 instead; step-00000006 is now called damaged-step-00000006")
    assert report.said[2].startswith("going on after step 4")
    assert result.state.step == 6
    assert (finished / "checkpoints/damaged-step-00000006").is_dir()


@pytest.mark.parametrize("how", ["missing", "truncated"])
def test_a_damaged_manifest_is_named(finished, how):
    damage(finished, how, "manifest.json")
    report = Remarks()
    run(finished, report=report, resume=True)
    what = "missing" if how == "missing" else "damaged"
    assert report.said[0].startswith(
        f"{finished}/checkpoints/step-00000006/manifest.json is {what}; copy step-00000006"
    )


def test_a_copied_checkpoint_is_none(finished):
    shutil.copytree(newest(finished), finished / "checkpoints/step-00000006.bak")
    report = Remarks()
    assert run(finished, replace(CONFIG, steps=8), report=report, resume=True).state.step == 8
    assert report.said[0].startswith("going on after step 6, from ")
    assert (finished / "checkpoints/step-00000006.bak").is_dir()


def rewrite(path, content):
    """Change a file of a checkpoint, and its manifest with it."""
    path.write_bytes(content)
    manifest = json.loads((path.parent / "manifest.json").read_text())
    manifest["files"][path.name] = {"bytes": len(content), "sha256": sha256(content).hexdigest()}
    (path.parent / "manifest.json").write_text(json.dumps(manifest))


STATES = {
    "not JSON": lambda saved: b"{",
    "nested": lambda saved: 100_000 * b"[",
    "digits": lambda saved: json.dumps(saved).encode().replace(b'"step": 6', b'"step": ' + 5000 * b"9"),
    "a list": lambda saved: b"[]",
    "no state": lambda saved: json.dumps(saved | {"state": None}).encode(),
    "no config": lambda saved: json.dumps(saved | {"config": None}).encode(),
    "no data": lambda saved: json.dumps({name: saved[name] for name in saved if name != "data"}).encode(),
    "made by nobody": lambda saved: json.dumps(saved | {"made_by": 3}).encode(),
    "a step of text": lambda saved: json.dumps(saved | {"state": saved["state"] | {"step": "6"}}).encode(),
    "a step before the first": lambda saved: json.dumps(saved | {"state": saved["state"] | {"step": -6}}).encode(),
    "sums of nothing": lambda saved: json.dumps(saved | {"state": saved["state"] | {"sums": [None] * 7}}).encode(),
    "too few sums": lambda saved: json.dumps(saved | {"state": saved["state"] | {"sums": [1.0]}}).encode(),
    "scores of text": lambda saved: json.dumps(saved | {"state": saved["state"] | {"best_scores": ["a"]}}).encode(),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_that_is_none_is_named_and_the_checkpoint_before_is_used(finished, name):
    path = newest(finished) / "state.json"
    rewrite(path, STATES[name](json.loads(path.read_text())))
    report = Remarks()
    assert will_go_on(finished, CONFIG, {})
    assert run(finished, report=report, resume=True).state.step == 6
    assert report.said[0].startswith(f"{path} is damaged: it does not hold the state of a run")
    assert report.said[2].startswith("going on after step 4")


@pytest.mark.skipif(os.name != "posix", reason="pipes and sparse files")
def test_a_checkpoint_made_to_do_harm_is_passed_over(finished):
    path = newest(finished) / "model.safetensors"
    path.unlink()
    os.mkfifo(path)
    report = Remarks()
    run(finished, report=report, resume=True)
    assert report.said[0].startswith(f"{path} is a pipe, not a regular file")
    path = newest(finished) / "average.safetensors"
    os.truncate(path, 2**40)
    manifest = json.loads((path.parent / "manifest.json").read_text())
    manifest["files"][path.name]["bytes"] = 2**40
    (path.parent / "manifest.json").write_text(json.dumps(manifest))
    report = Remarks()
    run(finished, report=report, resume=True)
    assert "would take 1,099,511," in report.said[0]


def test_what_killed_processes_left_unfinished_is_removed_at_the_next_start(finished):
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    (finished / "data").mkdir()
    left = [finished / f".recipe.toml.{gone.stdout.strip()}.unfinished"]
    left += [finished / f"data/.train.store.{gone.stdout.strip()}.unfinished"]
    mine = finished / f".recipe.toml.{os.getppid()}.unfinished"
    for path in (*left, mine):
        path.write_bytes(b"half")
    run(finished, resume=True)
    assert not any(path.exists() for path in left)
    assert mine.exists()  # its writer is alive


def test_a_manifest_cannot_lead_out_of_its_folder(finished, tmp_path):
    (tmp_path / "secret").write_text("secret")
    manifest = newest(finished) / "manifest.json"
    content = json.loads(manifest.read_text())
    content["files"]["../../../secret"] = {"bytes": 6, "sha256": ""}
    manifest.write_text(json.dumps(content))
    report = Remarks()
    run(finished, report=report, resume=True)
    assert "manifest.json is damaged" in report.said[0]


def test_a_run_with_no_whole_checkpoint_is_an_error_and_nothing_is_changed(finished):
    for path in checkpoints(finished / "checkpoints"):
        (path / "model.safetensors").write_bytes(b"nothing")
    before = sorted(finished.rglob("*"))
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* is whole; the newest: .*step-00000006/model"):
        run(finished, resume=True)
    assert sorted(finished.rglob("*")) == before


def test_a_checkpoint_of_another_shape_is_refused_by_name(finished):
    other = TinyModel()
    other.decoder.hidden_layer = torch.nn.Linear(16, 5)
    with pytest.raises(
        DataError,
        match=r"step-00000006/model.safetensors holds decoder.hidden_layer.weight as \[8, 16\], but this model needs "
        r"\[5, 16\]; it belongs to another model; use the recipe",
    ):
        run(finished, model=other, resume=True)
    other = TinyModel()
    other.decoder.norm = torch.nn.Identity()
    with pytest.raises(DataError, match=r"holds decoder.norm.bias, which this model does not have"):
        run(finished, model=other, resume=True)
    other = TinyModel()
    other.extra = torch.nn.Linear(2, 2)
    with pytest.raises(DataError, match=r"has no extra.weight \[2, 2\], which this model needs"):
        run(finished, model=other, resume=True)


def test_weights_that_do_not_fit_change_nothing(tmp_path):
    model, other = TinyModel(), TinyModel(seed=1)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    tensors = {name: tensor for name, tensor in other.named_parameters() if name != "decoder.norm.bias"}
    with pytest.raises(DataError, match=r"x.safetensors has no decoder.norm.bias \[8\]"):
        load_weights(model, tensors, "x.safetensors")
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_broken_weights_file_is_one_clear_error(tmp_path):
    path = tmp_path / "model.safetensors"
    with pytest.raises(DataError, match=r"cannot read .*model.safetensors: No such file"):
        read_tensors(path)
    path.write_bytes(to_bytes({"a": torch.zeros(5)})[:-3])
    with pytest.raises(DataError, match=r"model.safetensors is not a whole safetensors file .* copy it again"):
        read_tensors(path)


def test_a_folder_with_a_run_is_not_overwritten(finished):
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    with pytest.raises(
        CheckpointError,
        match=r"run already holds a training run \(checkpoints, metrics.jsonl, model.safetensors\); go on with it by "
        r"--resume, train into another folder, or delete this one",
    ):
        run(finished)
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before


def test_resuming_where_there_is_no_checkpoint_starts_anew_and_says_so(tmp_path):
    report = Remarks()
    assert run(tmp_path / "run", report=report, resume=True).state.step == 6
    assert report.said[0] == f"there is no checkpoint in {tmp_path / 'run'} yet; starting at the first step"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rate": 0.5}, r"training.learning_rate was 0.001 and is now 0.5; a resumed run goes on as it was"),
        ({"seed": 9}, "training.seed was 1 and is now 9"),
        ({"betas": (0.9, 0.9)}, r"training.betas was \[0.9, 0.98\] and is now \[0.9, 0.9\]"),
    ],
)
def test_settings_that_would_make_it_another_run_are_refused_on_resume(finished, change, message):
    with pytest.raises(ConfigError, match=message):
        run(finished, replace(CONFIG, **change), resume=True)


def test_other_data_is_refused_on_resume(tmp_path):
    run(tmp_path / "run", data="corpus 1")
    with pytest.raises(ConfigError, match="the training data is not what this run began with"):
        run(tmp_path / "run", data="corpus 2", resume=True)


def test_a_run_of_a_version_with_another_order_of_batches_is_refused_on_resume(tmp_path):
    run(tmp_path / "run")
    for path in tmp_path.glob("run/checkpoints/*/state.json"):
        saved = json.loads(path.read_text())
        del saved["order"]  # as versions wrote it that sorted every epoch anew
        path.write_text(json.dumps(saved))
    with pytest.raises(ConfigError, match="another version of jumok, whose batches came in another order"):
        will_go_on(tmp_path / "run", CONFIG, {})


def test_the_length_of_a_cosine_cannot_change_on_resume(tmp_path):
    config = replace(CONFIG, schedule="cosine")
    run(tmp_path / "run", config)
    with pytest.raises(ConfigError, match=r"training.steps was 6 and is now 8"):
        run(tmp_path / "run", replace(config, steps=8), resume=True)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.ENOSPC, "free some space on the disk, then go on with the same command and --resume"),
        (errno.EROFS, "name a folder that can be"),
        (errno.EFBIG, "remove the cause, then go on with the same command and --resume"),
    ],
)
def test_a_disk_that_fills_up_while_training_harms_no_checkpoint(tmp_path, monkeypatch, code, advice):
    run(tmp_path / "run", replace(CONFIG, steps=4))
    before = {path: path.read_bytes() for path in (tmp_path / "run/checkpoints").rglob("*") if path.is_file()}

    def full(handle):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        patch.setattr("jumok.training.metrics.cut_after", lambda *path, **options: None)
        with pytest.raises(
            CheckpointError,
            match=f"cannot write the checkpoint .*step-00000006: {os.strerror(code)}; {advice}.*"
            r"\(checkpoints already there are untouched\)",
        ):
            run(tmp_path / "run", resume=True)
    after = {path: path.read_bytes() for path in (tmp_path / "run/checkpoints").rglob("*") if path.is_file()}
    assert after == before
    assert run(tmp_path / "run", resume=True).state.step == 6


def test_a_file_that_the_system_cuts_off_is_an_error_not_a_checkpoint(tmp_path):
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))  # a real error from write(), after 1000 bytes
    try:
        with pytest.raises(CheckpointError, match=r"cannot write the checkpoint .*: File too large"):
            write_checkpoint(tmp_path, 1, {"a": lambda: b"x" * 5000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_read_only_folder_is_an_error_before_training_begins(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(CheckpointError, match=r"cannot make the folder .*: Permission denied; name one"):
        run(tmp_path / "run")
    tmp_path.chmod(0o700)


def test_a_folder_that_cannot_be_made_is_an_error_before_training_begins(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CheckpointError, match=r"cannot make the folder .*file/run/checkpoints: Not a directory"):
        run(tmp_path / "file/run")
    monkeypatch.setattr(
        os, "mkdir", lambda *names, **k: (_ for _ in ()).throw(OSError(errno.EROFS, "Read-only file system"))
    )
    with pytest.raises(CheckpointError, match="Read-only file system; name one you may write to"):
        run(tmp_path / "run")


def test_a_second_process_is_kept_out_of_the_folder(tmp_path):
    pytest.importorskip("fcntl")
    messages = []

    def intrude(model):
        with pytest.raises(CheckpointError) as caught:
            run(tmp_path / "run", resume=True)
        messages.append(str(caught.value))
        return validate(model)

    run(tmp_path / "run", check=intrude)
    assert messages[0] == (
        f"another process is training into {tmp_path / 'run'}; wait for it, stop it, or train into another folder"
    )
    run(tmp_path / "run", resume=True)  # let go of when training is over


def test_no_memory_for_the_optimiser_is_said(monkeypatch, tmp_path):
    def full(*arguments, **options):
        raise torch.OutOfMemoryError("no")

    monkeypatch.setattr("jumok.training.step.update", full)
    with pytest.raises(TrainingError, match="out of memory for the two moments AdamW keeps"):
        run(tmp_path / "run")


def test_training_that_only_ever_skips_gives_up_and_says_what_to_change(tmp_path):
    model, report = TinyModel(), Remarks()
    model.decoder.norm.weight.register_hook(lambda gradient: gradient * float("nan"))
    config = replace(CONFIG, steps=500, validate_every=1000, log_every=50)
    with pytest.raises(TrainingError, match=r"of the last 100 steps were not finite.* lower training.learning_rate"):
        run(tmp_path / "run", config, model=model, report=report)
    assert report.said == [
        "step 50: 50 steps since the last line were skipped because their gradients were not finite; if this goes on, "
        "lower training.learning_rate, lengthen training.warmup, or set training.clip"
    ]
    assert [record["loss"] for record in read_metrics(tmp_path / "run/metrics.jsonl")] == [None, None]


def test_steps_skipped_after_the_last_line_of_metrics_are_said_in_the_end(tmp_path):
    model, report = TinyModel(), Remarks()
    model.decoder.norm.weight.register_hook(lambda gradient: gradient * float("nan"))
    run(tmp_path / "run", replace(CONFIG, steps=3, validate_every=1000, log_every=50), model=model, report=report)
    assert report.said[0].startswith(
        "step 3: 3 steps since the last line were skipped because their gradients were not"
    )


def test_an_empty_corpus_is_an_error_not_an_endless_loop(tmp_path):
    with pytest.raises(DataError, match="epoch 0 of the training data has no batches; is the corpus empty"):
        train(TinyModel(), TinyBatches(steps=0), CONFIG, folder=tmp_path / "run", validate=validate)


def test_a_metric_that_validation_does_not_give_is_named_with_those_it_does(tmp_path):
    with pytest.raises(ConfigError, match=r'training.metric = "bleu", but validation gives loss, perplexity'):
        run(tmp_path / "run", replace(CONFIG, metric="bleu"))


def test_half_precision_on_a_device_that_cannot_is_refused():
    with pytest.raises(ConfigError, match=r'training.precision = "bf16" needs a CUDA GPU or a CPU, but .* is on meta'):
        autocast(replace(CONFIG, precision="bf16"), torch.device("meta"))


def test_a_damaged_line_of_metrics_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\nnonsense\n{"step": 2}\n')
    with pytest.raises(DataError, match=r"metrics.jsonl, line 2: not a JSON object; delete the line"):
        read_metrics(path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"schedule": "noam"}, 'training.learning_rate = 0.001 with training.schedule = "noam" would hardly learn'),
        ({"schedule": "cosine", "steps": 10}, "training.warmup = 1000 must be below training.steps = 10"),
        (
            {"average": 5},
            "training.average = 5 checkpoints cannot be averaged when training.keep = 3; set",
        ),
        ({"average": 2, "ema": 0.9}, "training.average = 2 and training.ema = 0.9 both average"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_their_values(settings, message):
    with pytest.raises(ConfigError, match=message):
        TranslationTraining(**settings)


def test_every_error_is_one_line(finished):
    shutil.rmtree(newest(finished))
    for path in checkpoints(finished / "checkpoints"):
        (path / "manifest.json").write_text("{")
    with pytest.raises(JumokError) as caught:
        run(finished, resume=True)
    assert "\n" not in str(caught.value)
