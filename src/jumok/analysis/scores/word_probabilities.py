"""The probability that a model gives to each word of an output, from one teacher-forced pass."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from jumok.analysis.maps.model_map import target_side
from jumok.data import BOS, EOS, Tokenizer
from jumok.models.encoder_decoder import Decoder, Encoding


class WordProbability(NamedTuple):
    """A word or token of an output, and its probability given the source and the words before it."""

    word: str
    probability: float


class OutputProbabilities(NamedTuple):
    """The probabilities of the words of an output and of its tokens; the last of both is the end of the sentence."""

    words: list[WordProbability]
    tokens: list[WordProbability]


@torch.no_grad()
def output_probabilities(
    decoder: Decoder, encoding: Encoding, output: Sequence[int], tokenizer: Tokenizer
) -> OutputProbabilities:
    """p(word | words before it, source), the product over the tokens of the word; `encoding` is of one source.

    Edits that write nothing count with the letter after them.
    """
    ids = torch.tensor([[BOS, *output]], device=encoding.states.device)
    logits = decoder.logits(decoder.hidden(encoding, ids))[0]
    log_probs = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    following = torch.tensor([*output, EOS], device=ids.device)
    letters, places = tokenizer.written(output)
    target = target_side(letters, tokenizer.letters).with_end()
    sums = log_probs.gather(1, following[:, None]).double().cumsum(0)[[*places, len(output)], 0]
    of_tokens = sums.diff(prepend=sums.new_zeros(1)).cpu()
    of_words = of_tokens.new_zeros(len(target.words)).index_add_(0, torch.tensor(target.numbers), of_tokens)
    return OutputProbabilities(_named(target.words, of_words), _named(target.tokens, of_tokens))


def _named(words: Sequence[str], log_probs: torch.Tensor) -> list[WordProbability]:
    return [WordProbability(*pair) for pair in zip(words, log_probs.exp().tolist(), strict=True)]
