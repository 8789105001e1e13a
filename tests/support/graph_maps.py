"""The map of a node made by hand: it looks at its neighbours, and they at theirs."""

import torch

from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.source_layout import GraphLayout


def example(names=("가", "나", "<b>다</b>", "라"), *, weights=None, predicted="b", classes=None) -> AttentionMap:
    """The first looks at the second and third in both layers; in the first layer these look at the fourth."""
    if weights is None:
        weights = torch.tensor(
            [
                [
                    [[0.2, 0.5, 0.3, 0.0], [0.4, 0.1, 0.0, 0.5], [0.1, 0.0, 0.2, 0.7]],
                    [[0.2, 0.3, 0.5, 0.0], [0.2, 0.3, 0.0, 0.5], [0.3, 0.0, 0.2, 0.5]],
                ],
                [
                    [[0.1, 0.8, 0.1, 0.0], [0.0] * 4, [0.0] * 4],
                    [[0.1, 0.6, 0.3, 0.0], [0.0] * 4, [0.0] * 4],
                ],
            ]
        )
    targets = weights.shape[2]
    place = GraphLayout(tuple(range(7, 7 + len(names))), tuple(classes or "abcd"), targets - 1, predicted, 0.75)
    return AttentionMap(tuple(names), tuple(names[:targets]), weights, layout=place, title=place.title(names[0]))
