"""AdamW, the learning rate of every step, and a moving average of the weights."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from jumok.models.weights import laid_out_as
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
    """Linear warm-up to `highest` at `warmup`, then decay with the inverse square root of the step."""
    warmup = max(warmup, 1)
    return highest * min(step / warmup, math.sqrt(warmup / step))


def cosine(step: int, *, highest: float, warmup: int, steps: int) -> float:
    """Linear warm-up to `highest` at `warmup`, then cosine decay to 0 at `steps`."""
    if step <= warmup:
        return highest * step / warmup
    fallen = min((step - warmup) / (steps - warmup), 1.0)
    return highest * 0.5 * (1 + math.cos(math.pi * fallen))


def constant(step: int, *, highest: float, warmup: int) -> float:
    """Linear warm-up to `highest` at `warmup`, then constant."""
    return highest * min(step / max(warmup, 1), 1.0)


MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def make_optimiser(model: nn.Module, config: TrainingConfig) -> AdamW:
    """AdamW whose weight decay reaches matrices only, not biases, norms or embeddings (Loshchilov & Hutter 2019)."""
    tables = {id(table) for module in model.modules() for table in _tables(module)}
    decayed: list[Tensor] = []
    spared: list[Tensor] = []
    for parameter in trained(model).values():
        (spared if parameter.ndim < 2 or id(parameter) in tables else decayed).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": spared, "weight_decay": 0.0},
    ]
    # One kernel over all weights, which can also leave them alone without anyone waiting to know.
    optimiser = AdamW([group for group in groups if group["params"]], betas=config.betas, eps=1e-8, fused=True)
    for group in optimiser.param_groups:
        device = group["params"][0].device
        if device.type == "cuda":  # where a recorded step can read the rate of the day
            group["lr"] = torch.full((), float(group["lr"]), device=device)
    return optimiser


def trained(model: nn.Module) -> dict[str, Tensor]:
    """The parameters that learn, each once, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def moments(model: nn.Module, optimiser: AdamW) -> dict[str, Tensor]:
    """The state of the optimiser for every weight, by names such as "exp_avg/encoder.table"."""
    return {
        f"{moment}/{name}": optimiser.state[parameter][moment]
        for name, parameter in trained(model).items()
        if parameter in optimiser.state
        for moment in MOMENTS
    }


def load_moments(model: nn.Module, optimiser: AdamW, tensors: dict[str, Tensor]) -> None:
    """Put back what `moments` gave."""
    weights = trained(model)
    names = {id(parameter): name for name, parameter in weights.items()}
    order = [names[id(parameter)] for group in optimiser.param_groups for parameter in group["params"]]
    state = {
        number: {moment: _laid_out(weights[name], tensors[f"{moment}/{name}"]) for moment in MOMENTS}
        for number, name in enumerate(order)
        if f"step/{name}" in tensors
    }
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def _laid_out(weight: Tensor, moment: Tensor) -> Tensor:
    """A moment as the weight is laid out over processes; the number of steps is the same in all."""
    return laid_out_as(weight, moment) if moment.shape == weight.shape else moment


def set_rate(optimiser: AdamW, rate: float) -> None:
    """The learning rate of the next step."""
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


@torch.no_grad()
def update(optimiser: AdamW, *, clip: float) -> tuple[Tensor, Tensor]:
    """Update the weights; returns the norm of the gradient, and 1.0 if it was not finite and the update was skipped."""
    parameters = [weight for group in optimiser.param_groups for weight in group["params"] if weight.grad is not None]
    norm = nn.utils.get_total_norm([weight.grad for weight in parameters], foreach=True)
    if hasattr(norm, "full_tensor"):  # of gradients that processes keep in parts
        norm = norm.full_tensor()
    # The fused kernel divides the gradient by this as it reads it; clipping it first would take another pass.
    divides = bool(clip) and norm.device.type in ("cuda", "cpu")
    optimiser.grad_scale = ((norm + 1e-6) / clip).clamp(min=1.0) if divides else None  # type: ignore[attr-defined]
    if clip and not divides:
        nn.utils.clip_grads_with_norm_(parameters, clip, norm, foreach=True)
    broken = (~norm.isfinite()).to(torch.float32)
    # The fused kernel looks at this itself; asking here would make a GPU wait every step.
    optimiser.found_inf = broken  # type: ignore[attr-defined]
    optimiser.step()
    return norm, broken


def _tables(module: nn.Module) -> list[Tensor]:
    """The weights of this module that are looked up rather than multiplied by; our own layers call them `table`."""
    if isinstance(module, nn.Embedding):
        return [module.weight]
    return [weight for name, weight in module.named_parameters(recurse=False) if name == "table"]


class MovingAverage:
    """average(n) = d · average(n-1) + (1 - d) · weights(n), with d = min(decay, (1 + n) / (10 + n)).

    The smaller d of the first steps forgets the random initial weights.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.average = {name: weight.detach().clone() for name, weight in trained(model).items()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Take in the weights after step 1, 2, ..."""
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.average.values()), list(trained(model).values()), 1 - decay)

    @contextmanager
    def in_place(self, model: nn.Module) -> Iterator[None]:
        """Use the average as the weights of the model until the block ends."""
        weights = trained(model)
        own = {name: weight.detach().clone() for name, weight in weights.items()}
        try:
            copy_weights(weights, self.average)
            yield
        finally:
            copy_weights(weights, own)


@torch.no_grad()
def copy_weights(weights: dict[str, Tensor], values: dict[str, Tensor]) -> None:
    """Write values into the weights of the same names."""
    for name, weight in weights.items():
        weight.copy_(values[name])
