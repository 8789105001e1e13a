"""The attention matrix as one object: what each target token looked at, layer by layer and head by head."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.errors import ArgumentError


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """Target tokens, source tokens, and the weights between them, cut to true lengths."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Float[Tensor, "layer head target source"]

    def __post_init__(self) -> None:
        if tuple(self.weights.shape[2:]) != (len(self.target), len(self.source)):
            raise ArgumentError(
                f"weights are {list(self.weights.shape)}, but there are {len(self.target)} target and "
                f"{len(self.source)} source tokens"
            )

    def mean(self) -> Float[Tensor, "target source"]:
        """Averaged over all layers and heads."""
        return self.weights.mean((0, 1))

    def merged(self, source_words: Sequence[int], target_words: Sequence[int]) -> "AttentionMap":
        """Tokens joined to words: token i belongs to word `words[i]`, words numbered from 0 in their order.

        A word is looked at as much as its tokens together, and looks where its tokens look on average, so that rows
        still sum to what they did.
        """
        columns = _membership(source_words)
        rows = _membership(target_words)
        rows = rows / rows.sum(1, keepdim=True)
        weights = rows @ self.weights.to(rows.dtype) @ columns.T
        return AttentionMap(_joined(self.source, source_words), _joined(self.target, target_words), weights)

    def crossings(self) -> int:
        """How many pairs of target words look at the source in the other order: 0 for a word-by-word translation."""
        best = self.mean().argmax(-1)
        earlier, later = best[:, None], best[None, :]
        return int((earlier > later).triu(1).sum())


def word_numbers(text: str, spans: Sequence[tuple[int, int]]) -> list[int]:
    """For each piece [start, end) of a text, the number of the word it lies in; words are what spaces divide."""
    numbers: list[int] = []
    word, at = 0, 0
    for start, end in spans:
        if numbers and any(letter.isspace() for letter in text[at:start]):
            word += 1
        numbers.append(word)
        at = max(at, end)
    return numbers


def _membership(words: Sequence[int]) -> Float[Tensor, "word token"]:
    numbers = torch.tensor(list(words), dtype=torch.long)
    return (torch.arange(int(numbers.max()) + 1 if len(words) else 0)[:, None] == numbers).float()


def _joined(tokens: Sequence[str], words: Sequence[int]) -> tuple[str, ...]:
    count = max(words, default=-1) + 1
    return tuple("".join(token for token, at in zip(tokens, words, strict=True) if at == word) for word in range(count))
