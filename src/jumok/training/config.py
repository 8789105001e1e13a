"""The settings of training that all tasks share: length, learning rate, validation and checkpoints."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from jumok.errors import ConfigError
from jumok.settings import Fraction, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Settings
from jumok.training.score_names import lower_is_better

Schedule = Literal["noam", "inverse_sqrt", "cosine", "constant"]
Precision = Literal["auto", "float32", "bf16"]
Parallel = Literal["ddp", "fsdp"]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Settings):
    """Everything about training that is neither the model nor the data; tasks add their own in subclasses."""

    section: ClassVar[str] = "training"

    steps: PositiveInt = 20_000
    """Number of updates, including those before a resume."""
    minutes: NonNegativeFloat = 0.0
    """Stop after this many minutes of wall-clock time, including those before a resume; 0 sets no limit."""
    learning_rate: PositiveFloat = 0.001
    """Peak learning rate; with schedule = "noam" the factor of width^-0.5, usually 1 or 2."""
    schedule: Schedule = "inverse_sqrt"
    """Learning rate schedule after the warm-up: "inverse_sqrt", "cosine" (to 0 at `steps`), "constant" or "noam"."""
    warmup: NonNegativeInt = 1000
    """Steps over which the learning rate rises linearly from 0 to its peak."""
    betas: tuple[Fraction, Fraction] = (0.9, 0.98)
    """AdamW's β₁ and β₂."""
    weight_decay: NonNegativeFloat = 0.01
    """AdamW's weight decay of the matrices; biases, norms and embeddings have none."""
    label_smoothing: Fraction = 0.1
    """Label smoothing: share of the probability spread over the whole vocabulary."""
    clip: NonNegativeFloat = 1.0
    """Largest norm of the gradient over all weights; larger gradients are scaled down to it. 0 turns clipping off."""
    accumulate: PositiveInt = 1
    """Batches per update (gradient accumulation) in each process; a resumed run keeps the total over all processes."""
    parallel: Parallel = "ddp"
    """How the processes of torchrun share the model: "ddp" gives each a copy and sends fewer bytes; "fsdp" (FSDP2)
    gives each a part and needs less memory.
    """
    precision: Precision = "auto"
    """Precision of matrix products: "bf16", "float32" or "auto", which is bf16 on a GPU that supports it."""
    fast: bool = True
    """On a CUDA GPU, fuse operations of Transformer layers and record CUDA graphs."""
    freeze: tuple[str, ...] = ()
    """Parts of the model to freeze, by the names of their weights: ["encoder", "decoder.layers.0"]."""
    ema: Fraction = 0.0
    """Decay of a moving average of the weights, such as 0.999, which is validated and saved; 0 for none."""
    validate_every: PositiveInt = 500
    """Steps between validations."""
    metric: str = "loss"
    """Score that selects the best checkpoint; the lower loss decides between equal scores."""
    patience: NonNegativeInt = 10
    """Stop after this many validations without a better score; 0 never stops early."""
    save_every: NonNegativeInt = 0
    """Steps between checkpoints, in addition to one after every validation; 0 for none."""
    keep: PositiveInt = 3
    """Number of newest checkpoints to keep, in addition to the best."""
    average: NonNegativeInt = 0
    """Average this many newest checkpoints into the final model, if that is no worse than the best one; 0 for none."""
    log_every: PositiveInt = 20
    """Steps between log lines."""
    seed: NonNegativeInt = 1
    """Random seed of the weights, the order of the data and dropout."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_rate()
        self._check_average()

    def better(self, score: float, than: float) -> bool:
        """Whether one value of `metric` is better than another; what is not a number never is."""
        return score < than if lower_is_better(self.metric) else score > than

    def train_further(self, folder: object) -> str:
        """The end of a message: how to train further than a cosine schedule goes; "" where a task cannot."""
        return ""

    def _check_rate(self) -> None:
        if self.schedule == "noam" and self.learning_rate < 0.05:
            raise ConfigError(
                f'{self.shown("learning_rate")} with training.schedule = "noam" would hardly learn: it is the factor '
                'before width^-0.5, usually 1 or 2; with "inverse_sqrt" it is the learning rate itself'
            )
        if self.schedule == "cosine" and self.warmup >= self.steps:
            tenth = self.steps // 10
            raise ConfigError(
                f'{self.shown("warmup")} must be below {self.shown("steps")} with schedule = "cosine"; set '
                f"training.warmup = {tenth}" + (", a tenth of the steps" if tenth else "")
            )

    def _check_average(self) -> None:
        if self.average > self.keep:
            raise ConfigError(
                f"{self.shown('average')} needs training.keep = {self.average} or more, but it is {self.keep}"
            )
        if self.average and self.ema:
            raise ConfigError(
                f"{self.shown('average')} and {self.shown('ema')} both average the weights; set one of them to 0"
            )
