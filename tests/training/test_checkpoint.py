"""Checkpoints are whole or not there, checked when read, and pruned without a moment in which one is half gone."""

import errno
import json
import os

import pytest

from jumok.errors import CheckpointError
from jumok.training.checkpoint import checkpoints, prune, read_checkpoint, step_of, tidy, write_checkpoint

PARTS = {"a.bin": lambda: b"some bytes", "b.bin": lambda: b"other bytes" * 1000}


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_what_is_written_is_read(tmp_path):
    path = write_checkpoint(tmp_path, 12, PARTS)
    assert path == tmp_path / "step-00000012"
    assert read_checkpoint(path) == {name: make() for name, make in PARTS.items()}
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["files"]["a.bin"]["bytes"] == 10
    assert [entry.name for entry in tmp_path.iterdir()] == ["step-00000012"]


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc to see which file is meant")
def test_every_file_and_both_folders_are_forced_to_disk_before_and_after_the_rename(tmp_path, monkeypatch):
    happened = []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(
        os, "fsync", lambda handle: (happened.append(os.readlink(f"/proc/self/fd/{handle}")), fsync(handle))
    )
    monkeypatch.setattr(os, "rename", lambda *names, **k: (happened.append("rename"), rename(*names, **k)))
    write_checkpoint(tmp_path, 1, PARTS)
    names = [name.rsplit("/", 1)[-1] for name in happened]
    assert names == ["a.bin", "b.bin", "manifest.json", ".writing-step-00000001", "rename", tmp_path.name]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
@pytest.mark.parametrize("call", range(5))
def test_a_full_disk_harms_no_checkpoint_and_leaves_nothing_behind(tmp_path, monkeypatch, code, call):
    write_checkpoint(tmp_path, 1, PARTS)
    write_checkpoint(tmp_path, 2, PARTS)
    before, calls, fsync = contents(tmp_path), [], os.fsync

    def failing(handle):
        calls.append(handle)
        if len(calls) > call:
            raise OSError(code, os.strerror(code))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(CheckpointError, match=f"cannot write the checkpoint .*step-00000003: {os.strerror(code)}"):
        write_checkpoint(tmp_path, 3, PARTS)
    after = contents(tmp_path)
    if call < 4:  # the last call comes after the rename: the checkpoint is whole, if perhaps not on disk
        assert after == before
    assert after.items() >= before.items()
    assert all(path.name.startswith("step-") for path in tmp_path.iterdir())


def test_writing_again_after_the_same_step_replaces_the_checkpoint(tmp_path):
    write_checkpoint(tmp_path, 1, PARTS)
    path = write_checkpoint(tmp_path, 1, {"c.bin": lambda: b"new"})
    assert read_checkpoint(path) == {"c.bin": b"new"}
    assert list(tmp_path.iterdir()) == [path]


def test_a_kill_while_replacing_leaves_the_old_checkpoint_to_be_put_back(tmp_path):
    path = write_checkpoint(tmp_path, 1, PARTS)
    path.rename(tmp_path / ".replaced-step-00000001")
    (tmp_path / ".writing-step-00000001").mkdir()
    tidy(tmp_path)
    assert list(tmp_path.iterdir()) == [path]
    assert read_checkpoint(path)["a.bin"] == b"some bytes"


def test_pruning_keeps_the_newest_and_the_best(tmp_path):
    for step in (1, 2, 3, 10, 20):
        write_checkpoint(tmp_path, step, PARTS)
    prune(tmp_path, keep=2, best=2)
    assert [step_of(path) for path in checkpoints(tmp_path)] == [2, 10, 20]
    prune(tmp_path, keep=5, best=None)
    assert [step_of(path) for path in checkpoints(tmp_path)] == [2, 10, 20]


def test_what_a_killed_process_left_is_cleared_away(tmp_path):
    path = write_checkpoint(tmp_path, 1, PARTS)
    for name in (".writing-step-00000002", ".removing-step-00000000", ".replaced-step-00000001"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.bin").write_bytes(b"half")
    tidy(tmp_path)
    assert list(tmp_path.iterdir()) == [path]
    assert read_checkpoint(path)["a.bin"] == b"some bytes"


def test_an_interrupt_while_writing_leaves_nothing_behind(tmp_path):
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(tmp_path, 1, {**PARTS, "c.bin": interrupted})
    assert list(tmp_path.iterdir()) == []


def write_replace_and_prune(folder):
    write_checkpoint(folder, 3, {"a.bin": lambda: b"the third again"})
    write_checkpoint(folder, 4, PARTS)
    prune(folder, keep=2, best=1)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.long
def test_a_process_that_dies_at_any_file_operation_leaves_only_whole_checkpoints(tmp_path, monkeypatch):
    for call in range(60):
        folder = tmp_path / str(call)
        for step in (1, 2, 3):
            write_checkpoint(folder, step, PARTS)
        if (child := os.fork()) == 0:
            die_at(call, monkeypatch)
            write_replace_and_prune(folder)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        tidy(folder)
        found = {step_of(path): read_checkpoint(path) for path in checkpoints(folder)}
        assert found.keys() >= {1, 3}
        assert found[3]["a.bin"] in (b"some bytes", b"the third again")
        assert all(path.name.startswith("step-") for path in folder.iterdir())
        if status == 0:
            assert found.keys() == {1, 3, 4}
            return
    pytest.fail("the process never came to its end")


def die_at(call, monkeypatch):
    """End this process, with no time to tidy up, at its call-th change of the disk."""
    left = [call]

    def mortal(function):
        def wrapped(*arguments, **options):
            left[0] -= 1
            if left[0] < 0:
                os._exit(1)
            return function(*arguments, **options)

        return wrapped

    for name in ("fsync", "rename", "mkdir", "unlink", "rmdir"):
        monkeypatch.setattr(os, name, mortal(getattr(os, name)))
