"""What the other commands say when something is wrong: one clear line, exit code 1, 2 for usage."""

import os

import pytest

from support.commands import RECIPE, jumok, write
from support.refusals import refused, train, write_recipe

pytestmark = pytest.mark.usefixtures("here")


def test_an_unknown_device(reverser):
    assert refused("translate", reverser, "--device", "gpu") == "device = 'gpu' must be auto, cpu or cuda"
    assert train(RECIPE, "--device", "tpu:x") == "device = 'tpu:x' must be auto, cpu or cuda"
    assert refused("translate", reverser, "--device", "meta") == "device = 'meta' must be auto, cpu or cuda"
    assert not os.path.exists("run")


def test_a_gpu_that_is_not_there(reverser, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    said = refused("translate", reverser, "--device", "cuda:7")
    assert said == "device = 'cuda:7' was asked for, but there are only: cuda:0"


def test_an_unknown_score():
    write_recipe("a\n")
    said = refused("evaluate", "--output", "recipe.toml", "--reference", "recipe.toml", "--metrics", "bleu,blue")
    assert said == "'blue' is not a score; there are bleu, chrf, ter, exact_match, wer"


def test_outputs_that_cannot_be_kept(reverser, tmp_path):
    write(tmp_path / "text", "1\n")
    command = ["evaluate", reverser, "--source", "text", "--reference", "text", "--save", "text/out"]
    assert refused(*command).startswith("text is a file, not a folder")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("train", "the argument recipe is missing; see jumok train --help"),
        ("compare length", "the argument models is missing; see jumok compare length --help"),
        ("trian", 'there is no command "trian"; did you mean train? see jumok --help'),
        ("compare lenght", 'there is no command "lenght"; did you mean length? see jumok compare --help'),
        ("translate --bem 3", "there is no option --bem; did you mean --beam? see jumok translate --help"),
        ("translate --nosplit", "there is no option --nosplit; did you mean --no-split? see jumok translate --help"),
        ("translate -q", "there is no option -q; see jumok translate --help"),
        ("translate --beam", "--beam needs a value; see jumok translate --help"),
        ("translate --json=3", "--json takes no value; see jumok translate --help"),
        ("translate a b c d", "there are too many arguments: c d; see jumok translate --help"),
        ("average one --out=", '--out: the name is empty: ""; name a folder, "." for the current one; see jumok a'),
    ],
)
def test_a_command_that_is_not_understood_is_one_line_and_two(command, said):
    assert misused(*command.split()).startswith(said)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("translate --beam x", '--beam must be a whole number from 1 to 1000, but it is "x"'),
        ("translate --beam 0", '--beam must be a whole number from 1 to 1000, but it is "0"'),
        ("translate --length-penalty nan", '--length-penalty must be a number from -5 to 5, but it is "nan"'),
        ("translate --min-length=-1", '--min-length must be a whole number of at least 0, but it is "-1"'),
        ("compare gradient a --ends first", '--ends must be both or last, but it is "first"'),
        ("look --head 1.5", '--head must be a whole number, but it is "1.5"'),
    ],
)
def test_a_value_that_an_option_cannot_take_is_said_with_what_it_takes(command, said):
    assert misused(*command.split()).startswith(f"{said}; see jumok {command.split()[0]} ")


def misused(*arguments):
    done = jumok(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("jumok: ")
    assert done.err.count("\n") == 1
    return done.err.removeprefix("jumok: ").rstrip("\n")


def test_no_command_at_all_is_answered_with_help():
    done = jumok()
    assert (done.code, done.err) == (2, "")
    assert "translate" in done.out


def test_an_empty_key_does_not_leave_a_server_open():
    assert refused("serve", "--api-key", "").startswith("the API key is empty")


def test_a_text_and_a_model_the_wrong_way_round_are_noticed(model):
    assert (
        refused("look", "a text", model)
        == f"'a text' is not a model folder, but {str(model)!r} is; the model comes first"
    )


def test_no_text_is_not_taken_for_the_folder_one_is_in():
    assert refused("look", "") == "there is no attention map of an empty text"
