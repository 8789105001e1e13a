"""Filters for training pairs, and counts of the pairs that each rule dropped."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import ClassVar

from jumok.data.pairs import Pair
from jumok.errors import ConfigError
from jumok.settings import NonNegativeFloat, NonNegativeInt, PositiveInt, Settings

RULES = ("empty", "duplicate", "too short", "too long", "ratio")


@dataclass(frozen=True, kw_only=True)
class FilterConfig(Settings):
    """Lengths count tokens of the trained tokenizer, which is what memory and positions are made of."""

    section: ClassVar[str] = "filter"

    min_length: PositiveInt = 1
    """Smallest number of tokens on each side."""
    max_length: PositiveInt = 256
    """Largest number of tokens on each side."""
    max_ratio: NonNegativeFloat = 0.0
    """Largest ratio of the longer side to the shorter side; 0 allows any ratio."""
    ratio_from: NonNegativeInt = 10
    """Apply `max_ratio` only to pairs whose longer side has at least this many tokens."""
    duplicates: bool = True
    """Drop exact duplicates (takes about 70 bytes of memory per pair during preparation)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_length < self.min_length:
            raise ConfigError(f"{self.shown('max_length')} is below {self.shown('min_length')}: no pair passes")
        if self.max_ratio and self.max_ratio < 1:
            raise ConfigError(f"{self.shown('max_ratio')} must be 1 or more, or 0 for any ratio")


@dataclass
class FilterReport:
    """How many pairs were read, and how many each rule dropped; a pair counts for the first rule it breaks."""

    read: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RULES, 0))

    @property
    def kept(self) -> int:
        """Pairs that broke no rule."""
        return self.read - sum(self.dropped.values())

    def __str__(self) -> str:
        parts = [f"{count:,} {rule}" for rule, count in self.dropped.items() if count]
        return f"kept {self.kept:,} of {self.read:,} pairs" + (f" (dropped: {', '.join(parts)})" if parts else "")


def sum_reports(reports: Sequence[FilterReport]) -> FilterReport:
    """The counts of several corpora together."""
    dropped = {rule: sum(report.dropped.get(rule, 0) for report in reports) for rule in RULES}
    return FilterReport(sum(report.read for report in reports), dropped)


class PairFilter:
    """Applies the rules to each pair in order; `report` holds the counts so far."""

    def __init__(self, config: FilterConfig) -> None:
        self.config = config
        self.report = FilterReport()
        self._seen: set[int] = set()

    def keeps(self, pair: Pair, source_tokens: int, target_tokens: int) -> bool:
        """Whether the pair is kept; it is counted either way."""
        self.report.read += 1
        broken = self._broken_rule(pair, *sorted((source_tokens, target_tokens)))
        if broken is not None:
            self.report.dropped[broken] += 1
        return broken is None

    def _broken_rule(self, pair: Pair, shorter: int, longer: int) -> str | None:
        config = self.config
        if not (pair.source.strip() and pair.target.strip()):
            return "empty"
        if config.duplicates and self._is_repeated(pair):
            return "duplicate"
        if shorter < config.min_length:
            return "too short"
        if longer > config.max_length:
            return "too long"
        if config.max_ratio and longer >= config.ratio_from and longer > config.max_ratio * shorter:
            return "ratio"
        return None

    def _is_repeated(self, pair: Pair) -> bool:
        """By a 64-bit hash: among 100 million pairs, one is lost to a false match with probability 0.03%."""
        digest = blake2b("\0".join(pair).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        before = len(self._seen)
        self._seen.add(int.from_bytes(digest))
        return len(self._seen) == before
