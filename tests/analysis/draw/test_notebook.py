"""Maps and recordings display themselves in a notebook: safe, small, and in its colours."""

import re

import numpy as np
import torch

from jumok import AttentionMap, record
from jumok.analysis.maps.source_layout import ImageLayout
from jumok.layers import MultiHeadAttention


def some_map(targets=3, sources=4, layers=2, heads=3):
    words = [tuple(f"{side}{number}" for number in range(count)) for side, count in (("s", sources), ("t", targets))]
    return AttentionMap(*words, torch.rand(layers, heads, targets, sources).softmax(-1))


def test_a_map_shows_its_words_weights_and_every_head_without_scripts_or_links():
    html = some_map()._repr_html_()
    assert all(f">{word}</text>" in html for word in ("s0", "s3", "t0", "t2"))
    assert html.count("<figure") == 6
    assert "layer 1 · head 2" in html
    assert "<script" not in html
    assert not re.search(r"(src|href)=.(?!data:image/png)", html)


def test_words_are_text_and_never_markup():
    shown = AttentionMap(("<img src=x>",), ("</svg><b>",), torch.ones(1, 1, 1, 1))
    html = shown._repr_html_()
    assert "<img src=x>" not in html
    assert "</svg><b>" not in html
    assert "&lt;img src=x&gt;" in html


def test_colours_follow_the_theme_of_the_notebook_and_otherwise_of_the_screen():
    html = some_map()._repr_html_()
    for mark in (
        'data-jp-theme-light="false"',
        'data-jp-theme-light="true"',
        ".vscode-dark",
        "prefers-color-scheme:dark",
    ):
        assert mark in html
    assert html.count('class="on-dark"') == html.count('class="on-light"') == 6


def test_large_maps_stay_small():
    assert len(some_map(5, 5)._repr_html_()) < 30_000
    assert len(some_map(100, 100, 1, 1)._repr_html_()) < 200_000
    assert len(some_map(200, 200, 6, 8)._repr_html_()) < 500_000  # without small pictures of heads


def test_empty_maps_and_maps_of_images_display_too():
    assert "<svg" in AttentionMap((), (), torch.zeros(1, 1, 0, 0))._repr_html_()
    layout = ImageLayout(np.zeros((8, 8, 3), np.uint8), 2, 2)
    assert "<image" in AttentionMap(layout.names, ("red",), torch.full((1, 1, 1, 4), 0.25), layout=layout)._repr_html_()


def test_a_recording_shows_its_last_run_and_says_what_did_not_run():
    layer = MultiHeadAttention(width=8, heads=2)
    with record(layer) as recording:
        assert "did not run" in recording._repr_html_()
        layer(torch.randn(2, 3, 8))
    html = recording._repr_html_()
    assert "3 queries, 3 keys · sentence 0 of 2" in html
    assert html.count("<figure") == 2
