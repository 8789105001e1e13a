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

SIZES = {"width": 16, "heads": 2, "hidden": 24, "layers": 4}


def transformer() -> EncoderDecoder:
    encoder = TransformerEncoder(TransformerEncoderConfig(**SIZES), vocabulary=9)
    return EncoderDecoder(
        encoder, TransformerDecoder(TransformerDecoderConfig(**SIZES), vocabulary=9, encoder_width=16)
    )


def test_what_cannot_be_recorded_is_said():
    model = transformer()
    encoder = RnnEncoder(RnnEncoderConfig(width=8, embedding=6), vocabulary=9)
    for arguments, message in (
        ((encoder,), "no attention layers"),
        ((model, [4]), "layers contains 4, but there are 4, counted from 0"),
        ((model, None, ["self"]), "kinds contains 'self', but this model has encoder, decoder, cross"),
        ((model, None, "cross"), "kinds must be a list"),
    ):
        with pytest.raises(ArgumentError, match=message), record(*arguments):
            pass
    with record(model) as seen:
        pass
    for arguments, message in (
        ((0,), "several kinds of attention were recorded; set kind"),
        ((0, "attention"), "kind = 'attention' was not recorded"),
        ((9, "cross"), "layer = 9 of kind 'cross' must be one of the recorded layers: 0, 1, 2, 3"),
        ((0, "cross"), r"decoder\.layers\.0\.cross has no recorded weights"),
    ):
        with pytest.raises(ArgumentError, match=message):
            seen.weights(*arguments)


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory):
    """A model without attention."""
    from support.commands import BRIEFLY, RECIPE, well, write

    folder = tmp_path_factory.mktemp("fixed")
    recipe = RECIPE.replace("[decoder]\n", '[decoder]\nattention = "none"\n')
    well("train", write(folder / "fixed.toml", recipe), "--out", folder / "model", "--device", "cpu", *BRIEFLY)
    return folder / "model"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["12", "--out", "map.gif"], "map.gif should end in one of .png, .svg, .pdf, .html, .json"),
        ([""], "there is no attention map of an empty text"),
        (["12", "--target", " "], "there is no attention map of an empty text"),
        (["123456 654321 12", "--target", "1"], "the text has 17 tokens, more than the 14 the model reads at once"),
        (["12", "--head", "1"], "head = 1 does not exist; there are 1, counted from 0"),
        (["12", "--layer", "-2"], "layer = -2 does not exist; there are 1, counted from 0"),
        (["12", "--target", 100_000 * "1"], "the target has 100001 tokens, more than the 256 the model writes at most"),
    ],
)
def test_what_cannot_be_shown_is_one_line(reverser, arguments, said):
    done = jumok("look", reverser, *arguments)
    assert done.code == 1
    assert done.err.startswith(f"jumok: {said}")
    assert done.err.count("\n") == 1
    assert done.out == ""


def test_a_file_given_to_a_model_that_reads_text_is_not_translated_as_its_name(reverser, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "12.png").write_bytes(b"")
    done = jumok("look", reverser, "12.png")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"jumok: {reverser} translates text, but 12.png is a file; give the text itself")
    assert done.err.count("\n") == 1
    assert jumok("look", reverser, "12").code == 0
    assert jumok("look", reverser, "12.svg").code == 0  # there is no such file: a text like any other


def test_a_text_too_long_to_be_the_name_of_a_file_is_a_text(here):
    done = jumok("look", 100 * "Friday and ")
    assert done.code == 0
    assert "part 1 of " in done.out


@pytest.mark.slow
def test_a_model_without_attention_says_so_in_one_line(forgetful):
    done = jumok("look", forgetful, "12")
    assert (done.code, done.out) == (1, "")
    assert done.err == "jumok: this model has no attention: its decoder sees only a fixed context\n"


def test_letters_no_font_has_leave_the_map_in_the_terminal_and_say_what_to_install(reverser, tmp_path):
    done = jumok("look", reverser, "12", "--target", "\U000f0000", "--out", tmp_path / "map.png")
    assert done.code == 1
    assert done.err.startswith("jumok: no installed font can draw")
    assert "apt install" in done.err
    assert "12" in done.out
    assert not list(tmp_path.iterdir())


def test_translate_names_the_kinds_of_maps_there_are(reverser, tmp_path):
    done = jumok("translate", reverser, "--attention", tmp_path, "--format", "../x", stdin="1\n")
    assert done.code == 1
    assert done.err == "jumok: --format '../x' is not a format of maps; choose one of png, svg, pdf, html, json, txt\n"


