"""Other words at a place of a translation: what a model could write after a given beginning."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from jumok.data import UNK, Tokenizer
from jumok.data.subwords import SPACE
from jumok.models.encoder_decoder import Decoder, Encoding

MORE = 2
"""How many times as many beginnings of words are completed as words are asked for; some become the same word."""


class NextWords:
    """The tokens that can begin the next word of an output.

    The word follows a space, unless the output so far ends inside of a word: then the next letters continue it.
    """

    def __init__(self, tokenizer: Tokenizer, *, after_space: bool) -> None:
        spelt = tokenizer.spellings
        self.spelt: Sequence[str] = spelt
        self.space: int | None = spelt.index(SPACE) if after_space and SPACE in spelt else None
        begins = [spelling.startswith(SPACE) == after_space for spelling in spelt]
        self.begins: Bool[np.ndarray, " token"] = self._words(tokenizer) & begins
        self.continues: Bool[np.ndarray, " token"] = self._words(tokenizer) & ~np.char.startswith(spelt, SPACE)

    def _words(self, tokenizer: Tokenizer) -> Bool[np.ndarray, " token"]:
        """The tokens that write letters."""
        letters = [bool(spelling.strip(SPACE + "\0")) for spelling in self.spelt]
        return np.array([ok and id != UNK and not tokenizer.is_symbol(id) for id, ok in enumerate(letters)])

    @torch.no_grad()
    def likeliest(self, decoder: Decoder, encoding: Encoding, written: Sequence[int], count: int) -> list[str]:
        """The likeliest beginnings of the next word; `encoding` is of one sentence, `written` begins with BOS.

        Where a vocabulary has spaces as tokens of their own, the word may also begin after such a token.
        """

        def log_probs(ids: Sequence[int]) -> Float[Tensor, " vocabulary"]:
            tokens = torch.tensor([ids], device=encoding.states.device)
            logits: Tensor = decoder.logits(decoder.hidden(encoding, tokens))[0, -1]
            return logits.float().log_softmax(-1).cpu()

        now = log_probs(written)
        ranked = _ranked(now, self.begins, count)
        if self.space is not None:
            later = now[self.space] + log_probs([*written, self.space])
            ranked += _ranked(later, self.continues, count)
        best = sorted(ranked, reverse=True)[:count]
        return [self.spelt[id].lstrip(SPACE) for _, id in best]


def _ranked(
    log_probs: Float[Tensor, " vocabulary"], kept: Bool[np.ndarray, " token"], count: int
) -> list[tuple[float, int]]:
    values, ids = log_probs.masked_fill(~torch.from_numpy(kept), -torch.inf).topk(min(count, len(kept)))
    return [(value, id) for value, id in zip(values.tolist(), ids.tolist(), strict=True) if value > -torch.inf]


def next_word(text: str, prefix: str) -> str:
    """The first word of a text after its beginning; what is written without spaces counts as one word."""
    return next(iter(text[len(prefix) :].split()), "")
