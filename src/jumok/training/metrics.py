"""What was measured while training: one JSON object a line in metrics.jsonl, and TensorBoard where it is installed."""

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

from jumok.errors import DataError
from jumok.files import atomic_write, parse_json

Record = dict[str, Any]
"""A line: "step" and either the means since the last one, or the scores of a "validation"."""


class Metrics:
    """Appends records; a resumed run first cuts those the lost steps had written."""

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
        f"cannot write {path}: {error.strerror or error}; training stopped, checkpoints are whole, "
        "go on with the same command and --resume"
    )
