"""What a translation must begin with and contain: a prefix and terms, as patterns for the search."""

from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch

from jumok.data import Tokenizer
from jumok.data.terms import Terms
from jumok.decoding.config import DecodingConfig
from jumok.decoding.patterns import Constraints, PatternMaker, TextPattern
from jumok.errors import ArgumentError
from jumok.files import quoted


class SourcePart(NamedTuple):
    """A part of a text, to be translated."""

    text: int
    number: int
    """Which part of the text it is."""
    part: str
    ids: list[int]
    prefix: str = ""
    """The beginning of its translation."""
    terms: tuple[str, ...] = ()
    """What its translation must contain."""

    @property
    def is_constrained(self) -> bool:
        """Whether its translation must begin with a text or contain terms."""
        return bool(self.prefix or self.terms)


class RequiredText:
    """Makes the patterns of prefixes and terms for a model that writes with this tokenizer.

    `limit` is the number of positions of its decoder, None for any.
    """

    def __init__(self, tokenizer: Tokenizer, limit: int | None) -> None:
        self.tokenizer, self.limit = tokenizer, limit

    @cached_property
    def maker(self) -> PatternMaker:
        """Made when it is first needed: it reads the whole vocabulary."""
        return PatternMaker(self.tokenizer)

    def check_terms(self, terms: Terms) -> None:
        """Raise an ArgumentError for a term that the model cannot write."""
        for term in terms.targets:
            self.maker.check("term", term)

    def constrained(self, part: SourcePart, text: str, prefix: str, terms: Terms, config: DecodingConfig) -> SourcePart:
        """The part with the prefix, if it is the first of its text, and with the terms for what its `text` has."""
        if not prefix and not terms:
            return part
        part = part._replace(prefix="" if part.number else prefix, terms=terms.required(text))
        return part if self.patterns(part, config) else part._replace(prefix="", terms=())

    def patterns(self, part: SourcePart, config: DecodingConfig) -> list[TextPattern]:
        """The patterns of the prefix and the terms; an ArgumentError for what the model cannot write."""
        if not part.is_constrained:
            return []
        make, longest = self.maker, config.longest(len(part.ids))
        patterns = [make.term(term) for term in part.terms]
        prefix = make.prefix(part.prefix, shortest=bool(config.samples) or config.beam == 1)
        if prefix is not None and prefix.tokens > min(longest, (self.limit or longest + 1) - 1):
            raise ArgumentError(
                f"the prefix {quoted(part.prefix)} has {prefix.tokens} tokens, but an output for "
                f"{quoted(part.part)} has at most {longest}; shorten it, or raise decoding.max_length and max_ratio"
            )
        return patterns if prefix is None else [prefix, *patterns]

    def constraints(
        self, parts: Sequence[SourcePart], config: DecodingConfig, device: torch.device
    ) -> Constraints | None:
        """The constraints of a search for these parts; None if there are none."""
        if not any(part.is_constrained for part in parts):
            return None
        return Constraints.of([self.patterns(part, config) for part in parts], self.tokenizer.size, device)
