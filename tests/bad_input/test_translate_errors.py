"""What `jumok translate` says when something is wrong: one clear line, exit code 1."""

import pytest

from jumok.decoding.config import WIDEST
from support.commands import BRIEFLY, RECIPE, jumok, well, write
from support.refusals import refused, write_recipe

pytestmark = pytest.mark.usefixtures("here")


def test_text_to_translate_that_is_not_utf8(reverser):
    said = refused("translate", reverser, stdin=b"\xff\xfe1\x00\n")
    assert said.startswith("standard input, line 1: byte 1 of the line (0xff) is not UTF-8")


def test_more_translations_than_the_beam_is_wide(reverser):
    said = refused("translate", reverser, "--beam", "2", "--n-best", "3", stdin="1\n")
    assert said == "n_best = 3, but the beam is 2 wide; n_best must lie between 1 and it"


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
    done = jumok(*command, option, WIDEST + 1)
    assert done.code == 2
    assert f"{option} must be a whole number from 1 to 1000, but it is " in done.err


def test_a_recipe_with_a_beam_that_would_take_minutes():
    said = refused("train", write_recipe(RECIPE + "\n[decoding]\nbeam = 1001\n"), "--out", "run")
    assert said.endswith("decoding.beam = 1001, but it can be at most 1000; 5 is usual")


def test_settings_of_the_search_are_looked_at_before_anything_is_read(reverser):
    assert refused("translate", reverser, "--beam", "2", "--n-best", "3").startswith("n_best = 3")


def test_a_file_to_translate_that_is_not_there(reverser):
    assert refused("translate", reverser, "--source", "none.txt") == "there is no file none.txt"


def test_a_text_or_a_file_behind_the_command_is_told_where_texts_come_from(reverser, tmp_path):
    write(tmp_path / "in.txt", "12\n")
    said = "there is no model folder '3 hours'; if that is a text: echo '3 hours' | jumok translate"
    assert refused("translate", "3 hours") == said
    assert refused("translate", 300 * "3 hours ").startswith("there is no model folder")
    said = "in.txt is a file, not a model folder; to translate it: jumok translate --source in.txt"
    assert refused("translate", "in.txt") == said
    said = f"there is no file 12; if that is a text: echo '12' | jumok translate {reverser}"
    assert refused("translate", reverser, "12") == said
    assert refused("translate", "-").startswith("- is not a model folder")
    assert "two files" in refused("translate", reverser, "in.txt", "--source", "other")


def test_maps_of_a_model_without_attention(tmp_path):
    recipe = write(tmp_path / "r.toml", RECIPE)
    well("train", recipe, "--out", "fixed", *BRIEFLY, "--set=decoder.attention=none")
    said = refused("translate", "fixed", "--attention", "maps", stdin="12\n")
    assert said == "this model has no attention: its decoder sees only a fixed context"


def test_maps_that_cannot_be_written(reverser, tmp_path):
    write(tmp_path / "text", "1\n")
    said = refused("translate", reverser, "--source", "text", "--attention", "text")
    assert said == "text is a file, not a folder; choose another folder"
    assert refused("translate", reverser, "--attention", "text/maps").startswith("text is a file, not a folder, so")


def test_a_zero_byte_in_the_text_is_not_translated_as_if_it_were_not_there(reverser):
    said = refused("translate", reverser, stdin=b"1\x002 3\n")
    assert said.startswith("standard input, line 1: byte 2 of the line is 0")


def test_an_image_for_a_model_that_reads_text_is_called_one(reverser, tmp_path):
    (tmp_path / "cat.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    assert refused("translate", reverser, "cat.png").startswith("cat.png is a PNG image, not text")
    said = refused("look", reverser, "cat.png")
    assert said.startswith(f"{reverser} translates text, but cat.png is a PNG image; images are for captioners")
    assert "<" not in said


@pytest.mark.parametrize("penalty", [-1000, 5.1])
def test_a_length_penalty_that_no_score_survives_is_blamed_not_the_weights(reverser, penalty):
    done = jumok("translate", reverser, f"--length-penalty={penalty}", stdin="1\n")
    assert (done.code, done.out) == (2, "")
    assert "--length-penalty must be a number from -5 to 5" in done.err
    recipe = write_recipe(RECIPE + f"\n[decoding]\nlength_penalty = {penalty}\n")
    said = refused("train", recipe, "--out", "run", "--device", "cpu")
    assert f"decoding.length_penalty = {float(penalty)} must lie between -5 and 5" in said


def test_maps_of_an_earlier_run_are_told_from_those_of_this_one(reverser):
    assert well("translate", reverser, "--attention", "maps", stdin="12\n34\n56\n").err == ""
    said = "maps also holds 2 maps of an earlier run, such as 0002.svg\n"
    assert well("translate", reverser, "--attention", "maps", stdin="12\n").err == said
    assert well("translate", reverser, "--attention", "maps", stdin="12\n34\n56\n").err == ""
