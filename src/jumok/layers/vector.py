"""A learnable vector, as the additive scores have one."""

import torch
from torch import nn


def small_vector(width: int) -> nn.Parameter:
    """`width` numbers drawn like the weights of a linear layer with one output."""
    bound = width**-0.5
    return nn.Parameter(torch.empty(width).uniform_(-bound, bound))
