"""The state of training in plain numbers: what a checkpoint holds beside tensors."""

import json
import math
import platform
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from jumok import __version__
from jumok.data.batches import ORDER
from jumok.errors import CheckpointError, ConfigError
from jumok.training.config import TrainingConfig
from jumok.training.step import StepOutcome

MAY_CHANGE = frozenset(
    {"steps", "minutes", "validate_every", "patience", "save_every", "keep", "average", "log_every"}
    | {"parallel", "fast"}
)
"""Settings that do not change what any step does, and so may differ after a resume."""


@dataclass(kw_only=True)
class TrainingState:
    """Counters of a run from its first step, resumes included."""

    step: int = 0
    """Updates made."""
    epoch: int = 0
    index: int = 0
    """The next batch is number `index` of `epoch`."""
    tokens: int = 0
    """Target tokens trained on."""
    seconds: float = 0.0
    """Wall-clock time."""
    best: float | None = None
    """The best score of a validation so far."""
    best_step: int | None = None
    best_scores: dict[str, float] | None = None
    """All scores of that validation."""
    waited: int = 0
    """Validations since the best score."""
    validated: int = 0
    """The step last validated."""
    splits: int = 0
    """Batches that were split because memory ran out."""
    batches: int = 0
    """Batches of every update, over all processes; 0 until the run has begun."""
    sums: list[float] = field(default_factory=list)
    """The `Sums` since the last line of metrics."""

    def take_validation(self, scores: dict[str, float], config: TrainingConfig) -> bool:
        """Record the scores of a validation after this step; returns whether it is the best so far.

        The lower loss decides between equal scores, which are frequent with few validation pairs. Patience counts
        only the score.
        """
        self.validated = self.step
        score = scores[config.metric]
        better = not math.isnan(score) and (self.best is None or config.better(score, self.best))
        self.waited = 0 if better else self.waited + 1
        before = self.best_scores or {}
        surer = score == self.best and scores.get("loss", math.inf) < before.get("loss", math.inf)
        if better or surer:
            self.best, self.best_step, self.best_scores = score, self.step, scores
        return better or surer


SUMS = 7
MOST_WAITING = 1000
"""Most steps whose numbers are kept on the device before they are read."""


class Sums:
    """Sums over the steps since the last line; the numbers of steps stay on their device until they are read."""

    def __init__(self, values: list[float] | None = None) -> None:
        self._values = values or [0.0] * SUMS
        self._waiting: list[tuple[Float[Tensor, " 3"], int]] = []

    def flush(self) -> list[float]:
        """Add the steps whose numbers are still on the device, and return the sums.

        They are loss, tokens, norm and 1 over steps not skipped; steps skipped since the last line, in all, in a row.
        """
        if self._waiting:
            numbers, tokens = zip(*self._waiting, strict=True)
            self._waiting = []
            for (cross_entropy, norm, skipped), count in zip(torch.stack(numbers).tolist(), tokens, strict=True):
                kept = [0.0] * 4 if skipped else [cross_entropy, count, norm, 1.0]
                line, total, in_a_row = self._values[4:]
                sums = [value + more for value, more in zip(self._values, kept, strict=False)]
                self._values = [*sums, line + skipped, total + skipped, (in_a_row + 1) * skipped]
        return self._values

    def add(self, outcome: StepOutcome) -> None:
        """Add a step; of a skipped step only the skip is counted."""
        numbers = torch.stack([outcome.cross_entropy, outcome.norm, outcome.skipped])
        self._waiting.append((numbers, outcome.tokens))
        if len(self._waiting) >= MOST_WAITING:
            self.flush()

    def read(self) -> "Summary":
        """Wait for the device and read the sums."""
        cross_entropy, tokens, norm, steps, *broken = self.flush()
        if not steps:
            return Summary(math.nan, math.nan, *map(int, broken))
        return Summary(cross_entropy / tokens, norm / steps, *map(int, broken))

    def begin_line(self) -> None:
        """Start anew, except for what is counted over the whole run."""
        self._values = [0.0] * 5 + self.flush()[5:]


class Summary(NamedTuple):
    """Means over the steps since the last line of metrics, and counts of skipped steps."""

    loss: float
    norm: float
    skipped_now: int
    skipped: int
    skipped_in_a_row: int


