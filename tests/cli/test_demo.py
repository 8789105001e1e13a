"""`jumok demo` and the manners of the command line."""

import json
import os
import resource
import subprocess
import sys
from inspect import signature
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from jumok import load
from jumok.cli.app import COMMANDS, app, load_command
from jumok.cli.demo import demo
from jumok.tasks.demo import ENOUGH_STEPS, demo_recipe, slow_machine_messages
from support import commands
from support.runs import state_of


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "made" / "for it"
    result = CliRunner().invoke(app, ["demo", "--quick", "--out", str(folder)])
    assert result.exit_code == 0, result.output
    return result, folder


def jumok(*arguments, **environment):
    command = [sys.executable, "-m", "jumok", *arguments]
    return subprocess.run(command, capture_output=True, env={**os.environ, **environment}, check=False)


@pytest.mark.slow
def test_every_kernel_is_measured_and_beats_the_plain_mean(shown):
    lines = [line.split() for line in shown[0].stdout.splitlines()]
    errors = {line[0]: float(line[-1]) for line in lines if line and line[0] in ("plain", "boxcar", "gaussian")}
    assert max(errors["boxcar"], errors["gaussian"]) < errors["plain"] / 3


@pytest.mark.slow
def test_the_database_answers_exact_and_missing_keys(shown):
    for answer in ("Li → Mu", "Lipson → Zachary", "Smol → Alex", "허 → Rachel"):
        assert answer in shown[0].stdout


@pytest.mark.slow
def test_pictures_are_written_and_where_is_said_on_standard_error(shown):
    result, folder = shown
    for name in ("kernels.png", "bandwidths.png"):
        assert (folder / name).stat().st_size > 10_000
        assert f"wrote {folder / name}" in result.stderr
        assert name not in result.stdout


@pytest.mark.slow
def test_json_is_all_there_is_on_standard_output(tmp_path):
    result = CliRunner().invoke(app, ["demo", "--quick", "--json", "--out", str(tmp_path)])
    found = json.loads(result.stdout)
    assert found["regression"][0]["kernel"] == "constant"
    assert found["database"][0]["value"] == "Mu"
    assert sum(row["weight"] for row in found["database"][1]["weights"]) == pytest.approx(1)
    assert found["pictures"] == [str(tmp_path / "kernels.png"), str(tmp_path / "bandwidths.png")]


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path):
    (tmp_path / "file").touch()
    done = commands.jumok("demo", "--out", tmp_path / "file" / "folder")
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines() == [
        f"jumok: {tmp_path / 'file'} is a file, not a folder, so {tmp_path / 'file' / 'folder'} cannot be created; "
        "choose another folder"
    ]


