"""How a model is trained: for how long, how fast, how it is judged, and what is kept of it."""

import math
from dataclasses import dataclass, fields
from typing import Literal, get_args

from jumok.errors import ConfigError

Schedule = Literal["noam", "inverse_sqrt", "cosine", "constant"]
Precision = Literal["auto", "float32", "bf16"]
Context = Literal["causal", "full"]
Metric = Literal["bleu", "chrf", "loss", "exact_match", "wer", "accuracy"]

LOWER_IS_BETTER: frozenset[Metric] = frozenset({"loss", "wer"})


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Everything about training that is neither the model nor the data."""

    steps: int = 20_000
    """Updates of the weights, those before a resume counted."""
    minutes: float = 0.0
    """Stop after this many minutes of wall-clock time, those before a resume counted; 0 sets no limit."""
    learning_rate: float = 0.001
    """The highest learning rate; with schedule = "noam" the factor before width^-0.5, usually 1 or 2."""
    schedule: Schedule = "inverse_sqrt"
    """How the learning rate falls after the warm-up: "inverse_sqrt", "cosine" (to 0 at `steps`), "constant", "noam"."""
    warmup: int = 1000
    """Steps over which the learning rate rises from 0 to its highest."""
    betas: tuple[float, float] = (0.9, 0.98)
    """How slowly AdamW forgets: of the mean of the gradients, and of their squares."""
    weight_decay: float = 0.01
    """Pull of the matrices towards zero, times the learning rate; biases, norms and embeddings are left alone."""
    label_smoothing: float = 0.1
    """Share of every target's probability that is spread over the whole vocabulary."""
    clip: float = 1.0
    """Longest gradient, its norm over all weights; longer ones are shortened to it. 0 leaves them."""
    accumulate: int = 1
    """Batches that make one update: as one batch this many times as large, in the memory of one."""
    precision: Precision = "auto"
    """What matrices are multiplied in: "bf16", "float32", or "auto": bf16 on a GPU that has it, else float32."""
    ema: float = 0.0
    """Decay of the moving average of the weights that is validated and kept, such as 0.999; 0 for none."""
    validate_every: int = 500
    """Steps between validations."""
    metric: Metric = "chrf"
    """The score that finds the best checkpoint: "bleu", "chrf", "exact_match", or (less is better) "loss", "wer".

    For graphs "accuracy" or "loss". Of equal ones, the lower loss.
    """
    patience: int = 10
    """Stop after this many validations without a better score; 0 never does."""
    save_every: int = 0
    """Steps between checkpoints, beside those written after every validation; 0 for only those."""
    keep: int = 3
    """Checkpoints kept: the newest ones, beside the best."""
    average: int = 0
    """The final model is the mean of this many newest checkpoints, if no worse than the best one; 0 for the best."""
    guided_alignment: float = 0.0
    """How much the loss counts that teaches one layer's attention the word links of data.alignments; 0 for none."""
    guided_layer: int | None = None
    """The decoder layer that is taught, counted from 0, -1 the last; the last but one unless given."""
    guided_head: int | None = None
    """The head of that layer that is taught, counted from 0, -1 the last; the mean of its heads unless given."""
    guided_shift: bool = True
    """Teach where to look when a word has just been read, which aligns best; false: when it is about to be written."""
    guided_context: Context = "causal"
    """What of the target is known while that is taught: the words so far ("causal"), or all of them ("full").

    "full" takes a second pass through the decoder, which must be a Transformer's; `jumok align` then takes it, too.
    """
    guided_null: bool = False
    """Teach target words without a link to look at the end of the source; `jumok align` then gives them none."""
    doubly_stochastic: float = 0.0
    """For captions: how much it counts that every region of an image is looked at, once in all (Xu et al. 2015)."""
    log_every: int = 20
    """Steps between lines of metrics."""
    seed: int = 1
    """Decides dropout, and with the data's own seed everything else that is drawn."""

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
        for name in ("guided_alignment", "doubly_stochastic"):
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
        known_names = {"schedule": Schedule, "precision": Precision, "metric": Metric, "guided_context": Context}
        for name, known in known_names.items():
            if getattr(self, name) not in get_args(known):
                raise ConfigError(f"{self._said(name)}; wanted one of {', '.join(get_args(known))}")

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
