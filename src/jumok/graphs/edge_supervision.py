"""Supervised attention: the scores of a layer learn which nodes share an edge (SuperGAT, Kim and Oh 2021).

Every step samples some edges, and pairs of nodes without one. With the score s of a pair, averaged over the heads,
each layer adds the mean binary cross-entropy of the pairs:

    loss = 1 / (|E| + |N|) · ( Σ_{edges E} -log σ(s) + Σ_{pairs N without edge} -log(1 - σ(s)) )

s is the score before the softmax; in SuperGAT it is the product of the two node vectors (graphs/layers.py).
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from jumok.graphs.edges import EdgeWeights


class NodePairs(NamedTuple):
    """Pairs of nodes, and which of them are edges."""

    ends: Int[Tensor, "2 pair"]
    """Sources and targets."""
    linked: Float[Tensor, " pair"]
    """1 for an edge, 0 for a pair without one."""


def sample_pairs(edge_index: Int[Tensor, "2 edge"], nodes: int, *, share: float, negatives: float) -> NodePairs:
    """A random `share` of the edges, and for each of them on average up to `negatives` pairs without an edge.

    Pairs that turn out to be edges or loops are left out, so a dense graph has fewer.
    """
    edges = edge_index.shape[1]
    positive = edge_index[:, torch.rand(edges, device=edge_index.device) < share]
    count = round(share * negatives * edges)
    drawn = torch.randint(nodes, (2, count), device=edge_index.device, dtype=edge_index.dtype)
    known = torch.isin(_keys(drawn, nodes), _keys(edge_index, nodes)) | (drawn[0] == drawn[1])
    negative = drawn[:, ~known]
    linked = torch.cat([torch.ones(positive.shape[1]), torch.zeros(negative.shape[1])])
    return NodePairs(torch.cat([positive, negative], dim=1), linked.to(edge_index.device))


def edge_loss(attention: Sequence[EdgeWeights], pairs: NodePairs) -> Float[Tensor, ""]:
    """How badly the scores of the layers tell edges from other pairs: the sum of the layers' cross-entropies.

    >>> weights = EdgeWeights(build=lambda: torch.ones(1, 1), edges=1, nodes=2, pair_scores=lambda ends: 9.0 * ends.T)
    >>> round(edge_loss([weights], NodePairs(torch.tensor([[0, 1], [0, 1]]), torch.tensor([0.0, 1.0]))).item(), 4)
    0.3466
    """
    losses = [_cross_entropy(layer, pairs) for layer in attention]
    return torch.stack(losses).sum()


def _cross_entropy(layer: EdgeWeights, pairs: NodePairs) -> Float[Tensor, ""]:
    assert layer.pair_scores is not None
    scores = layer.pair_scores(pairs.ends).float().mean(-1)
    losses = F.binary_cross_entropy_with_logits(scores, pairs.linked, reduction="sum")
    return losses / max(len(scores), 1)  # a graph without edges has no pairs


def _keys(pairs: Int[Tensor, "2 pair"], nodes: int) -> Int[Tensor, " pair"]:
    """A number for each pair, another one for every other pair."""
    return pairs[0].long() * nodes + pairs[1]
