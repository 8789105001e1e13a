"""The position-wise feed-forward network: the same two layers at every position."""

from collections.abc import Callable
from typing import Literal, get_args

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from jumok.attention.arguments import check_probabilities, check_sizes
from jumok.errors import ArgumentError
from jumok.layers.checks import check_kind

Activation = Literal["relu", "gelu", "silu", "swiglu"]

_CURVES: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "swiglu": F.silu}


class FeedForward(nn.Module):
    """W₂ activation(W₁ x + b₁) + b₂, as in Vaswani et al. (2017); dropout falls on the hidden layer.

    "swiglu" is gated (Shazeer, 2020): W₂ (silu(W_g x + b_g) ⊙ (W₁ x + b₁)) + b₂, with half as many weights again.
    """

    def __init__(self, *, width: int, hidden: int, activation: Activation = "relu", dropout: float = 0.0) -> None:
        super().__init__()
        if activation not in _CURVES:
            raise ArgumentError(f'activation = "{activation}"; wanted one of {", ".join(get_args(Activation))}')
        width, hidden = check_sizes(width=width, hidden=hidden)
        check_probabilities(dropout=dropout)
        self.width, self.activation = width, activation
        self.to_hidden = nn.Linear(width, hidden)
        self.to_gate = nn.Linear(width, hidden) if activation == "swiglu" else None
        self.to_output = nn.Linear(hidden, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "*lead width"]) -> Float[Tensor, "*lead width"]:
        """Transform every position on its own."""
        if x.shape[-1:] != (self.width,):
            raise ArgumentError(f"x is {list(x.shape)}; wanted [..., width] with width = {self.width}")
        check_kind("x", x, self.to_hidden.weight)
        curve = _CURVES[self.activation]
        hidden = self.to_hidden(x)
        hidden = curve(hidden) if self.to_gate is None else curve(self.to_gate(x)) * hidden
        output: Tensor = self.to_output(self.dropout(hidden))
        return output
