"""The numbers of a run: metrics.jsonl and TensorBoard, and the recorder that sums them up over the steps."""

import importlib.util
import json
import math
import time
from pathlib import Path
from typing import Any

from jumok.errors import DataError, TrainingError
from jumok.files import atomic_write, parse_json
from jumok.training.loss import perplexity
from jumok.training.processes import current_processes
from jumok.training.progress import Record, Report
from jumok.training.state import Summary, Sums, TrainingState
from jumok.training.step import StepOutcome


class Metrics:
    """Appends records; a resumed run first removes those of steps after its checkpoint."""

    def __init__(self, folder: Path, *, step: int, validated: int) -> None:
        self.path = folder / "metrics.jsonl"
        cut_after(self.path, step=step, validated=validated)
        try:
            self._file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            raise _unwritable(self.path, error) from None
        self._board = _tensorboard(folder / "tensorboard", step)

    def write(self, record: Record) -> None:
        """Append one line; numbers that are not finite become null."""
        try:
            self._file.write(json.dumps(_finite(record)) + "\n")
            self._file.flush()
        except OSError as error:
            raise _unwritable(self.path, error) from None
        if self._board is not None:
            for name, value in _flat(record):
                self._board.add_scalar(name, value, record["step"])

    def close(self) -> None:
        """Finish the files."""
        self._file.close()
        if self._board is not None:
            self._board.close()


def read_metrics(path: str | Path) -> list[Record]:
    """The records of a metrics file; a last line that was cut short is left out."""
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(dict(parse_json(line)))
        except (ValueError, TypeError):
            if number < len(lines):
                raise DataError(f"{path}, line {number}: not a JSON object; delete the line") from None
    return records


def cut_after(path: Path, *, step: int, validated: int) -> None:
    """Leave only the lines up to `step`, and of validations those up to `validated`."""
    if not path.exists():
        return
    kept = [
        record for record in read_metrics(path) if record["step"] <= (validated if "validation" in record else step)
    ]
    with atomic_write(path) as file:
        file.write("".join(json.dumps(record) + "\n" for record in kept).encode())


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _flat(record: Record) -> list[tuple[str, float]]:
    scores = record.get("validation", record)
    section = "validation" if "validation" in record else "training"
    return [(f"{section}/{name}", value) for name, value in scores.items() if name != "step"]


def _tensorboard(folder: Path, step: int) -> Any | None:
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    try:
        return SummaryWriter(str(folder), purge_step=step + 1)
    except OSError as error:
        raise DataError(
            f"cannot write into {folder}, for TensorBoard: {error.strerror or error}; move it away"
        ) from None


def _unwritable(path: Path, error: OSError) -> DataError:
    return DataError(
        f"cannot write {path}: {error.strerror or error}; training stopped; the checkpoints are intact: "
        "continue with the same command and --resume (in Python resume=True)"
    )


HOPELESS = 100
"""Consecutive steps without a finite gradient after which training gives up."""
ADVICE = "lower training.learning_rate, lengthen training.warmup, or set training.clip"


class DivergedError(TrainingError):
    """Training whose numbers are no longer finite."""

    def __init__(self, what: str) -> None:
        self.what = f"{what}, so nothing is learned any more"
        self.advice = f"{ADVICE}, and train into another folder"
        super().__init__(f"{self.what}; {self.advice}")


class Recorder:
    """Writes metrics.jsonl in `folder`, in the leading process, and reports progress; also the clock of the run."""

    def __init__(self, folder: Path, state: TrainingState, report: Report) -> None:
        self.report, self._folder = report, folder
        self._sums = Sums(state.sums)
        leads = current_processes().leads
        self._metrics = Metrics(folder, step=state.step, validated=state.validated) if leads else None
        self._last = time.monotonic()
        self._tokens, self._seconds = 0, 0.0

    @property
    def path(self) -> Path:
        """The file of metrics."""
        return self._folder / "metrics.jsonl"

    def step(self, state: TrainingState, outcome: StepOutcome) -> None:
        """Count a step that has been done."""
        self._sums.add(outcome)
        self._tokens += outcome.tokens
        self._seconds += self.tick(state)
        self.report.step(state.step)

    def line(self, state: TrainingState, *, rate: float) -> None:
        """Write the means since the last line."""
        summary = self._sums.read()
        self._sums.begin_line()
        self._seconds += self.tick(state)
        record = {
            "step": state.step,
            "epoch": state.epoch,
            "loss": summary.loss,
            "perplexity": perplexity(summary.loss),
            "learning_rate": rate,
            "gradient_norm": summary.norm,
            "tokens": state.tokens,
            "skipped": summary.skipped,
            "tokens_per_second": self._tokens / max(self._seconds, 1e-9),
            "seconds": state.seconds,
        }
        self._tokens, self._seconds = 0, 0.0
        self._write(record)
        if summary.skipped_in_a_row >= HOPELESS:
            raise DivergedError(f"the gradients of the last {summary.skipped_in_a_row} steps were not finite")
        self._say_skipped(state, summary)

    def report_skipped(self, state: TrainingState) -> None:
        """Report the steps skipped since the last line."""
        self._say_skipped(state, self._sums.read())

    def validation(self, state: TrainingState, scores: dict[str, float], *, best: bool) -> None:
        """Write the scores of a validation."""
        self.tick(state)
        self._write({"step": state.step, "validation": scores, "best": best, "seconds": state.seconds})

    def broken(self, state: TrainingState) -> DivergedError:
        """What to say when a validation has no finite loss; no step since the one that broke it was kept."""
        return DivergedError(f"the loss is not finite since step {state.step - self._sums.read().skipped_in_a_row}")

    def tick(self, state: TrainingState) -> float:
        """Add the time since the last call to the run's clock, and return it."""
        now = time.monotonic()
        passed, self._last = now - self._last, now
        state.seconds += passed
        return passed

    def sums(self) -> list[float]:
        """What a checkpoint saves to resume in the middle of a line."""
        return self._sums.flush()

    def close(self) -> None:
        """Finish the file."""
        if self._metrics is not None:
            self._metrics.close()

    def _write(self, record: Record) -> None:
        if self._metrics is not None:
            self._metrics.write(record)
        self.report.record(record)

    def _say_skipped(self, state: TrainingState, summary: Summary) -> None:
        if summary.skipped_now:
            self.report.say(
                f"step {state.step}: {summary.skipped_now} steps since the last line were skipped because their "
                f"gradients were not finite; if this continues, {ADVICE}"
            )
