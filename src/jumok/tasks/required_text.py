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

    text: str
    text_number: int
    """Which of the texts it belongs to."""
    part_number: int
    """Which part of that text it is."""
    ids: list[int]
    prefix: str = ""
    """The beginning of its translation."""
    terms: tuple[str, ...] = ()
    """What its translation must contain."""
    left_out: tuple[str, ...] = ()
    """Terms that it should contain but the model cannot write, as messages name them."""

    @property
    def is_constrained(self) -> bool:
        """Whether its translation must begin with a text or contain terms."""
        return bool(self.prefix or self.terms)


class RequiredText:
    """Makes the patterns of prefixes and terms for a model that writes with this tokenizer.

    `limit` is the number of positions of its decoder, None for any. `voters` are those of models that vote with it, and
    must write the same terms.
    """

    def __init__(self, tokenizer: Tokenizer, limit: int | None, voters: Sequence["RequiredText"] = ()) -> None:
        self.tokenizer, self.limit, self.voters = tokenizer, limit, voters

    @cached_property
    def maker(self) -> PatternMaker:
        """Made when it is first needed: it reads the whole vocabulary."""
        return PatternMaker(self.tokenizer)

    def writes(self, term: str) -> bool:
        """Whether the model, and every one that votes with it, can write a term."""
        return self.maker.writes(term) and all(voter.writes(term) for voter in self.voters)

    def constrained(self, part: SourcePart, text: str, prefix: str, terms: Terms, config: DecodingConfig) -> SourcePart:
        """The part with the prefix, if it is the first of its text, and with the terms for what its `text` has.

        Terms that the model cannot write are left out: one line of a long file must not stop the others.
        """
        required = terms.required(text)
        written = tuple(term for term in required if self.writes(term))
        left_out = tuple(terms.shown(term) for term in required if term not in written)
        part = part._replace(prefix="" if part.part_number else prefix, terms=written, left_out=left_out)
        return part if self.patterns(part, config) else part._replace(prefix="", terms=())

    def patterns(self, part: SourcePart, config: DecodingConfig) -> list[TextPattern]:
        """The patterns of the prefix and the terms; an ArgumentError for a prefix that the model cannot write."""
        if not part.is_constrained:
            return []
        make, longest = self.maker, config.longest(len(part.ids))
        patterns = [make.term(term) for term in part.terms]
        prefix = make.prefix(part.prefix, shortest=bool(config.samples) or config.beam == 1)
        if prefix is not None and prefix.tokens > min(longest, (self.limit or longest + 1) - 1):
            raise ArgumentError(
                f"the prefix {quoted(part.prefix)} has {prefix.tokens} tokens, but an output for "
                f"{quoted(part.text)} has at most {longest}; shorten it, or raise decoding.max_length and max_ratio"
            )
        return patterns if prefix is None else [prefix, *patterns]

    def constraints(
        self, parts: Sequence[SourcePart], config: DecodingConfig, device: torch.device
    ) -> Constraints | None:
        """The constraints of a search for these parts; None if there are none."""
        if not any(part.is_constrained for part in parts):
            return None
        return Constraints.of([self.patterns(part, config) for part in parts], self.tokenizer.size, device)
