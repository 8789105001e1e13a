"""Progress of training on standard error: a bar in a terminal, lines in a log file."""

import sys
import time
from typing import TYPE_CHECKING, Any

from jumok.screen import to_screen
from jumok.training.score_names import score_text

if TYPE_CHECKING:
    from rich.progress import Progress

Record = dict[str, Any]
"""A line: "step" and either the means since the last one, or the scores of a "validation"."""


class Report:
    """Receives the events of a training run; this base class ignores them."""

    unit = "tok"
    """What the task counts."""
    resumes = True
    """Whether the user can continue the run with --resume."""

    def begin(self, *, step: int, steps: int, minutes: float, seconds: float) -> None:
        """Training starts after `step`; `seconds` of its `minutes` are used up."""

    def step(self, step: int) -> None:
        """A step is done."""

    def record(self, record: Record) -> None:
        """A line of metrics was written."""

    def say(self, message: str) -> None:
        """Show a message."""

    def end(self) -> None:
        """Training is over, whatever the reason."""


class LineReport(Report):
    """A line for every record, for log files."""

    def say(self, message: str) -> None:
        """Print the message."""
        to_screen(message)

    def begin(self, *, step: int, steps: int, minutes: float, seconds: float) -> None:
        """Start the clock."""
        self._left = TimeLeft(step=step, steps=steps, minutes=minutes, seconds=seconds)
        self._of = "" if minutes else f"/{steps}"  # which of the two limits ends training is not known before

    def record(self, record: Record) -> None:
        """Print the record as a line."""
        place = f"step {record['step']}{self._of}"
        if "validation" in record:
            self.say(f"{place}  validation: {scores(record)}")
        else:
            self.say(f"{place}  {numbers(record, self.unit)}  {clock(self._left.after(record['step']))} left")


class BarReport(Report):
    """A bar with the step, loss, tokens a second, time left and last validation."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._fields = {"numbers": "", "left": "", "validation": ""}

    def begin(self, *, step: int, steps: int, minutes: float, seconds: float) -> None:
        """Draw the bar."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._left = TimeLeft(step=step, steps=steps, minutes=minutes, seconds=seconds)
        self._bar = Progress(
            TextColumn("step {task.fields[place]}"),
            BarColumn(bar_width=12),
            TextColumn("{task.fields[numbers]}"),
            TextColumn("[dim]{task.fields[left]}"),
            TextColumn("[green]{task.fields[validation]}"),
            console=Console(stderr=True),
            refresh_per_second=4,
        )
        self._of = "" if minutes else f"/{steps}"
        self._task = self._bar.add_task("training", total=1.0)
        self._show(step)
        self._bar.start()

    def step(self, step: int) -> None:
        """Move the bar."""
        if self._bar is not None:
            self._fields["left"] = f"{clock(self._left.after(step))} left"
            self._show(step)

    def record(self, record: Record) -> None:
        """Show the newest numbers beside the bar."""
        if "validation" in record:
            self._fields["validation"] = last_score(record)
            self.say(f"step {record['step']}: {scores(record)}")
        else:
            self._fields["numbers"] = numbers(record, self.unit)
        if self._bar is not None:
            self._show(record["step"])

    def say(self, message: str) -> None:
        """Print the message above the bar."""
        if self._bar is None:
            to_screen(message)
        else:
            self._bar.console.print(message, markup=False, highlight=False)

    def _show(self, step: int) -> None:
        fields: dict[str, Any] = self._fields
        assert self._bar is not None
        self._bar.update(self._task, completed=self._left.done(step), place=f"{step}{self._of}", **fields)

    def end(self) -> None:
        """Stop updating the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def report_to_stderr() -> Report:
    """A bar if standard error is a terminal, else lines."""
    return BarReport() if sys.stderr.isatty() else LineReport()


class TimeLeft:
    """How long training will still take, by the pace so far and the limits of steps and minutes."""

    def __init__(self, *, step: int, steps: int, minutes: float, seconds: float) -> None:
        self._first, self._steps = step, steps
        self._started = time.monotonic()
        self._limit = 60 * minutes
        self._deadline = self._started + self._limit - seconds if minutes else None

    def after(self, step: int) -> float | None:
        """Seconds left after `step`; None while the pace is unknown."""
        now = time.monotonic()
        left = (self._steps - step) * (now - self._started) / (step - self._first) if step > self._first else None
        if self._deadline is None:
            return left
        by_clock = max(self._deadline - now, 0.0)
        return by_clock if left is None else min(left, by_clock)

    def done(self, step: int) -> float:
        """The share of training that is done, by the limit that will be reached first."""
        by_steps = step / self._steps
        if self._deadline is None:
            return by_steps
        return min(max(by_steps, 1 - (self._deadline - time.monotonic()) / self._limit), 1.0)


def numbers(record: Record, unit: str = "tok") -> str:
    """Loss, pace and other numbers of a record, as text."""
    text = f"loss {record['loss']:.3f}  {pace(record['tokens_per_second'])} {unit}/s"
    return text + (f"  {record['skipped']} skipped" if record["skipped"] else "")


def scores(record: Record) -> str:
    """The scores of a validation, a star where they are the best so far."""
    text = "  ".join(score_text(name, value) for name, value in record["validation"].items())
    return text + (" *" if record["best"] else "")


def last_score(record: Record) -> str:
    """One score of a validation, where there is no room for all: the last, because perplexity repeats the loss."""
    name, value = [item for item in record["validation"].items() if item[0] != "perplexity"][-1]
    return score_text(name, value) + (" *" if record["best"] else "")


def pace(rate: float) -> str:
    """12345.6 as 12.3k."""
    return f"{rate / 1000:.1f}k" if rate >= 1000 else f"{rate:.0f}"


def clock(seconds: float | None) -> str:
    """Seconds as 1:02:03, or 2:03."""
    if seconds is None:
        return "-:--"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
