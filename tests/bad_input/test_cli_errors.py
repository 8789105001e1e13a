"""What the other commands say when something is wrong: one clear line, exit code 1, 2 for usage."""

import os

import pytest

from jumok.cli.usage import with_options
from support.commands import RECIPE, jumok, write
from support.refusals import names, refused, train

pytestmark = pytest.mark.usefixtures("here")


def test_an_unknown_device(reverser):
    assert refused("translate", reverser, "--device", "gpu") == "device = 'gpu' must be auto, cpu or cuda"
    names(train(RECIPE, "--device", "tpu:x"), "device = 'tpu:x'", "auto, cpu or cuda")
    names(refused("translate", reverser, "--device", "meta"), "device = 'meta'")
    assert not os.path.exists("run")


def test_a_gpu_that_is_not_there(reverser, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    names(refused("translate", reverser, "--device", "cuda:7"), "'cuda:7'", "cuda:0")


def test_outputs_that_cannot_be_kept(reverser, tmp_path):
    write(tmp_path / "text", "1\n")
    command = ["evaluate", reverser, "--source", "text", "--reference", "text", "--save", "text/out"]
    names(refused(*command), "text", "not a folder")


@pytest.mark.parametrize(
    ("command", "facts"),
    [
        ("train", "RECIPE"),
        ("compare length", "MODEL"),
        ("trian", '"trian" … train?'),
        ("compare lenght", '"lenght" … length?'),
        ("translate --bem 3", "--bem; … --beam?"),
        ("translate --nosplit", "--nosplit … --no-split?"),
        ("translate -q", "-q"),
        ("translate --beam", "--beam … value"),
        ("translate --json=3", "--json … value"),
        ("inspect a b c", "b c"),
        ("average one --out=", '--out … ""'),
        ("translate --beam x", '--beam … 1 to 1000 … "x"'),
        ("translate --beam 0", '--beam … 1 to 1000 … "0"'),
        ("translate --length-penalty nan", '--length-penalty … -5 to 5 … "nan"'),
        ("translate --sample --temperature 0", "--temperature must be above 0, but it is 0"),
        ("backtranslate model --text - --out pairs.tsv --top-p 0", "--top-p must be above 0"),
        ("translate --sample --top-p 1.5", '--top-p … 1 … "1.5"'),
        ("translate --mbr 1", '--mbr … 2 to 1000 … "1"'),
        ("translate --min-length=-1", '--min-length … 0 … "-1"'),
        ("compare gradient a --ends first", '--ends … both … last … "first"'),
        ("look --head 1.5", '--head … whole number … "1.5"'),
    ],
)
def test_a_command_that_is_not_understood_is_one_line_and_two(command, facts):
    done = jumok(*command.split())
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("jumok: ")
    assert done.err.count("\n") == 1
    assert done.err.endswith(" --help\n")
    names(done.err, facts)


def test_no_command_at_all_is_answered_with_help():
    done = jumok()
    assert (done.code, done.err) == (2, "")
    assert "translate" in done.out


def test_an_empty_key_does_not_leave_a_server_open():
    names(refused("serve", "--api-key", ""), "API key", "empty")


def test_a_text_and_a_model_the_wrong_way_round_are_noticed(model):
    names(refused("look", "a text", model), "'a text'", repr(str(model)), "the model comes first")


def test_no_text_is_not_taken_for_the_folder_one_is_in():
    names(refused("look", ""), "text is empty")


def test_an_option_mistyped_is_answered_with_the_nearest_one():
    said = "jumok: there is no option --bem; did you mean --beam? see jumok translate --help\n"
    assert jumok("translate", "--bem", "3").err == said


def test_an_option_that_resembles_none_is_answered_without_a_guess():
    for command in ("look", "align", "evaluate"):
        said = f"jumok: there is no option --format; see jumok {command} --help\n"
        assert jumok(command, "--format", "json").err == said


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("`by_length=` needs a text", "--by-length needs a text"),
        ("`kind=decoder` is for maps", "--kind decoder is for maps"),
        ("align words: `tokens=False`", "align words: --words"),
        ("`model=` or `languages=`", "MODEL or --from or --to"),
        ("mbr=True and `jumok train`", "mbr=True and `jumok train`"),
    ],
)
def test_arguments_in_messages_of_the_library_are_shown_as_options(message, shown):
    assert with_options(message) == shown
