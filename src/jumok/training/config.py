"""The settings of training that all tasks share: how long, how fast, how it is validated, and what is kept."""

import math
from dataclasses import dataclass, fields
from typing import Literal, get_args, get_origin, get_type_hints

from jumok.errors import ConfigError

Schedule = Literal["noam", "inverse_sqrt", "cosine", "constant"]
Precision = Literal["auto", "float32", "bf16"]
Context = Literal["causal", "full"]

LOWER_IS_BETTER = frozenset({"loss", "wer"})


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Everything about training that is neither the model nor the data; tasks add their own in subclasses."""

    steps: int = 20_000
    """Number of updates, including those before a resume."""
    minutes: float = 0.0
    """Stop after this many minutes of wall-clock time, including those before a resume; 0 sets no limit."""
    learning_rate: float = 0.001
    """Peak learning rate; with schedule = "noam" the factor of width^-0.5, usually 1 or 2."""
    schedule: Schedule = "inverse_sqrt"
    """Learning rate schedule after the warm-up: "inverse_sqrt", "cosine" (to 0 at `steps`), "constant" or "noam"."""
    warmup: int = 1000
    """Steps over which the learning rate rises linearly from 0 to its peak."""
    betas: tuple[float, float] = (0.9, 0.98)
    """AdamW's β₁ and β₂."""
    weight_decay: float = 0.01
    """AdamW's weight decay of the matrices; biases, norms and embeddings have none."""
    label_smoothing: float = 0.1
    """Label smoothing: share of the probability spread over the whole vocabulary."""
    clip: float = 1.0
    """Largest norm of the gradient over all weights; larger gradients are scaled down to it. 0 turns clipping off."""
    accumulate: int = 1
    """Batches per update (gradient accumulation)."""
    precision: Precision = "auto"
    """Precision of matrix products: "bf16", "float32" or "auto", which is bf16 on a GPU that supports it."""
    ema: float = 0.0
    """Decay of a moving average of the weights, such as 0.999, which is validated and saved; 0 for none."""
    validate_every: int = 500
    """Steps between validations."""
    metric: str = "loss"
    """The score that finds the best checkpoint; among equal ones, the lower loss."""
    patience: int = 10
    """Stop after this many validations without a better score; 0 never stops early."""
    save_every: int = 0
    """Steps between checkpoints, in addition to one after every validation; 0 for none."""
    keep: int = 3
    """Number of newest checkpoints to keep, in addition to the best."""
    average: int = 0
    """Average this many newest checkpoints into the final model, if that is no worse than the best one; 0 for none."""
    log_every: int = 20
    """Steps between log lines."""
    seed: int = 1
    """Random seed of the weights, the order of the data and dropout."""

    def __post_init__(self) -> None:
        self._check_choices()
        for field in fields(self):
            if isinstance(value := getattr(self, field.name), float) and math.isinf(value):
                raise ConfigError(f"{self._said(field.name)}; wanted a finite number")
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"{self._said('seed')}; wanted at least 0 and below 2^63")
        for name in ("steps", "accumulate", "validate_every", "keep", "log_every"):
            self._at_least(name, 1)
        for name in ("minutes", "warmup", "weight_decay", "clip", "patience", "save_every", "average"):
            self._at_least(name, 0)
        for name in ("label_smoothing", "ema"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{self._said(name)}; wanted at least 0 and below 1")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ConfigError(f"{self._said('betas')}; wanted two numbers, each at least 0 and below 1")
        self._check_rate()
        self._check_average()

    def better(self, score: float, than: float) -> bool:
        """Whether one value of `metric` is better than another; what is not a number never is."""
        return score < than if self.metric in LOWER_IS_BETTER else score > than

    def _check_choices(self) -> None:
        for name, hint in get_type_hints(type(self)).items():
            if get_origin(hint) is Literal and getattr(self, name) not in get_args(hint):
                raise ConfigError(f"{self._said(name)}; wanted one of {', '.join(get_args(hint))}")

    def _check_rate(self) -> None:
        if not self.learning_rate > 0:
            raise ConfigError(f"{self._said('learning_rate')}; wanted more than 0")
        if self.schedule == "noam" and self.learning_rate < 0.05:
            raise ConfigError(
                f'{self._said("learning_rate")} with training.schedule = "noam" would hardly learn: it is the factor '
                'before width^-0.5, usually 1 or 2; with "inverse_sqrt" it is the learning rate itself'
            )
        if self.schedule == "cosine" and self.warmup >= self.steps:
            raise ConfigError(f"{self._said('warmup')} leaves nothing of {self._said('steps')} for the cosine to fall")

    def _check_average(self) -> None:
        if self.average > self.keep:
            raise ConfigError(
                f"{self._said('average')} checkpoints cannot be averaged when {self._said('keep')}; "
                f"set training.keep = {self.average} or more"
            )
        if self.average and self.ema:
            raise ConfigError(
                f"{self._said('average')} and {self._said('ema')} are two ways to the same end; set one of them to 0"
            )

    def _at_least(self, name: str, least: int) -> None:
        if not getattr(self, name) >= least:
            raise ConfigError(f"{self._said(name)}; wanted at least {least}")

    def _said(self, name: str) -> str:
        value = getattr(self, name)
        return f"training.{name} = " + (f'"{value}"' if isinstance(value, str) else str(value))
