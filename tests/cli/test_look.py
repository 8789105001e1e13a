"""`jumok look`: the translation, and where each of its words looked."""

import json
import os
import subprocess
import sys
from unittest import mock

import pytest
import torch

from jumok import model_folder
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.errors import FontError
from jumok.tasks import TRANSLATION
from support.commands import jumok, well


def test_the_map_is_shown_below_the_translation(reverser):
    translation, heads, *rows, scale = well("look", reverser, "12 34", "--words").out.splitlines()
    assert translation == well("translate", reverser, stdin="12 34\n").out.strip()
    assert heads.split() == ["12", "34", "</s>"]
    assert [row.split()[0] for row in rows] == [*translation.split(), "</s>"]
    assert scale.split()[::2] == list("░▒▓█")
    assert "\x1b" not in "".join(rows)


def test_every_file_of_the_model_is_read_once(reverser, monkeypatch):
    read, files = model_folder.read_plain, []

    def counted(path, **limits):
        files.append(path.name)
        return read(path, **limits)

    monkeypatch.setattr(model_folder, "read_plain", counted)
    well("look", reverser, "12 34")
    assert {"recipe.toml", "model.safetensors"} <= set(files)
    assert len(files) == len(set(files))


def test_json_holds_the_weights_of_the_translator(transformer):
    found = json.loads(well("look", transformer, "27 18", "--json").out)
    (wanted,) = TRANSLATION.load(transformer, device="cpu").translate(["27 18"])
    assert (found["source"], found["text"]) == ("27 18", wanted.text)
    shown = AttentionMap.from_json(json.dumps(found["attention"]))
    torch.testing.assert_close(shown.weights, wanted.attention().weights, atol=1e-5, rtol=0)


def test_layers_and_heads_are_chosen(transformer):
    every = json.loads(well("look", transformer, "27", "--json").out)["attention"]
    one = json.loads(well("look", transformer, "27", "--json", "--layer", 1, "--head", -1).out)["attention"]
    assert one["weights"] == [[every["weights"][1][1]]]
    assert one["names"] == {"layers": ["1"], "heads": ["1"]}
    assert jumok("look", transformer, "27", "--layer", 2).err == (
        "jumok: layer = 2 does not exist; there are 2, counted from 0\n"
    )


def test_a_translation_can_be_given(reverser):
    found = json.loads(well("look", reverser, "12", "--target", "9 87", "--words", "--json").out)
    assert found["attention"]["target"] == ["9", "87", "</s>"]
    assert "score" not in found


def test_tokens_are_shown_instead_of_words(reverser):
    found = json.loads(well("look", reverser, "12 34", "--tokens", "--json").out)
    assert found["attention"]["source"] == ["▁", "1", "2", "▁", "3", "4", "</s>"]
    subwords = json.loads(well("look", "3 hours", "--tokens", "--json").out)
    assert len(subwords["attention"]["source"]) > 3  # "3", "hours" and the end


def test_a_model_of_letters_shows_tokens_unless_asked_for_words_and_one_of_subwords_words(reverser):
    letters, tokens = (well("look", reverser, "12 34", *more, "--json").out for more in ((), ("--tokens",)))
    assert letters == tokens
    words = json.loads(well("look", reverser, "12 34", "--words", "--json").out)["attention"]
    assert words["source"] == ["12", "34", "</s>"]
    assert words["tokens"]["source"] == json.loads(letters)["attention"]["source"]
    assert json.loads(well("look", "3 hours", "--json").out)["attention"]["source"] == ["3", "hours", "</s>"]


def test_the_map_is_written_in_every_form_asked_for(reverser, tmp_path):
    paths = [tmp_path / f"map.{kind}" for kind in ("svg", "html", "json", "png")]
    done = well("look", reverser, "12 34", "--words", *(part for path in paths for part in ("--out", path)))
    assert done.err == "".join(f"wrote {path}\n" for path in paths)
    assert AttentionMap.from_json(paths[2].read_text(encoding="utf-8")).source == ("12", "34", "</s>")


def test_a_text_translated_in_parts_has_a_map_for_each(reverser, tmp_path):
    text, more = "123456 654321", ["--words", "--max-source", 7, "--out", tmp_path / "map.json"]
    done = well("look", reverser, text, *more)
    assert done.err == f"wrote {tmp_path}/map-1.json\nwrote {tmp_path}/map-2.json\n"
    second = AttentionMap.from_json((tmp_path / "map-2.json").read_text(encoding="utf-8"))
    assert second.source == ("654321", "</s>")
    assert second.title.startswith("654321 → ")
    assert [line for line in done.out.splitlines() if line.startswith("part ")] == ["part 1 of 2", "part 2 of 2"]
    found = json.loads(well("look", reverser, text, *more, "--json").out)
    assert [part["source"] for part in found["parts"]] == [["123456", "</s>"], ["654321", "</s>"]]


def test_a_sentence_longer_than_those_of_training_has_one_map_and_a_warning(reverser):
    done = well("look", reverser, "123456 654321", "--words")
    assert done.out.splitlines()[1].split() == ["123456", "654321", "</s>"]
    assert done.err.startswith("a sentence of 14 tokens was translated whole")


def test_the_text_may_come_from_standard_input(reverser):
    assert well("look", reverser, stdin="12 34\nmore\n").out == well("look", reverser, "12 34").out


@pytest.mark.parametrize(
    ("settings", "coloured"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
    ids=["colour", "no-color", "dumb"],
)
def test_a_terminal_gets_colours_unless_it_cannot_or_nobody_wants_them(reverser, settings, coloured, monkeypatch):
    given = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "NO_COLOR": "", "FORCE_COLOR": ""} | settings
    for name, value in given.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
    with mock.patch("rich.console.Console.is_terminal", True):
        out = well("look", reverser, "12 34").out
    assert ("\x1b[" in out and "48;2;" in out) == coloured
    assert ("█" in out) != coloured


def test_what_cannot_be_drawn_does_not_keep_the_rest_from_being_written(tmp_path, monkeypatch):
    def no_font(*_, **__):
        raise FontError("no installed font can draw it")

    monkeypatch.setattr("jumok.analysis.draw.shapes.fonts_for", no_font)
    done = jumok("look", "3 hours, 25 minutes", "--out", tmp_path / "a.png", "--out", tmp_path / "a.html")
    assert done.code == 1
    assert done.err.splitlines()[-1] == "jumok: no installed font can draw it"
    assert (tmp_path / "a.html").exists()
    assert not (tmp_path / "a.png").exists()


@pytest.mark.long
def test_the_map_is_written_though_nobody_reads_the_answer(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "jumok", "look", "May 5, 2021", "--json", "--out", str(tmp_path / "map.json")]
    with os.fdopen(writer, "wb") as gone:
        subprocess.run(command, stdout=gone, stderr=subprocess.DEVNULL, check=False)
    assert (tmp_path / "map.json").exists()
