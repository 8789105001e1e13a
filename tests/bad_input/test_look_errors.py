"""What is wrong with a map that was asked for is one line."""

import sys

import numpy as np
import pytest
import torch

from jumok.analysis import draw
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.record import record
from jumok.analysis.maps.source_layout import TEXT, GraphLayout, ImageLayout
from jumok.errors import ArgumentError, DataError
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.rnn.encoder import RnnEncoder, RnnEncoderConfig
from jumok.models.transformer.decoder import TransformerDecoder, TransformerDecoderConfig
from jumok.models.transformer.encoder import TransformerEncoder, TransformerEncoderConfig
from support.commands import jumok
from support.refusals import names, refused, refuses

SIZES = {"width": 16, "heads": 2, "hidden": 24, "layers": 4}


def transformer() -> EncoderDecoder:
    encoder = TransformerEncoder(TransformerEncoderConfig(**SIZES), vocabulary=9)
    return EncoderDecoder(
        encoder, TransformerDecoder(TransformerDecoderConfig(**SIZES), vocabulary=9, encoder_width=16)
    )


def test_what_cannot_be_recorded_is_said():
    model = transformer()
    encoder = RnnEncoder(RnnEncoderConfig(width=8, embedding=6), vocabulary=9)
    for arguments, facts in (
        ((encoder,), "no attention layers"),
        ((model, [4]), "layers … 4"),
        ((model, None, ["self"]), "kinds … 'self' … encoder, decoder, cross"),
        ((model, None, "cross"), "kinds … list"),
    ):
        with refuses(ArgumentError, facts), record(*arguments):
            pass
    with record(model) as seen:
        pass
    for arguments, facts in (
        ((0,), "kind"),
        ((0, "attention"), "kind = 'attention'"),
        ((9, "cross"), "layer = 9 … 'cross' … 0, 1, 2, 3"),
        ((0, "cross"), "decoder.layers.0.cross … no recorded weights"),
    ):
        with refuses(ArgumentError, facts):
            seen.weights(*arguments)


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["12", "--out", "map.gif"], "map.gif … .png, .svg, .pdf, .html, .json"),
        ([""], 'the text is empty … "text"'),
        (["12", "--target", " "], "empty text"),
        (["123456 654321 12", "--target", "1"], "17 tokens … 14"),
        (["12", "--head", "1"], "head = 1 … 1"),
        (["12", "--layer", "-2"], "layer = -2 … 1"),
        (["12", "--target", 100_000 * "1"], "100001 tokens … 256"),
    ],
)
def test_what_cannot_be_shown_is_one_line(reverser, arguments, facts):
    names(refused("look", reverser, *arguments), facts)


def test_standard_input_without_a_line_says_what_to_write(reverser):
    for arguments in ([], ["-"]):
        names(refused("look", reverser, *arguments), 'standard input is empty … jumok look [MODEL] "text"')


def test_a_file_given_to_a_model_that_reads_text_is_not_translated_as_its_name(reverser, tmp_path, here):
    (tmp_path / "12.png").write_bytes(b"")
    names(refused("look", reverser, "12.png"), reverser, "12.png", "text")
    assert jumok("look", reverser, "12.svg").code == 0  # there is no such file: a text like any other


@pytest.mark.slow
def test_a_text_too_long_to_be_the_name_of_a_file_is_a_text(here):
    done = jumok("look", 100 * "Friday and ")
    assert done.code == 0
    assert "part 1 of " in done.out


@pytest.mark.slow
def test_a_model_without_attention_says_so_in_one_line(forgetful):
    assert refused("look", forgetful, "12") == "this model has no attention: its decoder sees only a fixed context"


def test_letters_no_font_has_leave_the_map_in_the_terminal_and_say_what_to_install(reverser, tmp_path):
    done = jumok("look", reverser, "12", "--target", "\U000f0000", "--words", "--out", tmp_path / "map.png")
    assert done.code == 1
    names(done.err, "font", "apt install")
    assert "12" in done.out
    assert not list(tmp_path.iterdir())


def test_translate_names_the_kinds_of_maps_there_are(reverser, tmp_path):
    said = refused("translate", reverser, "--attention", tmp_path, "--format", "../x", stdin="1\n")
    names(said, "--format '../x'", "png, svg, pdf, html, json, txt")


PIXELS = np.zeros((4, 4, 3), np.uint8)


@pytest.mark.parametrize(
    ("image", "facts"),
    [
        (np.zeros((4, 4), np.uint8), "[4, 4] of uint8"),
        (np.zeros((4, 4, 3)), "float64"),
        (np.zeros((0, 4, 3), np.uint8), "[0, 4, 3]"),
        ("cat.jpg", "str"),
    ],
)
def test_what_is_no_image_is_refused(image, facts):
    with refuses(ArgumentError, "image", facts):
        ImageLayout(image, 2, 2)


