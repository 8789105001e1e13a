"""Recurrent decoders with every pair of settings, small, over an encoding made by hand."""

from itertools import product

import torch

from jumok.models.encoder_decoder import Encoding
from jumok.models.rnn.decoder import RnnDecoder, RnnDecoderConfig
from jumok.settings import inherit

VOCABULARY, WIDTH, ENCODER_WIDTH = 9, 6, 7
LENGTHS = torch.tensor([6, 3, 1])

LOOKS = [
    {"attention": "none"},
    {"attention": "additive"},
    {"attention": "additive", "coverage": True},
    {"attention": "monotonic"},
    {"attention": "monotonic", "input_feeding": True},
    *(
        {"attention": score, "reach": reach, "input_feeding": feeding}
        for score, reach, feeding in product(
            ["dot", "general", "concat", "location"], ["global", "local-m", "local-p"], [False, True]
        )
    ),
]
ALL = [
    look | {"cell": cell, "layers": 1 + (cell == "gru"), "copy": (row + column) % 2 == 1 and row > 0}
    for (row, look), (column, cell) in product(enumerate(LOOKS), enumerate(["rnn", "gru", "lstm"]))
]
"""Every look with every cell; every look but "none", and every cell, with and without copying."""


def name(settings: dict) -> str:
    """How a test says which decoder it is."""
    return "-".join(key if value is True else str(value) for key, value in settings.items() if value is not False)


def encoder_width(settings: dict) -> int:
    """Another width than the decoder's, where the score allows it."""
    return WIDTH if settings.get("attention") == "dot" else ENCODER_WIDTH


def decoder(**settings) -> RnnDecoder:
    """A small one with weights large enough to matter."""
    torch.manual_seed(0)
    sizes = {"width": WIDTH, "embedding": 5, "dropout": 0.0, "half_window": 2, "longest": 20, "noise": 0.0}
    config = RnnDecoderConfig(**inherit(RnnDecoderConfig, settings, sizes))
    made = RnnDecoder(config, vocabulary=VOCABULARY, encoder_width=encoder_width(settings))
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return made.double()


def encoding(width: int = ENCODER_WIDTH, lengths: torch.Tensor = LENGTHS) -> Encoding:
    """States of no encoder in particular."""
    generator = torch.Generator().manual_seed(1)
    batch, longest = len(lengths), int(lengths.max())
    visible = torch.arange(longest) < lengths[:, None]
    states = torch.randn(batch, longest, width, dtype=torch.double, generator=generator)
    summary = torch.randn(batch, width, dtype=torch.double, generator=generator)
    tokens = torch.randint(VOCABULARY, (batch, longest), generator=generator)
    return Encoding(states.masked_fill(~visible[..., None], 0), visible, summary, tokens)


def targets(batch: int = 3, length: int = 5) -> torch.Tensor:
    """Some target ids."""
    return torch.randint(VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(2))
