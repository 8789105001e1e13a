"""A captioned image made by hand, each of whose words looks at one place."""

import numpy as np
import torch

from jumok.analysis.image_map import ImageMap

WORDS = ("작은", "<b>빨간</b>", "circle")
PLACES = [(0, 0), (1, 3), (2, 1)]


def example(height=60, width=80, words=WORDS, image=None) -> ImageMap:
    """Each word looks at one region of a 3 × 4 grid, and a little everywhere."""
    weights = torch.full((len(words), 3, 4), 0.02)
    for word, (row, column) in enumerate(PLACES[: len(words)]):
        weights[word, row, column] = 0.78
    image = np.random.default_rng(0).integers(150, 255, (height, width, 3), np.uint8) if image is None else image
    return ImageMap(image, words, weights)
