"""The position-wise feed-forward network of a Transformer layer."""

from collections.abc import Callable
from typing import Literal

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from jumok.attention.checks import check_choice, check_probabilities, check_sizes

Activation = Literal["relu", "gelu", "silu", "swiglu"]

_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "swiglu": F.silu}


class FeedForward(nn.Module):
    """W₂ activation(W₁ x + b₁) + b₂ (Vaswani et al. 2017), with dropout on the hidden layer.

    "swiglu" is gated (Shazeer 2020): W₂ (silu(W_g x + b_g) ⊙ (W₁ x + b₁)) + b₂, with half as many weights again.
    """

    def __init__(self, *, width: int, hidden: int, activation: Activation = "relu", dropout: float = 0.0) -> None:
        super().__init__()
        check_choice("activation", activation, _FUNCTIONS)
        width, hidden = check_sizes(width=width, hidden=hidden)
        check_probabilities(dropout=dropout)
        self.width, self.activation = width, activation
        self.to_hidden = nn.Linear(width, hidden)
        self.to_gate = nn.Linear(width, hidden) if activation == "swiglu" else None
        self.to_output = nn.Linear(hidden, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "*lead width"]) -> Float[Tensor, "*lead width"]:
        """Transform every position independently."""
        function = _FUNCTIONS[self.activation]
        hidden = self.to_hidden(x)
        hidden = function(hidden) if self.to_gate is None else function(self.to_gate(x)) * hidden
        output: Tensor = self.to_output(self.dropout(hidden))
        return output