@pytest.mark.parametrize(
    ("weights", "facts"),
    [
        (torch.ones(1, 1, 3, 4), "[1, 1, 3, 4] … 2 target … 4 source"),
        (torch.ones(2, 4), "[layer, head, 2, 4]"),
        ([[1]], "list"),
        (torch.full((1, 1, 2, 4), torch.nan), "finite"),
        (-torch.ones(1, 1, 2, 4), "negative"),
    ],
)
def test_weights_that_do_not_fit_are_refused_wherever_the_sources_lie(weights, facts):
    for place in (TEXT, ImageLayout(PIXELS, 2, 2), GraphLayout((0, 1, 2, 3), ("a",) * 4, 1)):
        with refuses(ArgumentError, "weights", facts):
            AttentionMap(("a", "b", "c", "d"), ("x", "y"), weights, layout=place)


@pytest.mark.parametrize(
    ("place", "facts"),
    [
        (ImageLayout(PIXELS, 2, 3), "2 × 3 regions … 4"),
        (ImageLayout(PIXELS, -2, -2), "-2 × -2 regions"),
        (GraphLayout((0, 1, 2), ("a",) * 4, 1), "3 numbers … 4 classes"),
        (GraphLayout((0, 1, 2, 3), ("a",) * 4, 0), "1 to 3 neighbours … 0 neighbours"),
        (GraphLayout((0, 1, 2, 3), ("a",) * 4, 4), "1 to 3 neighbours … 4 neighbours"),
    ],
)
def test_a_place_that_does_not_fit_the_sources_is_refused(place, facts):
    with refuses(ArgumentError, facts):
        AttentionMap(("a", "b", "c", "d"), ("x", "y"), torch.ones(1, 1, 2, 4), layout=place)


@pytest.mark.parametrize(
    "place",
    [
        '{"kind": "cube"}',
        "7",
        "{}",
        '{"kind": "image", "rows": 1, "columns": 1, "image": "x"}',
        '{"kind": "image", "rows": 1, "columns": 1, "image": "aGVsbG8="}',
        '{"kind": "graph", "numbers": 3, "classes": [], "neighbours": 0}',
        '{"kind": "graph", "numbers": [3], "classes": ["a"]}',
    ],
)
def test_the_json_of_a_place_that_is_none_is_one_line(place):
    with refuses(DataError):
        AttentionMap.from_json(f'{{"source": ["a"], "target": ["x"], "weights": [[[[1]]]], "layout": {place}}}')


def image_map(words: int) -> AttentionMap:
    place = ImageLayout(PIXELS, 2, 2)
    return AttentionMap(place.names, ("a",) * words, torch.ones(1, 1, words, 4), layout=place)


def test_the_map_of_an_image_says_what_cannot_be_drawn(tmp_path):
    with refuses(ArgumentError, "look.gif", ".png"):
        draw.save(image_map(1), tmp_path / "look.gif")
    with refuses(ArgumentError, "2000 words"):
        draw.save(image_map(2000), tmp_path / "look.png")
    for kind in ("svg", "png"):
        with refuses(ArgumentError, "grid", "texts"):
            draw.save(image_map(1), tmp_path / f"look.{kind}", grid=True)


def test_a_model_that_is_not_there_is_said_before_what_it_should_look_at(tmp_path, here):
    (tmp_path / "runs").mkdir()
    (tmp_path / "picture.png").write_bytes(b"whatever it is")
    names(refused("look", "runs/typo"), "no model folder runs/typo", 'jumok look MODEL "text"')
    names(refused("look", "runs/typo", "picture.png"), "no model folder runs/typo")


def test_a_model_in_place_of_a_text_is_not_translated_as_its_name(reverser):
    names(refused("look", reverser, reverser), "is a model folder", '"text"')
    assert "quotes" not in refused("look", reverser, "runs/typo", "123")


def test_words_without_quotes_are_told_of_quotes():
    names(refused("look", "two", "days", "ago"), '"two days ago"')


@pytest.mark.parametrize("command", [["look", "two days ago", "--out", "a.png"], ["translate", "--format", "pdf"]])
def test_a_picture_that_needs_matplotlib_is_refused_before_anything_is_translated(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    fail = lambda *_, **__: pytest.fail("the work has begun")  # noqa: E731
    monkeypatch.setattr("jumok.tasks.translator.Translator.translate", fail)
    names(refused(*command), "matplotlib")


def test_a_kind_of_attention_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="kind = 'self' must be one of cross, encoder, decoder"):
        AttentionMap(("a",), ("b",), torch.ones(1, 1, 1, 1), kind="self")
    with pytest.raises(DataError, match="kind = 'self' must be one of"):
        AttentionMap.from_json('{"source": ["a"], "target": ["b"], "weights": [[[[1]]]], "kind": "self"}')
    assert "--kind must be cross or encoder or decoder" in jumok("look", "3 hours", "--kind", "self").err