class Origin(NamedTuple):
    """What a run is made of, beside how it is trained."""

    data: str = ""
    """A name for what the batches hold."""
    settings: Mapping[str, Mapping[str, Any]] = {}
    """The sections of the recipe that decide what any step does, such as those of the model."""


def to_json(state: TrainingState, config: TrainingConfig, origin: Origin) -> bytes:
    """The state as JSON, with the versions it was made by."""
    content = {
        "state": asdict(state),
        "config": asdict(config),
        **origin._asdict(),
        "order": ORDER,
        "made_by": made_by(),
    }
    return json.dumps(content, indent=1).encode()


def made_by() -> dict[str, str]:
    """Versions and hardware, on which the last digits of every number depend."""
    return {
        "jumok": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "threads": str(torch.get_num_threads()),
    }


def from_json(content: bytes, path: object) -> tuple[TrainingState, dict[str, Any]]:
    """The state, and the rest of what `to_json` wrote; a CheckpointError where `path` holds something else."""
    known = {item.name for item in fields(TrainingState)}
    try:
        rest = json.loads(content)
        values = {name: value for name, value in rest.pop("state").items() if name in known}
        right = all(IS_VALID[name](value) for name, value in values.items()) and all(
            isinstance(rest.get(name), kind) for name, kind in REST.items()
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        right = False
    if not right:
        raise CheckpointError(
            f"{path} is damaged: it does not hold the state of a run; copy the checkpoint again, or delete it to "
            "continue from the one before"
        )
    return TrainingState(**values), rest


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < 2**63)


def _are_scores(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and all(map(_is_number, value.values())))


COUNTS = ("step", "epoch", "index", "tokens", "waited", "validated", "splits", "batches")
IS_VALID: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(COUNTS, _is_count),
    "seconds": _is_number,
    "best": lambda value: value is None or _is_number(value),
    "best_step": lambda value: value is None or _is_count(value),
    "best_scores": _are_scores,
    "sums": lambda value: isinstance(value, list) and len(value) in (0, SUMS) and all(map(_is_number, value)),
}
"""What a field of the state may be."""
REST = {"config": dict, "settings": dict, "data": str, "made_by": dict}
"""What stands beside the state."""


def check_same_data(saved: dict[str, Any], origin: Origin, folder: object) -> None:
    """Raise a ConfigError if a resumed run has other data than the saved one."""
    if saved["data"] != origin.data:
        raise ConfigError(f"the training data is not what this run began with; {_advice(folder)}")


def check_same_settings(saved: dict[str, Any], config: TrainingConfig, origin: Origin, folder: object) -> None:
    """Raise a ConfigError with every setting that differs between a resumed run and the saved one."""
    if saved.get("order") != ORDER:
        raise ConfigError(
            f"{folder} holds a run of another version of jumok, whose batches came in another order, so it cannot "
            "be continued exactly; continue with that version, or train into another folder"
        )
    free = MAY_CHANGE - {"steps"} if config.schedule == "cosine" else MAY_CHANGE
    trained = {name: value for name, value in asdict(config).items() if name not in free}
    now = json.loads(json.dumps({"training": trained, **origin.settings}))
    before = {"training": saved["config"], **saved["settings"]}
    changed = [
        (f"{section}.{name}", was, value)
        for section, settings in now.items()
        for name, value in settings.items()
        if (was := before.get(section, {}).get(name, value)) != value
    ]
    if [name for name, _, _ in changed] == ["training.steps"]:
        raise ConfigError(
            f'training.steps was {changed[0][1]} and is now {config.steps}, but training.schedule = "cosine" ends at '
            f"training.steps; put it back{config.hint_to_train_further(folder)}"
        )
    if changed:
        difference = ", ".join(f"{name} was {_shown(was)} and is now {_shown(value)}" for name, was, value in changed)
        overrides = " ".join("--set " + shlex.quote(f"{name}={_shown(was)}") for name, was, _ in changed)
        raise ConfigError(f"{difference}; {_advice(folder, f'repeat {overrides}, put it back in the recipe')}")


def _advice(folder: object, remedy: str = "put it back") -> str:
    kept = "a resumed run needs the settings and data it started with"
    return f"{kept}: {remedy}, or train into another folder than {folder}"


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
