"""The learning rate of every step: a function of the step alone, so there is nothing to save."""

import math

from jumok.training.config import TrainingConfig


def learning_rate(step: int, config: TrainingConfig, *, width: int) -> float:
    """The learning rate of step 1, 2, ...; `width` is that of the model, which "noam" depends on."""
    if config.schedule == "noam":
        return noam(step, factor=config.learning_rate, warmup=config.warmup, width=width)
    if config.schedule == "inverse_sqrt":
        return inverse_sqrt(step, highest=config.learning_rate, warmup=config.warmup)
    if config.schedule == "cosine":
        return cosine(step, highest=config.learning_rate, warmup=config.warmup, steps=config.steps)
    return constant(step, highest=config.learning_rate, warmup=config.warmup)


def noam(step: int, *, factor: float, warmup: int, width: int) -> float:
    """factor · width^-0.5 · min(step^-0.5, step · warmup^-1.5), as in Vaswani et al. (2017)."""
    return inverse_sqrt(step, highest=factor * (width * max(warmup, 1)) ** -0.5, warmup=warmup)


def inverse_sqrt(step: int, *, highest: float, warmup: int) -> float:
    """Up in a line to `highest` at `warmup`, from there down with the square root of the step."""
    warmup = max(warmup, 1)
    return highest * min(step / warmup, math.sqrt(warmup / step))


def cosine(step: int, *, highest: float, warmup: int, steps: int) -> float:
    """Up in a line to `highest` at `warmup`, from there down half a wave to 0 at `steps`."""
    if step <= warmup:
        return highest * step / warmup
    fallen = min((step - warmup) / (steps - warmup), 1.0)
    return highest * 0.5 * (1 + math.cos(math.pi * fallen))


def constant(step: int, *, highest: float, warmup: int) -> float:
    """Up in a line to `highest` at `warmup`, and there it stays."""
    return highest * min(step / max(warmup, 1), 1.0)
