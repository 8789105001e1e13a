"""How much of the gradient of the loss reaches each source token, by its distance from the end of the source."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from jumok.analysis.draw.chart import Axis, Curve, LineChart, Point
from jumok.data import Batch, Pair, TokenizerPair, collate
from jumok.errors import ArgumentError
from jumok.models.encoder_decoder import EncoderDecoder

ROWS = 16
"""Sentences per batch."""
EVERY = 5
"""Distances per point of the curve."""
FEWEST = 5
"""Minimum number of sentences for a point."""
Ends = Literal["both", "last"]


@dataclass(frozen=True)
class GradientReach:
    """The gradient at a distance from the end of the source, relative to the mean over the tokens of a sentence."""

    nearest: int
    """Smallest number of tokens between the source token and the end."""
    farthest: int
    tokens: int
    share: float
    low: float
    high: float


def source_gradients(model: EncoderDecoder, batch: Batch) -> Float[Tensor, "batch source"]:
    """Return ‖∂L/∂xᵢ‖ for the input vector xᵢ of every source token; L is the sum of −log p over the target tokens.

    xᵢ includes positions and the scale of the embedding. Dropout is off.
    """
    was_training = model.training
    model.eval()
    try:
        # cuDNN's recurrences have no backward pass outside training, where dropout would be on.
        with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
            vectors, loss = _loss_from_vectors(model, batch)
            (gradient,) = torch.autograd.grad(loss, vectors)
    finally:
        model.train(was_training)
    norms: Tensor = gradient.float().norm(dim=-1)
    return norms


def _loss_from_vectors(model: EncoderDecoder, batch: Batch) -> tuple[Tensor, Tensor]:
    """The vectors of the source tokens as the encoder sees them, cut from their table, and the loss they lead to."""
    leaves: list[Tensor] = []

    def cut(_module: nn.Module, _ids: tuple[Tensor, ...], vectors: Tensor) -> Tensor:
        leaves.append(vectors.detach().requires_grad_())
        return leaves[0]

    # Only while encoding: a decoder may share the table.
    handle = model.encoder.embedding.register_forward_hook(cut)
    try:
        encoding = model.encoder(batch.source, batch.source_visible)
    finally:
        handle.remove()
    logits = model.decoder(encoding, batch.target_in).logits
    loss = F.cross_entropy(
        logits[batch.target_visible].float(), batch.target_out[batch.target_visible], reduction="sum"
    )
    return leaves[0], loss


def batches_of(
    tokenizers: TokenizerPair, sources: Sequence[str], references: Sequence[str], *, shortest: int, most: int
) -> Iterator[Batch]:
    """The first `most` pairs whose source has `shortest` tokens or more, those of like length together."""
    encoded = (
        tokenizers.encode(Pair(source, reference)) for source, reference in zip(sources, references, strict=True)
    )
    rows = sorted(islice((row for row in encoded if len(row[0]) >= shortest + 2), most), key=lambda row: len(row[0]))
    for start in range(0, len(rows), ROWS):
        yield collate(rows[start : start + ROWS])


def relative_gradients(model: EncoderDecoder, batches: Iterable[Batch]) -> Iterator[Float[np.ndarray, "_"]]:
    """For each sentence, the gradient at its tokens over their mean; the mark of its end is left out."""
    device = next(model.parameters()).device
    for batch in batches:
        norms = source_gradients(model, batch.to(device)).cpu().numpy()
        for row, length in zip(norms, batch.source_visible.sum(1).tolist(), strict=True):
            words = row[: length - 1].astype(float)
            if len(words) and words.mean() > 0:
                yield words / words.mean()


def reach_by_distance(
    sentences: Sequence[Float[np.ndarray, "_"]],
    *,
    ends: Ends = "both",
    every: int = EVERY,
    shortest: int = 2,
    seed: int = 12345,
) -> list[GradientReach]:
    """The mean share at each distance from an end, with the interval 95% of resampled sets of sentences fall into.

    An encoder that reads both ways ends at "both" ends of the source, one that reads forwards at the "last" token.
    Only sentences of at least `shortest` tokens count: in a mean over all, what is far is far in long ones only.
    """
    chosen = [sentence for sentence in sentences if len(sentence) >= shortest]
    if not chosen:
        raise ArgumentError(f"no source has {shortest} tokens or more; lower `shortest=`, or join sentences")
    distances = [_distances(len(sentence), ends) // every for sentence in chosen]
    draws = np.random.default_rng(seed).integers(len(chosen), size=(1000, len(chosen)))
    reaches = []
    for number in range(1 + max(int(distance.max()) for distance in distances)):
        inside = [sentence[distance == number] for sentence, distance in zip(chosen, distances, strict=True)]
        sums, counts = np.array([part.sum() for part in inside]), np.array([len(part) for part in inside])
        if (counts > 0).sum() >= FEWEST:
            spread = sums[draws].sum(1) / np.maximum(counts[draws].sum(1), 1)
            low, high = np.percentile(spread, [2.5, 97.5])
            share, nearest = sums.sum() / counts.sum(), number * every
            reaches.append(
                GradientReach(nearest, nearest + every - 1, int(counts.sum()), float(share), float(low), float(high))
            )
    if not reaches:
        raise ArgumentError(
            f"only {len(chosen)} of the sources have {shortest} tokens or more, and a mean needs {FEWEST}; lower "
            "`shortest=`, or join sentences"
        )
    return reaches


def _distances(length: int, ends: Ends) -> Int[np.ndarray, " source"]:
    """Return the number of tokens between each token and the end."""
    back = np.arange(length)[::-1]
    return back if ends == "last" else np.minimum(back, back[::-1])


def reach_curves(reaches: dict[str, list[GradientReach]], *, title: str, ends: Ends = "both") -> list[LineChart]:
    """Return a curve for each model; at 1, a token gets as much gradient as the average token of its sentence."""
    curves = [Curve(name, [_point(reach) for reach in curve]) for name, curve in reaches.items()]
    end = "the nearer end" if ends == "both" else "the end"
    across = Axis(f"tokens between a source token and {end} of the source")
    return [LineChart(curves, across, Axis("share of the gradient (1 is even)", log=True), title)]


def _point(reach: GradientReach) -> Point:
    hint = (
        f"{reach.nearest}–{reach.farthest} tokens from the end, {reach.share:.3g} [{reach.low:.3g}, {reach.high:.3g}]"
    )
    return Point((reach.nearest + reach.farthest) / 2, reach.share, reach.low, reach.high, hint)
