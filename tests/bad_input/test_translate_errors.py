"""What `jumok translate` says when something is wrong: one clear line, exit code 1."""

import pytest

from support.commands import RECIPE, jumok, well, write
from support.refusals import names, refused, train

pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (["translate", "model"], "--beam"),
        (["translate", "model"], "--n-best"),
        (["caption", "model", "picture.png"], "--beam"),
        (["caption", "model", "picture.png"], "--n-best"),
        (["look", "model", "12"], "--beam"),
        (["evaluate", "model"], "--beam"),
        (["compare", "length", "model", "--source", "a", "--reference", "b"], "--beam"),
        (["serve", "model"], "--max-beam"),
    ],
)
def test_a_beam_that_would_take_minutes_is_refused_before_anything_is_read(command, option):
    done = jumok(*command, option, 1001)
    assert done.code == 2
    names(done.err, option, "1 to 1000", "1001")


def test_a_file_to_translate_that_is_not_there(reverser):
    names(refused("translate", reverser, "--source", "none.txt"), "no file none.txt")


def test_a_text_or_a_file_behind_the_command_is_told_where_texts_come_from(reverser, tmp_path):
    write(tmp_path / "in.txt", "12\n")
    said = "there is no model folder '3 hours'; if that is a text: echo '3 hours' | jumok translate"
    assert refused("translate", "3 hours") == said
    names(refused("translate", 300 * "3 hours "), "no model folder")
    names(refused("translate", "in.txt"), "in.txt", "not a model folder", "jumok translate --source in.txt")
    names(refused("translate", reverser, "12"), "no file 12", f"echo '12' | jumok translate {reverser}")
    names(refused("translate", "-"), "-", "not a model folder")
    names(refused("translate", reverser, "in.txt", "--source", "other"), "in.txt", "other")


def test_maps_of_a_model_without_attention(forgetful):
    names(refused("translate", forgetful, "--attention", "maps", stdin="12\n"), "no attention")


def test_maps_that_cannot_be_written(reverser, tmp_path):
    write(tmp_path / "text", "1\n")
    names(refused("translate", reverser, "--source", "text", "--attention", "text"), "text", "not a folder")
    names(refused("translate", reverser, "--attention", "text/maps"), "text/maps", "not a folder")


def test_an_image_for_a_model_that_reads_text_is_called_one(reverser, tmp_path):
    (tmp_path / "cat.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    names(refused("translate", reverser, "cat.png"), "cat.png", "PNG image")
    names(refused("look", reverser, "cat.png"), reverser, "cat.png", "PNG image", "captioner")


@pytest.mark.parametrize("penalty", [-1000, 5.1])
def test_a_length_penalty_that_no_score_survives_is_blamed_not_the_weights(reverser, penalty):
    done = jumok("translate", reverser, f"--length-penalty={penalty}", stdin="1\n")
    assert (done.code, done.out) == (2, "")
    names(done.err, "--length-penalty", "-5 to 5", penalty)


def test_maps_of_an_earlier_run_are_told_from_those_of_this_one(reverser):
    command = ("translate", reverser, "--attention", "maps")
    assert well(*command, stdin="12\n34\n56\n").err == "saved 3 attention maps in maps\n"
    names(well(*command, stdin="12\n").err, "maps", "2", "0002.svg")
    assert well(*command, stdin="12\n34\n56\n").err == "saved 3 attention maps in maps\n"


def test_text_to_translate_that_is_not_text_is_located(reverser):
    names(refused("translate", reverser, stdin=b"\xff\xfe1\x00\n"), "standard input, line 1: byte 1", "0xff", "UTF-8")
    names(refused("translate", reverser, stdin=b"1\x002 3\n"), "standard input, line 1: byte 2", "0")


def test_more_translations_than_the_beam_is_wide_are_refused_before_anything_is_read(reverser):
    said = refused("translate", reverser, "--beam", "2", "--n-best", "3")
    assert said == "the 3 best outputs are asked for, but the beam is only 2 wide; widen it to 3, or ask for fewer"


@pytest.mark.parametrize(
    ("setting", "limits"),
    [("beam = 1001", "1 … 1000"), ("length_penalty = -1000.0", "-5 … 5"), ("length_penalty = 5.1", "-5 … 5")],
)
def test_a_recipe_with_a_search_that_cannot_work(setting, limits):
    names(train(RECIPE + f"\n[decoding]\n{setting}\n"), f"decoding.{setting}", limits)
