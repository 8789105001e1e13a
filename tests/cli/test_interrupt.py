"""Ctrl-C, sent to the real program: whatever it is doing it stops soon, and what it has learned is not lost."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from support.commands import RECIPE, well, write
from support.runs import assert_same_run

SMALL = ("data.size=200", "data.valid_size=8")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are sent as POSIX has them")


def start(*arguments):
    command = [sys.executable, "-m", "jumok", *map(str, arguments)]
    return subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores Ctrl-C
    )


def interrupted(process, line, after=0.0):
    """Press Ctrl-C once a line beginning like this has been seen; all that the program said, and its exit code."""
    said = []
    for text in process.stderr:
        said.append(text)
        if text.startswith(line):
            break
    else:
        raise AssertionError("".join(said))
    time.sleep(after)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process of the group
    out, rest = process.communicate(timeout=60)
    return process.returncode, out, "".join(said) + rest


@pytest.mark.long
def test_training_saves_and_says_how_to_go_on_and_does_so_bit_for_bit(tmp_path):
    recipe = write(tmp_path / "r.toml", RECIPE.replace("dropout = 0.0", "dropout = 0.2"))
    changes = ("training.steps=24", "training.log_every=2", "training.validate_every=12", "data.valid_size=8")
    options = ["--device=cpu", *(f"--set={change}" for change in changes)]
    well("train", recipe, "--out", tmp_path / "whole", *options)
    broken = ["train", recipe, "--out", tmp_path / "broken", *options]
    code, out, said = interrupted(start(*broken), "step 4/")
    assert (code, out) == (130, "")
    assert "finishing this step and saving; press Ctrl-C again to quit at once" in said
    assert f"all saved in {tmp_path / 'broken'}\n" in said
    assert f"continue: jumok train {tmp_path / 'broken'} --resume (in Python resume=True)\n" in said
    assert "Traceback" not in said
    assert len(well("translate", tmp_path / "broken", stdin="12\n").out.splitlines()) == 1
    assert "resuming after step" in well("train", tmp_path / "broken", "--device=cpu", "--resume").err
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def endless(folder):
    changes = ("training.steps=100000", "training.log_every=1", "training.validate_every=50000", *SMALL)
    recipe = write(folder / "r.toml", RECIPE)
    return ["train", recipe, "--out", folder / "run", "--device=cpu", *(f"--set={change}" for change in changes)]


@pytest.mark.slow
def test_ctrl_c_while_the_program_is_loaded_is_one_line():
    """Wherever the import of the program is, from its first line on; Python's own start comes before that."""
    program = (
        "import os, signal, sys, jumok.cli\nmodule = sys.argv[1]\n"
        "def pressed(event, arguments):\n"
        "    if event == 'import' and arguments[0] == module:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.addaudithook(pressed)\n"
        "sys.argv = ['jumok', 'inspect', 'runs/recipe']\n"
        "jumok.cli.main()\n"
    )
    for module in ("jumok.cli.app", "typer", "jumok.cli.usage", "jumok.cli.inspect", "torch"):
        done = subprocess.run(
            [sys.executable, "-c", program, module],
            capture_output=True,
            text=True,
            timeout=60,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "jumok: interrupted\n"), module


def test_the_program_hears_ctrl_c_before_it_loads_anything_large():
    # ctypes is small, and needed where a CPU advertises AMX
    program = "import sys, ctypes; before = set(sys.modules); import jumok.cli; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert set(done.stdout.split()) == {"jumok", "jumok.devices", "jumok.cli", "jumok.cli.loading"}


def exit_code(process, seconds):
    """What a process ends with by itself, in this time; one that does not end is killed."""
    for _ in range(10 * seconds):
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.1)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    raise AssertionError(f"still running after {seconds} s")


