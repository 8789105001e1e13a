"""What a search finds: hypotheses, those that every step keeps, and the special tokens in them."""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor


class Hypothesis(NamedTuple):
    """An output for one input: its token ids and its score, and under minimum Bayes risk its expected chrF."""

    ids: list[int]
    score: float
    expected_chrf: float | None = None


class Specials(NamedTuple):
    """The ids of the special tokens: padding, beginning and end of sentence."""

    pad: int
    bos: int
    eos: int
    first: int | None = None
    """The token that every output must begin with, such as its language; None if there is none."""
    unk: int | None = None
    """The token of unknown words, which is never drawn at random; None if there is none."""


class Survivors(NamedTuple):
    """The hypotheses that one step of the search keeps: for each sentence those that continue, then those that end."""

    sentences: Int[Tensor, " sentence"]
    """Which sentences of the batch these are."""
    parents: Int[Tensor, "sentence kept"]
    """The hypothesis of the step before that each extends, counted among those that continued."""
    tokens: Int[Tensor, "sentence kept"]
    """The token that each appends; the end of the sentence for those that end."""
    totals: Float[Tensor, "sentence kept"]
    """Log-probability of each, -inf where there is none; those that continue come best first."""


Observer = Callable[[Survivors], None]
"""Called after every step."""
