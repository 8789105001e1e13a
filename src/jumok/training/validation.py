"""The loss on held-out batches, part of what every validator returns."""

from collections.abc import Callable

import torch
from torch import nn

from jumok.training.loss import Loss, TargetTokens, batch_loss, perplexity
from jumok.training.objective import BatchSource
from jumok.training.processes import current_processes


@torch.no_grad()
def held_out_loss(
    model: nn.Module, batches: BatchSource, loss_of: Callable[..., Loss] = batch_loss
) -> dict[str, float]:
    """Loss per token and perplexity over one pass of `batches`.

    Several processes share the batches, and all of them get the sums over all.
    """
    total, count = current_processes().total(lambda: _loss_and_tokens(model, batches, loss_of))
    loss = total / max(count, 1)
    return {"loss": loss, "perplexity": perplexity(loss)}


def _loss_and_tokens(model: nn.Module, batches: BatchSource, loss_of: Callable[..., Loss]) -> tuple[float, int]:
    """The cross-entropy of this process's share of the batches, and how many tokens it has."""
    device = next(model.parameters()).device
    total, count = 0.0, 0
    for step in current_processes().share(range(batches.steps(0))):
        batch = batches.batch(0, step)
        tokens = TargetTokens.of(batch)
        total += float(loss_of(model, batch.to(device), tokens.to(device)).cross_entropy)
        count += len(tokens.ids)
    return total, count
