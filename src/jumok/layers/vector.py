"""A learnable vector, as the additive scores have one."""

import torch
from torch import nn

from jumok.errors import ConfigError


def small_vector(width: int) -> nn.Parameter:
    """`width` numbers drawn like the weights of a linear layer with one output."""
    if width < 1:
        raise ConfigError(f"the hidden layer of a score must be at least 1 wide, but it is {width}")
    bound = width**-0.5
    return nn.Parameter(torch.empty(width).uniform_(-bound, bound))