@pytest.mark.long
def test_training_saves_when_its_terminal_is_closed(tmp_path):
    run, terminal = pytest.importorskip("pty").fork()
    if not run:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup make test` has the tests ignore it
        os.execv(sys.executable, [sys.executable, "-m", "jumok", *map(str, endless(tmp_path))])
    said = b""
    while b" loss " not in said:  # of the bar
        said += os.read(terminal, 1000)
    os.close(terminal)
    assert exit_code(run, seconds=60) == 130
    assert len(well("translate", tmp_path / "run", stdin="12\n").out.splitlines()) == 1


@pytest.mark.long
def test_training_goes_on_where_a_closed_terminal_is_ignored(tmp_path):
    ignored = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` does for the program it starts
    process = start(*endless(tmp_path))
    signal.signal(signal.SIGHUP, ignored)
    lines = iter(process.stderr.readline, "")
    assert any(line.startswith("step 4/") for line in lines)
    process.send_signal(signal.SIGHUP)
    assert any(line.startswith(f"step {number}/") for line in lines for number in range(20, 40))
    process.terminate()
    assert "all saved" in process.communicate(timeout=60)[1]


@pytest.mark.slow
def test_a_run_that_is_killed_after_a_validation_leaves_a_whole_model(tmp_path):
    recipe = write(tmp_path / "r.toml", RECIPE)
    changes = ("training.steps=100000", "training.validate_every=4", "training.log_every=2", *SMALL)
    process = start("train", recipe, "--out", tmp_path / "run", "--device=cpu", *(f"--set={one}" for one in changes))
    while not process.stderr.readline().startswith("step 10/"):
        pass
    used = well("translate", tmp_path / "run", stdin="12\n").out  # while it is trained
    assert len(used.splitlines()) == 1
    process.kill()
    process.communicate()
    assert len(well("translate", tmp_path / "run", stdin="12\n").out.splitlines()) == 1
    assert "- exact match: " in (tmp_path / "run/README.md").read_text()
    assert "reverse" in well("inspect", tmp_path / "run").out


@pytest.mark.long
def test_learning_a_vocabulary_stops_at_once_and_leaves_nothing_half_done(tmp_path):
    words = [f"{number * 2654435761 % 2**32:08x}" for number in range(100_000)]  # takes ten seconds to learn from
    write(tmp_path / "a", "".join(" ".join(words[at : at + 12]) + "\n" for at in range(0, len(words), 12)))
    recipe = write(
        tmp_path / "r.toml",
        f'[data]\nsource = "{tmp_path}/a"\ntarget = "{tmp_path}/a"\n[tokenizer]\nsplit_digits = false\n',
    )
    process = start("train", recipe, "--out", tmp_path / "run")
    code, out, said = interrupted(process, "learning the vocabulary", after=1)
    assert (code, out) == (130, "")
    kept = "nothing is saved yet; the same command starts again"
    assert said == f"learning the vocabulary\n{kept}\njumok: interrupted\n"
    assert not (tmp_path / "run").exists()
    assert not running(process.pid)  # nor is the process that was learning left behind


def running(group):
    """The processes of a group, where the system tells; a process that has ended but whose end nobody saw is none."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            state, _, of, *_ = path.read_text().rpartition(")")[2].split()
            found += [path] if int(of) == group and state != "Z" else []
    return found


@pytest.mark.long
def test_training_goes_on_when_nobody_reads_what_it_says(tmp_path):
    recipe = write(tmp_path / "r.toml", RECIPE)
    changes = ("training.steps=4", "training.log_every=1", "training.validate_every=2", *SMALL)
    process = start("train", recipe, "--out", tmp_path / "run", "--device=cpu", *(f"--set={one}" for one in changes))
    process.stderr.readline()
    process.stderr.close()  # as `2>&1 | head -1` does
    assert process.wait(timeout=60) == 0
    process.stdout.close()
    assert (tmp_path / "run" / "model.safetensors").exists()


@pytest.mark.long
def test_ctrl_c_saves_when_it_has_ended_the_other_end_of_the_pipe_too(tmp_path):
    process = start(*endless(tmp_path))
    while not process.stderr.readline().startswith("step 4/"):
        pass
    process.stderr.close()  # as `2>&1 | tee log` does
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=60) == 130
    process.stdout.close()
    assert (tmp_path / "run" / "model.safetensors").exists()
