"""The settings of beam search and sampling."""

from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from annotated_types import Ge, Gt, Le

from jumok.errors import ArgumentError, ConfigError
from jumok.setting_hints import setting_hint
from jumok.settings import NonNegativeInt, OnlyWith, PositiveFloat, PositiveInt, Settings, changed, nearest

Engine = Literal["auto", "jumok", "ctranslate2"]
Precision = Literal["float32", "int8"]
"""Precisions of decoding on a CPU."""
SearchPrecision = Literal["auto", "float32", "fp16", "bf16", "int8"]
FloatPrecision = Literal["auto", "float32", "fp16", "bf16"]
"""Those of a search that has no 8-bit weights."""
Quantization = Literal["float32", "int8", "int8_float32", "int16", "float16"]
"""Precisions of a model for CTranslate2."""

WIDEST = 1000
"""Largest beam; with thousands of hypotheses a single line takes minutes."""


@dataclass(frozen=True, kw_only=True)
class SearchConfig(Settings):
    """The settings of beam search, whatever the source is."""

    section: ClassVar[str] = "decoding"

    beam: Annotated[int, Ge(1), Le(WIDEST)] = 5
    """Hypotheses kept at each step; 1 is greedy search."""
    length_penalty: Annotated[float, Ge(-5), Le(5)] = 1.0
    """Exponent of the length n in the score log-probability / n^length_penalty; 0 favours short outputs."""
    min_length: NonNegativeInt = 0
    """Shortest output in tokens, without the end-of-sentence token."""
    max_length: PositiveInt = 256
    """Longest output in tokens."""
    max_ratio: PositiveFloat = 3.0
    """Longest output as a multiple of the source length, plus 20 tokens."""
    no_repeat: NonNegativeInt = 0
    """Size of n-grams that may not repeat in an output; 0 allows all."""
    precision: FloatPrecision = "auto"
    """Precision of the weights: "float32", "fp16", "bf16", or "auto", which is fp16 on a GPU."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_length > self.max_length:
            raise ConfigError(f"{self.shown('min_length')} is more than {self.shown('max_length')}")

    def longest(self, source: int) -> int:
        """How many tokens the output of an input of `source` tokens may have."""
        return max(self.min_length, min(self.max_length, int(self.max_ratio * source) + 20))


@dataclass(frozen=True, kw_only=True)
class DecodingConfig(SearchConfig):
    """All settings that affect the translation of a text."""

    samples: Annotated[int, Ge(0), Le(WIDEST)] = 0
    """Number of outputs to sample from the model instead of beam search; 0 for beam search."""
    temperature: Annotated[PositiveFloat, OnlyWith("samples")] = 1.0
    """Sampling temperature; values below 1 draw more probable outputs."""
    top_k: Annotated[NonNegativeInt, OnlyWith("samples")] = 0
    """Sample only from this many most probable tokens; 0 samples from all."""
    top_p: Annotated[float, Gt(0), Le(1), OnlyWith("samples")] = 1.0
    """Sample only from the most probable tokens whose probabilities add up to this (nucleus sampling)."""
    seed: Annotated[NonNegativeInt, OnlyWith("samples")] = 1
    """Random seed of the samples, which depend only on it and the line number."""
    mbr: bool = False
    """Choose the hypothesis with the highest expected chrF against all of them (minimum Bayes risk)."""
    placeholders: bool = False
    """Prefer hypotheses with exactly the placeholders and tags of their source, such as %s, {name} and <b>."""
    max_source: NonNegativeInt = 0
    """Maximum number of source tokens translated at once. Longer texts are split between sentences, and sentences of
    more than twice this length are cut. 0: the length of the longest training input, without outliers."""
    engine: Engine = "auto"
    """Search engine on a CPU: "jumok", "ctranslate2", or "auto", which is CTranslate2 if it is installed and finds the
    same outputs, and jumok otherwise.
    """
    precision: SearchPrecision = "auto"  # type: ignore[assignment]
    """Precision of the weights: "float32", "fp16", "bf16", "int8" (on a CPU), or "auto", which is fp16 on a GPU. int8
    is faster but changes some outputs; it also ends the search earlier and, if the model has a shortlist, considers
    only the tokens on it.
    """


Search = TypeVar("Search", bound=SearchConfig)


def with_settings(saved: Search, n_best: int, **settings: Any) -> Search:
    """The saved settings, replaced by those given, such as beam=5; by default the beam is at least `n_best` wide."""
    known = [field.name for field in fields(saved)]
    for name in settings:
        if name not in known:
            hint = setting_hint(name, "decoding") or nearest(name, known)
            raise ArgumentError(f"{name[:60]} is not a setting of decoding{hint}")
    changes = {name: value for name, value in settings.items() if value is not None}
    if type(changes.get("mbr")) is int:
        number = changes["mbr"]
        raise ArgumentError(
            f"mbr = {number} must be True or False; the number of outputs to choose from is the beam, or the samples: "
            f"mbr=True, beam={number}"
        )
    config = changed(saved, **{"beam": max(n_best, saved.beam)} | changes)
    if n_best < 1:
        raise ArgumentError(f"the {n_best} best outputs are asked for; ask for at least 1")
    if isinstance(config, DecodingConfig) and config.samples:
        _check_samples(config, n_best)
    elif n_best > config.beam:
        raise ArgumentError(
            f"the {n_best} best outputs are asked for, but the beam is only {config.beam} wide; widen it to {n_best}, "
            "or ask for fewer"
        )
    return config


def _check_samples(config: DecodingConfig, n_best: int) -> None:
    if config.engine == "ctranslate2":
        raise ArgumentError('engine = "ctranslate2", but samples are drawn by jumok\'s own engine; use engine = "auto"')
    if n_best > config.samples:
        raise ArgumentError(
            f"the {n_best} best outputs are asked for, but there are only {config.samples} samples; draw more or ask "
            "for fewer"
        )
