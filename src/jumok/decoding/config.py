"""The settings of beam search."""

from dataclasses import dataclass, replace
from typing import Any

from jumok.errors import ArgumentError, ConfigError
from jumok.setting_hints import setting_hint

WIDEST = 1000
"""The most hypotheses kept at each step; with thousands a single line takes minutes."""
STEEPEST = 5


@dataclass(frozen=True, kw_only=True)
class DecodingConfig:
    """Everything that changes which output is found for an input."""

    beam: int = 5
    """Hypotheses kept at each step, at most 1000; 1 is greedy search."""
    length_penalty: float = 1.0
    """A hypothesis of n tokens scores its log-probability / n to this power; 0 favours short outputs."""
    min_length: int = 0
    """Shortest output in tokens, without the end-of-sentence token."""
    max_length: int = 256
    """Longest output in tokens."""
    max_ratio: float = 3.0
    """Longest output as a multiple of the source length, plus 20 tokens."""
    no_repeat: int = 0
    """Size of n-grams that may not repeat in an output; 0 allows all."""
    max_source: int = 0
    """Tokens of an input that go at once: longer texts are cut after sentences, a single sentence beyond twice as many.
    0 lets training set it: the longest, outliers aside."""

    def __post_init__(self) -> None:
        for name in ("beam", "min_length", "max_length", "no_repeat", "max_source"):
            if not isinstance(getattr(self, name), int):
                raise ConfigError(f"decoding.{name} = {getattr(self, name)!r} must be a whole number")
        if not -STEEPEST <= self.length_penalty <= STEEPEST:  # beyond, scores of long outputs are no finite numbers
            raise ConfigError(
                f"decoding.length_penalty = {self.length_penalty} must lie between -{STEEPEST} and {STEEPEST}; "
                "0 favours short outputs, 1 is neutral"
            )
        if self.beam > WIDEST:
            raise ConfigError(f"decoding.beam = {self.beam}, but it can be at most {WIDEST}; 5 is usual")
        for name, least in (("beam", 1), ("min_length", 0), ("max_length", 1), ("no_repeat", 0), ("max_source", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"decoding.{name} = {getattr(self, name)}, but it must be at least {least}")
        if self.max_ratio <= 0:
            raise ConfigError(f"decoding.max_ratio = {self.max_ratio}, but it must be greater than 0")
        if self.min_length > self.max_length:
            raise ConfigError(
                f"decoding.min_length = {self.min_length} is more than decoding.max_length = {self.max_length}"
            )

    def longest(self, source: int) -> int:
        """How many tokens the output of an input of `source` tokens may have."""
        return max(self.min_length, min(self.max_length, int(self.max_ratio * source) + 20))


def with_settings(saved: DecodingConfig, n_best: int, **settings: Any) -> DecodingConfig:
    """The saved settings, replaced by those given, such as beam=5; by default the beam is at least `n_best` wide."""
    known = DecodingConfig.__dataclass_fields__
    for name in settings:
        if name not in known:
            hint = setting_hint(name, "decoding") or f"; there are {', '.join(known)}"
            raise ArgumentError(f"{name[:60]} is not a setting of decoding{hint}")
    given = {name: value for name, value in settings.items() if value is not None}
    try:
        config = replace(saved, **{"beam": max(n_best, saved.beam)} | given)
    except TypeError as error:
        raise ArgumentError(f"a setting of decoding has the wrong type: {error}") from None
    if not 1 <= n_best <= config.beam:
        raise ArgumentError(f"n_best = {n_best}, but the beam is {config.beam} wide; n_best must lie between 1 and it")
    return config
