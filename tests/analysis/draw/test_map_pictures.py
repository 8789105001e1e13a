"""Pictures of maps: as they were, with the letters really drawn, at any size."""

import warnings
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch

from jumok.analysis import draw
from jumok.analysis.draw import fonts, heatmap, shapes
from jumok.analysis.draw.formats import drawing, to_bytes
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.errors import ArgumentError, FontError

pytest.importorskip("matplotlib")
from matplotlib import image

STORED = Path(__file__).with_name("pictures")


def example(layers: int = 2, heads: int = 2) -> AttentionMap:
    source, target = ("the", "big", "red", "house", "</s>"), ("la", "grande", "maison", "rouge", "</s>")
    places = torch.tensor([0, 1, 3, 2, 4])
    scores = torch.nn.functional.one_hot(places, 5).float() * torch.linspace(0.5, 6, layers * heads)[:, None, None]
    return AttentionMap(source, target, scores.softmax(-1).view(layers, heads, 5, 5))


def pixels(content: bytes) -> np.ndarray:
    return image.imread(BytesIO(content))[..., :3]


@pytest.mark.parametrize("name", ["single", "grid"])
def test_a_picture_is_as_it_was(name, bundled_fonts):
    drawn = pixels(to_bytes(replace(example(), title="A title"), "png", grid=name == "grid"))
    stored = image.imread(STORED / f"{name}.png")[..., :3]
    assert drawn.shape == stored.shape
    assert np.abs(drawn - stored).mean() < 0.01  # another version draws letters a little otherwise


def test_the_comparison_sees_a_map_turned_round():
    turned = example().select(layer=[1], head=[1])
    turned = AttentionMap(turned.source, turned.target, turned.weights.flip(2))
    one, other = (pixels(to_bytes(shown, "png")) for shown in (example(), turned))
    assert np.abs(one - other).mean() > 0.02


def labelled(word: str) -> np.ndarray:
    return pixels(to_bytes(AttentionMap(("x",), (word,), torch.ones(1, 1, 1, 1)), "png"))


def test_korean_is_drawn_where_no_font_is_installed(bundled_fonts, tmp_path):
    shown = AttentionMap(("Friday", "1988"), ("금요일", "ㅎㅏㄴ"), torch.eye(2)[None, None])
    for name in ("map.png", "map.pdf"):
        draw.save(shown, tmp_path / name)
    assert not np.array_equal(labelled("가"), labelled("나"))
    assert b"JumokSansKR" in (tmp_path / "map.pdf").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("words", ["가나", "한글", "漢字", "かな", "بت"])
def test_letters_are_drawn_and_not_boxes(words, monkeypatch):
    try:
        fonts.fonts_for([words])
    except FontError as error:
        pytest.skip(str(error))
    one, other = (labelled(word) for word in words)
    monkeypatch.setattr(shapes, "fonts_for", lambda texts: ["DejaVu Sans Mono"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # matplotlib tells of the boxes it draws
        box, other_box = (labelled(word) for word in words)
    assert not np.array_equal(one, other)
    if words in ("가나", "한글", "漢字", "かな"):  # DejaVu has Arabic, but none of these
        assert np.array_equal(box, other_box)
        assert not np.array_equal(one, box)


def test_short_labels_of_columns_stand_upright_and_long_ones_lean():
    source = ("ㄱ", "at", "words", "</s>")
    drawn = drawing(AttentionMap(source, ("x",), torch.full((1, 1, 1, 4), 0.25)))
    labels = [shape for shape in drawn.shapes if isinstance(shape, shapes.Label)]
    turned = {label.text: label.angle for label in labels if label.text in source}
    assert turned == {"ㄱ": 0, "at": 0, "words": 45, "</s>": 45}


def test_a_part_of_a_syllable_is_drawn_as_its_letter():
    assert np.array_equal(labelled("ᅡ"), labelled("ㅏ"))


def test_a_text_no_font_can_draw_is_refused_rather_than_drawn_in_boxes(tmp_path):
    with pytest.raises(FontError, match="no installed font can draw"):
        draw.save(AttentionMap(("\U000f0000",), ("x",), torch.ones(1, 1, 1, 1)), tmp_path / "map.png")
    assert not list(tmp_path.iterdir())


def test_arabic_without_a_matplotlib_that_joins_letters_is_refused(monkeypatch):
    from matplotlib import ft2font

    monkeypatch.delattr(ft2font, "__libraqm_version__", raising=False)
    with pytest.raises(FontError, match=r"cannot join Arabic letters .* save as \.svg or \.html"):
        labelled("كتاب")


def test_a_very_long_map_is_drawn_no_larger_than_a_wall(monkeypatch):
    monkeypatch.setattr(heatmap, "LONGEST_SIDE", 500.0)
    words = tuple(map(str, range(200)))
    drawn = pixels(to_bytes(AttentionMap(words, words, torch.eye(200)[None, None]), "png"))
    assert max(drawn.shape) < 7 * shapes.DPI
    assert np.abs(drawn[-200:, -200:] - 1).max() > 0.5  # the far corner of the diagonal is there, too


def test_too_many_panels_are_refused_in_words():
    shown = AttentionMap(tuple("ab" * 20), ("x",), torch.full((1, 100, 1, 40), 1 / 40))
    with pytest.raises(ArgumentError, match=r"too large; choose fewer layers or heads, or save as \.html"):
        to_bytes(shown, "png", grid=True)


def test_signs_of_mathematics_are_letters_like_others():
    labelled("$x_1$ \\frac")  # no formula, so nothing is wrong with it
    between, bare = labelled("$" + "x" * 40 + "$"), labelled("x" * 40)
    assert between.shape[1] > bare.shape[1]  # both signs take their room


def test_a_pdf_is_a_pdf_and_the_same_every_time():
    one, other = (to_bytes(example(), "pdf") for _ in range(2))
    assert one.startswith(b"%PDF")
    assert one == other


@pytest.mark.parametrize(
    ("words", "title"), [(2, ""), (2, "Hi → 안녕"), (5, "Friday, December 23, 1988 → 1988년 12월 23일 금요일")]
)
def test_the_matrix_of_a_short_text_is_a_good_part_of_its_paper(words, title):
    shown = AttentionMap(("hours,",) * words, ("시간",) * words, torch.ones(1, 1, words, words))
    drawn = pixels(to_bytes(replace(shown, title=title), "png"))
    darkest = np.array([0x0A, 0x3A, 0x78]) / 255
    assert (np.abs(drawn - darkest).max(-1) < 0.02).mean() > 0.17
    ink = (drawn < 0.99).any(-1)
    assert not ink[[0, -1]].any()
    assert not ink[:, [0, -1]].any()


@pytest.mark.parametrize("word", [">>de<<", ">>deu_Latn<<", ">>kor_Hang<<", "</s>", "talking"])
def test_labels_have_as_much_room_as_matplotlib_needs_for_them(word):
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    needed = TextPath((0, 0), word, size=heatmap.TEXT, prop=FontProperties(family=fonts.FIRST)).get_extents().width
    assert needed <= 1.03 * heatmap._longest([word], heatmap.TEXT)
