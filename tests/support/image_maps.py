"""A captioned image made by hand, each of whose words looks at one place."""

import numpy as np
import torch

from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.source_layout import ImageLayout

WORDS = ("작은", "<b>빨간</b>", "circle")
PLACES = [(0, 0), (1, 3), (2, 1)]


def example(height=60, width=80, words=WORDS, image=None, layers=1, heads=1) -> AttentionMap:
    """Each word looks at one region of a 3 × 4 grid, and a little everywhere; in other heads at the next region."""
    weights = torch.full((layers, heads, len(words), 3, 4), 0.02)
    for word, (row, column) in enumerate(PLACES[: len(words)]):
        for number in range(layers * heads):
            weights[number // heads, number % heads, word, row, (column + number) % 4] = 0.78
    image = np.random.default_rng(0).integers(150, 255, (height, width, 3), np.uint8) if image is None else image
    place = ImageLayout(image, 3, 4)
    return AttentionMap(place.names, tuple(words), weights.flatten(-2), layout=place, title=" ".join(words))
