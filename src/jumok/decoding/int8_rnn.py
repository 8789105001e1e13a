"""A recurrent decoder with 8-bit weights and a short vocabulary, for a CPU.

    W ≈ diag(s) Q,  Q integers from -127 to 127,  y = s (Q q(x))        q rounds x to 8 bits at each product

The products of a step take a quarter of the time of those in float32 and less, and most of them would be with the rows
of words that the sentence cannot need: of the output matrix only the rows of the shortlist are kept.
"""

import copy
import subprocess
import sys
import warnings
from functools import cache
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from jumok.layers.recurrent import STEPS, LayerState, Recurrence, States, Stepper
from jumok.models.encoder_decoder import EncoderDecoder
from jumok.models.rnn.decoder import RnnDecoder

PROBE = """
import torch
from jumok.decoding.int8_rnn import Int8Product
x, w = torch.randn(5, 64), torch.randn(48, 64)
assert torch.allclose(Int8Product.of(w, None)(x), x @ w.T, atol=2.0)
"""
PROBE_SECONDS = 120


@cache
def works_here() -> bool:
    """Whether 8-bit matrix products work on this machine, tried in another process because they may crash it."""
    command = [sys.executable, "-c", PROBE]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def can_quantise(model: EncoderDecoder) -> bool:
    """Whether a model has a recurrent decoder that supports int8: without copying and without monotonic attention."""
    decoder = model.decoder
    return isinstance(decoder, RnnDecoder) and decoder.copying is None and decoder.config.attention != "monotonic"


class Int8Product(nn.Module):
    """x Wᵀ + b with the matrix in 8 bits, scaled row by row."""

    def __init__(self, rows: Tensor, scales: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.rows, self.scales, self.bias = rows, scales, bias
        with warnings.catch_warnings():  # PyTorch deprecates the making of such tensors, not the product
            warnings.simplefilter("ignore")
            zeros = torch.zeros_like(scales, dtype=torch.long)
            weight = torch._make_per_channel_quantized_tensor(rows, scales.double(), zeros, 0)
            self.packed = torch.ops.quantized.linear_prepack(weight, bias)

    @classmethod
    def of(cls, weight: Float[Tensor, "out inputs"], bias: Float[Tensor, " out"] | None) -> "Int8Product":
        """The product with a matrix of float32."""
        weight = weight.detach().contiguous()
        scales = weight.abs().amax(1).clamp(min=1e-8) / 127
        rows = (weight / scales[:, None]).round().to(torch.int8)
        return cls(rows, scales, None if bias is None else bias.detach())

    def only(self, rows: Int[Tensor, " kept"]) -> "Int8Product":
        """The product with some rows of the matrix."""
        return Int8Product(self.rows[rows], self.scales[rows], None if self.bias is None else self.bias[rows])

    def forward(self, x: Float[Tensor, "*row inputs"]) -> Float[Tensor, "*row out"]:
        """The product; x is rounded to 7 bits, so that sums of products fit into 16 on older CPUs."""
        product: Tensor = torch.ops.quantized.linear_dynamic(x, self.packed, True)
        return product


class Int8Stepper(Stepper):
    """One step at a time, with 8-bit products; there is no dropout."""

    def __init__(self, cell: str, inputs: int, weights: list[list[nn.Parameter]]) -> None:
        first, _, bias, _ = weights[0]
        self.cell = STEPS[cell]
        self.from_input = Int8Product.of(first[:, :inputs], bias)
        self.from_fed = Int8Product.of(first[:, inputs:], None) if first.shape[1] > inputs else None
        self.below = [Int8Product.of(weight, bias) for weight, _, bias, _ in weights[1:]]
        self.recurrent = [Int8Product.of(weight, bias) for _, weight, _, bias in weights]

    def input_gates(self, x: Float[Tensor, "*row inputs"]) -> Float[Tensor, "*row gates"]:
        """W x + b."""
        return cast(Tensor, self.from_input(x))

    def fed_gates(self, fed: Float[Tensor, "*row fed"]) -> Float[Tensor, "*row gates"]:
        """C c, to be added to the input gates."""
        assert self.from_fed is not None
        return cast(Tensor, self.from_fed(fed))

    def step(self, gates: Float[Tensor, "*row gates"], states: States) -> States:
        """One step of every layer; `gates` are those of the first layer."""
        after: list[LayerState] = []
        for layer, (state, recurrent) in enumerate(zip(states, self.recurrent, strict=True)):
            if layer:
                gates = self.below[layer - 1](after[-1][0])
            after.append(self.cell(gates, recurrent(state[0]), state))
        return tuple(after)


class Int8Recurrence(nn.Module):
    """What a decoder needs of its recurrence to step."""

    def __init__(self, recurrence: Recurrence) -> None:
        super().__init__()
        self.parts = recurrence.parts
        self.in_steps = Int8Stepper(recurrence.cell, recurrence.inputs, recurrence.rnn.all_weights)

    def stepper(self) -> Stepper:
        """The layers, for running one step at a time."""
        return self.in_steps


class ShortEmbedding(nn.Module):
    """The vectors of a few tokens."""

    def __init__(self, embedding: Any, kept: Int[Tensor, " kept"]) -> None:
        super().__init__()
        self.table: Tensor = embedding(kept)

    def forward(self, ids: Int[Tensor, "*position"]) -> Float[Tensor, "*position width"]:
        """The vector of each."""
        return self.table[ids]


@torch.no_grad()
def quantised(decoder: RnnDecoder) -> RnnDecoder:
    """A decoder that steps like this one, with every matrix in 8 bits; it cannot be trained or saved."""
    small: Any = copy.copy(decoder)
    small._modules = dict(decoder._modules)
    small.recurrence = Int8Recurrence(decoder.recurrence)
    small.look = copy.deepcopy(decoder.look)
    for module in small.look.modules():
        for name, child in module.named_children():
            if type(child) is nn.Linear:
                setattr(module, name, Int8Product.of(child.weight, child.bias))
    if decoder.to_readout is not None:
        small.to_readout = Int8Product.of(decoder.to_readout.weight, decoder.to_readout.bias)
    small.output = Int8Product.of(decoder.output.weight, decoder.output.bias)
    return cast(RnnDecoder, small)


@torch.no_grad()
def with_vocabulary(decoder: RnnDecoder, kept: Int[Tensor, " kept"]) -> RnnDecoder:
    """A quantised decoder that reads and writes only some tokens, numbered as they stand in `kept`."""
    short: Any = copy.copy(decoder)
    short._modules = dict(decoder._modules)
    short.embedding = ShortEmbedding(decoder.embedding, kept)
    short.output = cast(Int8Product, decoder.output).only(kept)
    short.vocabulary = len(kept)
    return cast(RnnDecoder, short)
