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

from jumok.errors import CheckpointError, ConfigError, DataError, TrainingError
from jumok.models.weights import load_weights, read_tensors
from jumok.tasks.recipes import TranslationTraining
from jumok.training import TrainingConfig, read_metrics, train
from jumok.training.checkpoint import checkpoints, write_checkpoint
from jumok.training.resume import can_resume
from jumok.training.step import autocast
from support.refusals import contents, damage, names, refuses
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


FILES = ["model.safetensors", "optimiser.safetensors", "average.safetensors", "state.json"]


@pytest.mark.parametrize(
    ("how", "name"), [("missing", FILES[0]), ("truncated", FILES[0]), *(("tampered", name) for name in FILES)]
)
def test_a_damaged_file_is_named_and_the_checkpoint_before_is_used_only_by_saying_so(finished, how, name):
    path, report = newest(finished) / name, Remarks()
    damage(path, how)
    result = run(finished, report=report, resume=True)
    names(report.said[0], path, {"missing": "missing", "truncated": "bytes", "tampered": "checksum"}[how])
    names(report.said[1], "step-00000004", "step-00000006", "damaged-step-00000006")
    names(report.said[2], "step 4")
    assert result.state.step == 6
    assert (finished / "checkpoints/damaged-step-00000006").is_dir()


@pytest.mark.parametrize(("how", "fact"), [("missing", "missing"), ("truncated", "damaged")])
def test_a_damaged_manifest_is_named(finished, how, fact):
    path, report = newest(finished) / "manifest.json", Remarks()
    damage(path, how)
    run(finished, report=report, resume=True)
    names(report.said[0], path, fact)


def test_a_copied_checkpoint_is_none(finished):
    shutil.copytree(newest(finished), finished / "checkpoints/step-00000006.bak")
    report = Remarks()
    assert run(finished, replace(CONFIG, steps=8), report=report, resume=True).state.step == 8
    names(report.said[0], "step 6")
    assert (finished / "checkpoints/step-00000006.bak").is_dir()


def rewrite(path, content):
    """Change a file of a checkpoint, and its manifest with it."""
    path.write_bytes(content)
    manifest = json.loads((path.parent / "manifest.json").read_text())
    manifest["files"][path.name] = {"bytes": len(content), "sha256": sha256(content).hexdigest()}
    (path.parent / "manifest.json").write_text(json.dumps(manifest))


def changed(saved, **entries):
    return json.dumps(saved | entries).encode()