PIXELS = np.zeros((4, 4, 3), np.uint8)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((4, 4), np.uint8), r"image must be .* but it is \[4, 4\] of uint8"),
        (np.zeros((4, 4, 3)), "image must be .* of float64"),
        (np.zeros((0, 4, 3), np.uint8), r"image must be .* \[0, 4, 3\]"),
        ("cat.jpg", "image must be .* but it is str"),
    ],
)
def test_what_is_no_image_is_refused(image, message):
    with pytest.raises(ArgumentError, match=message):
        ImageLayout(image, 2, 2)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (torch.ones(1, 1, 3, 4), r"weights are \[1, 1, 3, 4\], but there are 2 target and 4 source tokens"),
        (torch.ones(2, 4), r"wanted \[layer, head, 2, 4\]"),
        ([[1]], "weights are list"),
        (torch.full((1, 1, 2, 4), torch.nan), "weights must be finite and not negative"),
        (-torch.ones(1, 1, 2, 4), "weights must be finite and not negative"),
    ],
)
@pytest.mark.parametrize("place", [TEXT, ImageLayout(PIXELS, 2, 2), GraphLayout((0, 1, 2, 3), ("a",) * 4, 1)])
def test_weights_that_do_not_fit_are_refused_wherever_the_sources_lie(weights, message, place):
    with pytest.raises(ArgumentError, match=message):
        AttentionMap(("a", "b", "c", "d"), ("x", "y"), weights, layout=place)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (ImageLayout(PIXELS, 2, 3), "an image of 2 × 3 regions needs as many sources, but there are 4"),
        (ImageLayout(PIXELS, -2, -2), "an image of -2 × -2 regions"),
        (GraphLayout((0, 1, 2), ("a",) * 4, 1), "there are 3 numbers, 4 classes"),
        (GraphLayout((0, 1, 2, 3), ("a",) * 4, 0), "1 to 3 neighbours, .* 0 neighbours"),
        (GraphLayout((0, 1, 2, 3), ("a",) * 4, 4), "1 to 3 neighbours, .* 4 neighbours"),
    ],
)
def test_a_place_that_does_not_fit_the_sources_is_refused(place, message):
    with pytest.raises(ArgumentError, match=message):
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
    with pytest.raises(DataError) as caught:
        AttentionMap.from_json(f'{{"source": ["a"], "target": ["x"], "weights": [[[[1]]]], "place": {place}}}')
    assert "\n" not in str(caught.value)


def image_map(words: int) -> AttentionMap:
    place = ImageLayout(PIXELS, 2, 2)
    return AttentionMap(place.names, ("a",) * words, torch.ones(1, 1, words, 4), layout=place)


def test_the_map_of_an_image_says_what_cannot_be_drawn(tmp_path):
    with pytest.raises(ArgumentError, match=r"look\.gif should end in one of \.png"):
        draw.save(image_map(1), tmp_path / "look.gif")
    with pytest.raises(ArgumentError, match="2000 words are too many for one picture"):
        draw.save(image_map(2000), tmp_path / "look.png")
    for kind in ("svg", "png"):
        with pytest.raises(ArgumentError, match="a grid of layers and heads shows maps of texts only"):
            draw.save(image_map(1), tmp_path / f"look.{kind}", grid=True)


def test_a_forgotten_text_is_not_a_text_to_look_at(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    done = jumok("look", "runs/typo")
    assert done.code == 1
    assert 'there is no model folder runs/typo; to look at a text: jumok look MODEL "text"' in done.err


def test_a_model_that_is_not_there_is_said_before_what_it_should_look_at(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "picture.png").write_bytes(b"whatever it is")
    assert "there is no model folder runs/typo" in jumok("look", "runs/typo", "picture.png").err


def test_words_without_quotes_are_told_of_quotes():
    done = jumok("look", "two", "days", "ago")
    assert (done.code, done.out) == (2, "")
    assert 'put a text of several words in quotes: "two days ago"' in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("command", [["look", "two days ago", "--out", "a.png"], ["translate", "--format", "pdf"]])
def test_a_picture_that_needs_matplotlib_is_refused_before_anything_is_translated(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("jumok.tasks.translator.Translator.load", lambda *_, **__: pytest.fail("the work has begun"))
    done = jumok(*command)
    assert (done.code, done.out) == (1, "")
    assert "needs matplotlib" in done.err
