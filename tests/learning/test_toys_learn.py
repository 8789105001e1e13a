"""The smallest examples of learning, each in under a second: copying digits, and the neighbour that matters."""

import pytest
import torch
from torch.nn.functional import cross_entropy, pad

from jumok.graphs.layers import GraphAttentionV2
from jumok.models import (
    RnnDecoderConfig,
    RnnEncoderConfig,
    TransformerDecoderConfig,
    TransformerEncoderConfig,
    build_model,
)

BOS, FIRST, VOCABULARY, LENGTH = 1, 3, 8, 3
RNN = {"embedding": 16, "width": 32, "dropout": 0.0}
TRANSFORMER = {"width": 16, "heads": 2, "hidden": 32, "layers": 1, "dropout": 0.0}
CONFIGS = {
    "rnn": (RnnEncoderConfig(**RNN), RnnDecoderConfig(**RNN)),
    "transformer": (TransformerEncoderConfig(**TRANSFORMER), TransformerDecoderConfig(**TRANSFORMER)),
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_small_model_learns_to_copy_digits(kind):
    model = build_model(*CONFIGS[kind], source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.01), []
    for _ in range(60):
        digits = torch.randint(FIRST, VOCABULARY, (32, LENGTH))
        logits = model(digits, torch.ones_like(digits, dtype=torch.bool), pad(digits[:, :-1], (1, 0), value=BOS)).logits
        losses.append(cross_entropy(logits.flatten(0, 1), digits.flatten()))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.3 * losses[0]


def test_graph_attention_learns_which_neighbour_matters():
    """Every node sees two others, and its class is that of the one that is marked."""
    nodes = 64
    classes, marked = torch.randint(2, (nodes,)), torch.arange(nodes) % 2
    x = torch.stack([classes, 1 - classes, marked], 1).float()
    target = torch.arange(nodes).repeat(2)
    source = torch.cat([2 * torch.randint(nodes // 2, (nodes,)), 2 * torch.randint(nodes // 2, (nodes,)) + 1])
    labels, edges = classes[source[nodes:]], torch.stack([source, target])
    layer = GraphAttentionV2(in_width=3, out_width=2, self_loops=False)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        cross_entropy(layer(x, edges).values, labels).backward()
        optimizer.step()
    out = layer(x, edges)
    assert (out.values.argmax(1) == labels).float().mean() > 0.95
    assert out.weights()[nodes:].mean() > 0.5