STATES = {
    "not JSON": lambda saved: b"{",
    "nested": lambda saved: 100_000 * b"[",
    "digits": lambda saved: json.dumps(saved).encode().replace(b'"step": 6', b'"step": ' + 5000 * b"9"),
    "no state": lambda saved: changed(saved, state=None),
    "no config": lambda saved: changed(saved, config=None),
    "no data": lambda saved: json.dumps({name: saved[name] for name in saved if name != "data"}).encode(),
    "made by nobody": lambda saved: changed(saved, made_by=3),
    "a step of text": lambda saved: changed(saved, state=saved["state"] | {"step": "6"}),
    "a step before the first": lambda saved: changed(saved, state=saved["state"] | {"step": -6}),
    "too few sums": lambda saved: changed(saved, state=saved["state"] | {"sums": [1.0]}),
    "scores of text": lambda saved: changed(saved, state=saved["state"] | {"best_scores": ["a"]}),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_that_is_none_is_named_and_the_checkpoint_before_is_used(finished, name):
    path = newest(finished) / "state.json"
    rewrite(path, STATES[name](json.loads(path.read_text())))
    report = Remarks()
    assert can_resume(finished, CONFIG, {})
    assert run(finished, report=report, resume=True).state.step == 6
    names(report.said[0], path, "damaged")
    names(report.said[2], "step 4")


@pytest.mark.skipif(os.name != "posix", reason="pipes and sparse files")
def test_a_checkpoint_made_to_do_harm_is_passed_over(finished):
    path = newest(finished) / "model.safetensors"
    path.unlink()
    os.mkfifo(path)
    report = Remarks()
    run(finished, report=report, resume=True)
    names(report.said[0], path, "pipe")
    path = newest(finished) / "average.safetensors"
    os.truncate(path, 2**40)
    manifest = json.loads((path.parent / "manifest.json").read_text())
    manifest["files"][path.name]["bytes"] = 2**40
    (path.parent / "manifest.json").write_text(json.dumps(manifest))
    report = Remarks()
    run(finished, report=report, resume=True)
    names(report.said[0], path.parent, "1,099,511,")


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
    names(report.said[0], manifest, "damaged")


def test_a_run_with_no_whole_checkpoint_is_an_error_and_nothing_is_changed(finished):
    for path in checkpoints(finished / "checkpoints"):
        (path / "model.safetensors").write_bytes(b"nothing")
    before = sorted(finished.rglob("*"))
    with refuses(CheckpointError, finished / "checkpoints", newest(finished) / "model.safetensors"):
        run(finished, resume=True)
    assert sorted(finished.rglob("*")) == before


def test_a_checkpoint_of_another_shape_is_refused_by_name(finished):
    path = newest(finished) / "model.safetensors"
    other = TinyModel()
    other.decoder.hidden_layer = torch.nn.Linear(16, 5)
    with refuses(DataError, path, "decoder.hidden_layer.weight", "[8, 16]", "[5, 16]", "another model"):
        run(finished, model=other, resume=True)
    other = TinyModel()
    other.decoder.norm = torch.nn.Identity()
    with refuses(DataError, path, "decoder.norm.bias"):
        run(finished, model=other, resume=True)
    other = TinyModel()
    other.extra = torch.nn.Linear(2, 2)
    with refuses(DataError, path, "extra.weight", "[2, 2]"):
        run(finished, model=other, resume=True)


def test_weights_that_do_not_fit_change_nothing(tmp_path):
    model, other = TinyModel(), TinyModel(seed=1)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    tensors = {name: tensor for name, tensor in other.named_parameters() if name != "decoder.norm.bias"}
    with refuses(DataError, "x.safetensors", "decoder.norm.bias", "[8]"):
        load_weights(model, tensors, "x.safetensors")
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    with refuses(DataError, tmp_path / "none.safetensors", "No such file"):
        read_tensors(tmp_path / "none.safetensors")


def test_a_folder_with_a_run_is_not_overwritten(finished):
    before = contents(finished)
    with pytest.raises(
        CheckpointError,
        match=r"run already holds a training run \(checkpoints, metrics.jsonl, model.safetensors\); continue it with "
        r"--resume \(in Python resume=True\), train into another folder, or delete this one",
    ):
        run(finished)
    assert contents(finished) == before


def test_resuming_where_there_is_no_checkpoint_starts_anew(tmp_path):
    assert run(tmp_path / "run", resume=True).state.step == 6


@pytest.mark.parametrize(
    ("begun", "resumed", "facts"),
    [
        ({}, {"learning_rate": 0.5}, "training.learning_rate … 0.001 … 0.5"),
        ({}, {"betas": (0.9, 0.9)}, "training.betas … [0.9, 0.98] … [0.9, 0.9]"),
        ({"schedule": "cosine"}, {"steps": 8}, 'training.steps … 6 … 8 … "cosine" … put it back'),
    ],
)
def test_settings_that_would_make_it_another_run_are_refused_on_resume(tmp_path, begun, resumed, facts):
    config = replace(CONFIG, **begun)
    run(tmp_path / "run", config)
    with refuses(ConfigError, facts):
        run(tmp_path / "run", replace(config, **resumed), resume=True)


def test_other_data_is_refused_on_resume(tmp_path):
    run(tmp_path / "run", data_fingerprint="corpus 1")
    with refuses(ConfigError, "training data"):
        run(tmp_path / "run", data_fingerprint="corpus 2", resume=True)


def test_a_run_of_a_version_with_another_order_of_batches_is_refused_on_resume(tmp_path):
    run(tmp_path / "run")
    for path in tmp_path.glob("run/checkpoints/*/state.json"):
        saved = json.loads(path.read_text())
        del saved["order"]  # as versions wrote it that sorted every epoch anew
        path.write_text(json.dumps(saved))
    with refuses(ConfigError, "another version of jumok", "order"):
        can_resume(tmp_path / "run", CONFIG, {})


@pytest.mark.parametrize(
    ("code", "advice"), [(errno.ENOSPC, "free … --resume"), (errno.EROFS, "folder"), (errno.EFBIG, "--resume")]
)
def test_a_disk_that_fills_up_while_training_harms_no_checkpoint(tmp_path, monkeypatch, code, advice):
    run(tmp_path / "run", replace(CONFIG, steps=4))
    before = contents(tmp_path / "run/checkpoints")

    def full(handle):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        patch.setattr("jumok.training.metrics.cut_after", lambda *path, **options: None)
        with refuses(CheckpointError, "step-00000006", os.strerror(code), advice):
            run(tmp_path / "run", resume=True)
    assert contents(tmp_path / "run/checkpoints") == before
    assert run(tmp_path / "run", resume=True).state.step == 6


def test_a_file_that_the_system_cuts_off_is_an_error_not_a_checkpoint(tmp_path):
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))  # a real error from write(), after 1000 bytes
    try:
        with refuses(CheckpointError, tmp_path, "File too large"):
            write_checkpoint(tmp_path, 1, {"a": lambda: b"x" * 5000})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_read_only_folder_is_an_error_before_training_begins(tmp_path):
    tmp_path.chmod(0o500)
    with refuses(CheckpointError, tmp_path / "run", "Permission denied"):
        run(tmp_path / "run")
    tmp_path.chmod(0o700)


