"""How much of a text its vocabulary does not know, by a sample of what was written: tokenising is not slowed."""

from jumok.data.store import Store
from jumok.data.subwords import UNK
from jumok.data.tokenizer import Tokenizer, TokenizerConfig

MANY = 0.1
"""The share of unknown tokens above which it is said."""
SAMPLE = 2000
"""Rows looked at, from one end of the store to the other."""


def unknown_message(store: Store, side: int, called: str, tokenizer: Tokenizer, config: TokenizerConfig) -> str:
    """What is to be said of a side of a store, and which setting to raise; "" where the vocabulary knows enough."""
    share = unknown_share(store, side)
    if share <= MANY:
        return ""
    return (
        f"about {share:.0%} of the tokens of the {called} are unknown to the vocabulary, and a model cannot tell them "
        f"apart; raise {_setting(tokenizer, config)}"
    )


def unknown_share(store: Store, side: int) -> float:
    """How many of the tokens are unknown, begin and end not counted."""
    rows = range(len(store)) if len(store) <= SAMPLE else [at * len(store) // SAMPLE for at in range(SAMPLE)]
    texts = [store[row][side] for row in rows]
    unknown, tokens = sum(int((ids == UNK).sum()) for ids in texts), sum(len(ids) - 2 for ids in texts)
    return unknown / max(tokens, 1)


def _setting(tokenizer: Tokenizer, config: TokenizerConfig) -> str:
    """What left tokens out of the vocabulary."""
    if tokenizer.kind in ("char", "word") and tokenizer.size >= config.size:
        pieces = ', or set tokenizer.kind = "unigram"' if tokenizer.kind == "word" else ""
        return f"tokenizer.size = {config.size}{pieces}"
    if config.coverage < 1:
        return f"tokenizer.coverage = {config.coverage}"
    return f"tokenizer.sentences = {config.sentences}"