@pytest.mark.long
def test_a_demo_in_a_file_keeps_its_hangul_where_the_locale_has_none(tmp_path):
    done = jumok("demo", "--quick", "--out", str(tmp_path), PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "허 → Rachel" in done.stdout.decode()


@pytest.mark.long
def test_the_two_translators_are_trained_compared_and_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr("jumok.tasks.demo.TEST_SENTENCES", 20)
    monkeypatch.setattr("jumok.tasks.demo.TRAINING_PAIRS", 8_000)
    result = CliRunner().invoke(app, ["demo", "--minutes", "0.03", "--json", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert set(found["exact_match"]) == {"fixed", "attention"}
    assert sum(band["sentences"] for band in found["by_length"]) == 20
    assert (tmp_path / "attention.svg").read_text(encoding="utf-8").startswith("<svg")
    assert (tmp_path / "attention" / "model.safetensors").exists()
    assert " of 1,800 steps in 0.03 minutes: the machine is slow or busy" in result.stderr
    assert "too few to learn much" in result.stderr
    assert [state_of(tmp_path / name)["step"] for name in ("fixed", "attention")] == [found["steps"]] * 2


@pytest.mark.slow
@pytest.mark.parametrize(("reached", "note"), [(1800, False), (1746, True)])
def test_both_translators_get_as_many_steps_and_fewer_than_planned_are_noted_under_the_table(
    tmp_path, monkeypatch, reached, note
):
    limits = []

    def train(recipe, folder, say):
        limits.append((recipe.training.steps, recipe.training.minutes))
        return SimpleNamespace(model=load(), state=SimpleNamespace(step=reached))

    monkeypatch.setattr("jumok.tasks.demo.train_demo_model", train)
    monkeypatch.setattr("jumok.tasks.demo.TEST_SENTENCES", 5)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert limits == [(1800, 12), (reached, 0)]
    table = result.stdout.partition("Exact match")[2].partition("Friday")[0].splitlines()
    assert ("Both models were trained for 1,746 of 1,800 steps only." in table) == note


@pytest.mark.parametrize(
    ("done", "said"),
    [
        (1200, []),
        (700, ["`jumok demo --minutes 48` gives both more time"]),
        (30, ["--minutes 48", "30 steps are too few to learn much"]),
    ],
)
def test_a_slow_machine_is_told_what_its_demo_is_worth(done, said):
    lines = list(slow_machine_messages(done, 1200, 12.0))
    assert len(lines) == len(said)
    assert all(part in line for part, line in zip(said, lines, strict=True))


def test_the_demo_goes_by_steps_and_its_minutes_are_only_a_limit():
    settings = {name: signature(demo).parameters[name].default for name in ("steps", "minutes")}
    training = demo_recipe("additive", **settings).training
    assert (training.steps, training.minutes) == (settings["steps"], settings["minutes"])
    assert training.steps > 2 * ENOUGH_STEPS
    assert training.patience == 0


@pytest.mark.parametrize("command", [["look"], ["compare", "length"], []])
def test_help_shows_no_type_after_flags(command):
    shown = commands.well(*command, "--help").out
    assert "--help" in shown
    assert "bool" not in shown


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("inspect", "MODEL"),
        ("align", "[MODEL]"),
        ("caption", "MODEL IMAGE..."),
        ("serve", "[MODEL...]"),
        ("translate", "[MODEL]... [FILE]"),
        ("demo", ""),
    ],
)
def test_help_names_arguments_in_capitals_and_repeated_values_by_their_type(command, arguments):
    shown = commands.well(command, "--help").out
    usage = next(line for line in shown.splitlines() if "Usage:" in line)
    assert usage.split() == ["Usage:", "jumok", command, "[OPTIONS]", *arguments.split()]
    assert "list[" not in shown
    assert "(auto)" not in shown
    assert "x<=" not in shown, "limits are words: 1 to 1000"
    assert "x>=" not in shown
    assert "[default: no-" not in shown, "a flag that is off by default has one name"


def test_help_of_every_command_comes_without_importing_torch():
    program = f"""
import sys
from jumok.cli.app import app
for command in [], {", ".join(f"['{name}']" for name in COMMANDS)}, ["compare", "length"]:
    app([*command, "--help"], standalone_mode=False)
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.count("Usage:") == len(COMMANDS) + 2
    assert not {"torch", "numpy", "matplotlib", "sklearn"} & set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_shows_the_first_line_of_each_command_s_help(name):
    assert COMMANDS[name] == " ".join(load_command(name).help.partition("\n\n")[0].split())


@pytest.mark.slow
def test_a_command_imports_only_its_own_module():
    program = "import sys; from jumok.cli.app import load_command; load_command('align'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.splitlines()[-1].split() if name.startswith("jumok.cli.")}
    assert loaded & {f"jumok.cli.{name}" for name in COMMANDS} == {"jumok.cli.align"}


def test_help_takes_less_than_half_a_second_of_processor_time():
    def seconds():
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return spent.ru_utime + spent.ru_stime

    before = seconds()
    assert jumok("--help").returncode == 0
    assert seconds() - before < 0.5


def test_an_unknown_option_is_a_usage_error():
    assert CliRunner().invoke(app, ["demo", "--nonsense"]).exit_code == 2


def test_the_version_can_be_asked_for():
    assert jumok("--version").stdout.decode().startswith("jumok 0.")