def test_a_folder_that_cannot_be_made_is_an_error_before_training_begins(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    with refuses(CheckpointError, tmp_path / "file/run/checkpoints", "Not a directory"):
        run(tmp_path / "file/run")
    monkeypatch.setattr(
        os, "mkdir", lambda *names, **k: (_ for _ in ()).throw(OSError(errno.EROFS, "Read-only file system"))
    )
    with refuses(CheckpointError, tmp_path / "run", "Read-only file system"):
        run(tmp_path / "run")


def test_a_second_process_is_kept_out_of_the_folder(tmp_path):
    pytest.importorskip("fcntl")
    intrusions = []

    def intrude(model):
        with refuses(CheckpointError, "another process", tmp_path / "run"):
            run(tmp_path / "run", resume=True)
        intrusions.append(model)
        return validate(model)

    run(tmp_path / "run", check=intrude)
    assert intrusions
    run(tmp_path / "run", resume=True)  # let go of when training is over


def test_no_memory_for_the_optimiser_is_said(monkeypatch, tmp_path):
    def full(*arguments, **options):
        raise torch.OutOfMemoryError("no")

    monkeypatch.setattr("jumok.training.step.update", full)
    with refuses(TrainingError, "out of memory", "AdamW"):
        run(tmp_path / "run")


def test_training_that_only_ever_skips_gives_up_and_says_what_to_change(tmp_path):
    model, report = TinyModel(), Remarks()
    model.decoder.norm.weight.register_hook(lambda gradient: gradient * float("nan"))
    config = replace(CONFIG, steps=500, validate_every=1000, log_every=50)
    with refuses(TrainingError, "100 steps", "training.learning_rate"):
        run(tmp_path / "run", config, model=model, report=report)
    (warning,) = report.said
    names(warning, "step 50", "50 steps", "training.learning_rate", "training.warmup", "training.clip")
    assert [record["loss"] for record in read_metrics(tmp_path / "run/metrics.jsonl")] == [None, None]
    report = Remarks()
    run(tmp_path / "short", replace(config, steps=3), model=model, report=report)
    names(report.said[0], "step 3", "3 steps")  # skipped after the last line of metrics


def test_a_damaged_line_of_metrics_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\nnonsense\n{"step": 2}\n')
    with refuses(DataError, "metrics.jsonl, line 2"):
        read_metrics(path)


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"schedule": "noam"}, 'training.learning_rate = 0.001 … training.schedule = "noam"'),
        (
            {"schedule": "cosine", "steps": 10},
            "training.warmup = 1000 … training.steps = 10 … set training.warmup = 1,",
        ),
        ({"average": 5}, "training.average = 5 … training.keep = 5"),
        ({"average": 2, "ema": 0.9}, "training.average = 2 … training.ema = 0.9"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_their_values(settings, facts):
    with refuses(ConfigError, facts):
        TranslationTraining(**settings)


def test_too_few_steps_for_a_tenth_are_advised_no_warmup():
    with pytest.raises(ConfigError, match=r"set training\.warmup = 0$"):
        TranslationTraining(schedule="cosine", steps=5)


def test_what_training_cannot_work_with_is_refused(tmp_path):
    with refuses(DataError, "epoch 0", "no batches"):
        train(TinyModel(), TinyBatches(steps=0), CONFIG, folder=tmp_path / "empty", validate=validate)
    with refuses(ConfigError, 'training.metric = "bleu"', "loss, perplexity"):
        run(tmp_path / "run", replace(CONFIG, metric="bleu"))
    with refuses(ConfigError, 'training.precision = "bf16"', "meta"):
        autocast(replace(CONFIG, precision="bf16"), torch.device("meta"))
