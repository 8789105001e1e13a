"""Filters for training pairs, and counts of the pairs that each rule dropped."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Annotated, ClassVar

import numpy as np
from jaxtyping import Bool, Int, UInt64

from jumok.data.pairs import Pair
from jumok.errors import ConfigError
from jumok.settings import NonNegativeFloat, NonNegativeInt, OnlyWith, PositiveInt, Settings

RULES = ("empty", "duplicate", "too short", "too long", "ratio")


@dataclass(frozen=True, kw_only=True)
class FilterConfig(Settings):
    """Which training pairs to drop; lengths are in tokens of the trained tokenizer."""

    section: ClassVar[str] = "filter"

    min_length: PositiveInt = 1
    """Minimum number of tokens on each side."""
    max_length: PositiveInt = 256
    """Maximum number of tokens on each side."""
    max_ratio: NonNegativeFloat = 0.0
    """Maximum ratio of the longer side to the shorter side; 0 allows any ratio."""
    ratio_from: Annotated[NonNegativeInt, OnlyWith("max_ratio")] = 10
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


def pair_hash(pair: Pair) -> int:
    """A 64-bit hash: among 100 million pairs, one is lost to a false match with probability 0.03%."""
    return int.from_bytes(blake2b("\0".join(pair).encode("utf-8", "surrogatepass"), digest_size=8).digest())


class PairFilter:
    """Applies the rules to pairs in their order; `report` holds the counts so far."""

    def __init__(self, config: FilterConfig) -> None:
        self.config = config
        self.report = FilterReport()
        self._known_hashes: set[int] = set()

    def keeps(
        self, lengths: Int[np.ndarray, "pair 2"], hashes: UInt64[np.ndarray, " pair"], empty: Bool[np.ndarray, " pair"]
    ) -> Bool[np.ndarray, " pair"]:
        """Which of some pairs are kept, by the tokens of both sides and `pair_hash`; all are counted."""
        kept = np.ones(len(lengths), bool)
        for rule, breaks in self._rules(lengths, hashes, empty).items():
            self.report.dropped[rule] += int((kept & breaks).sum())
            kept &= ~breaks
        self.report.read += len(lengths)
        return kept

    def _rules(
        self, lengths: Int[np.ndarray, "pair 2"], hashes: UInt64[np.ndarray, " pair"], empty: Bool[np.ndarray, " pair"]
    ) -> dict[str, Bool[np.ndarray, " pair"]]:
        """Which pairs break each rule."""
        config, shorter, longer = self.config, lengths.min(1), lengths.max(1)
        return {
            "empty": empty,
            "duplicate": self._repeated(hashes, empty) if config.duplicates else np.zeros_like(empty),
            "too short": shorter < config.min_length,
            "too long": longer > config.max_length,
            "ratio": (config.max_ratio > 0) & (longer >= config.ratio_from) & (longer > config.max_ratio * shorter),
        }

    def _repeated(
        self, hashes: UInt64[np.ndarray, " pair"], empty: Bool[np.ndarray, " pair"]
    ) -> Bool[np.ndarray, " pair"]:
        """Pairs that came before, here or in earlier chunks; those with an empty side are not remembered."""
        known_hashes, repeated = self._known_hashes, []
        for value in hashes[~empty].tolist():
            before = len(known_hashes)
            known_hashes.add(value)
            repeated.append(len(known_hashes) == before)
        is_repeated = np.zeros(len(hashes), bool)
        is_repeated[~empty] = repeated
        return is_repeated
