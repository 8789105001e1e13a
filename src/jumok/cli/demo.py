"""`jumok demo`: attention before neural networks, as kernel regression and as a database that answers softly."""

import json as as_json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from jumok.errors import ArgumentError

if TYPE_CHECKING:
    from jumok.models import Answer

SURNAMES = [
    ("Zhang", "Aston"),
    ("Lipton", "Zachary"),
    ("Li", "Mu"),
    ("Smola", "Alex"),
    ("Hu", "Rachel"),
    ("Werness", "Brent"),
]
QUERIES = ("Li", "Lipson", "Smol", "허")


@dataclass(frozen=True)
class Row:
    """How one kernel did."""

    kernel: str
    bandwidth: float | None
    rmse: float


def demo(
    out: Annotated[Path, Option(help="Folder for the pictures; made if it is not there.")] = Path("demo"),
    json: Annotated[bool, Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Kernel regression and the soft database: the oldest forms of attention, in a few seconds."""
    _make_folder(out)
    print("jumok: importing PyTorch, fitting and drawing ...", file=sys.stderr)
    from jumok.analysis.regression_picture import NoisySine, draw_bandwidths, draw_kernels
    from jumok.models import SoftDatabase

    data = NoisySine.draw()
    rows = [_measured(data, kernel) for kernel in ("constant", "boxcar", "triangular", "epanechnikov", "gaussian")]
    pictures = [draw_kernels(out / "kernels.png", data), draw_bandwidths(out / "bandwidths.png", data)]
    database = SoftDatabase(SURNAMES)
    answers = [database(query) for query in QUERIES]
    if json:
        print(as_json.dumps(_plain(rows, answers, pictures), ensure_ascii=False, indent=2))
    else:
        _show(rows, answers, noise=data.noise)
    for picture in pictures:
        print(f"jumok: wrote {picture}", file=sys.stderr)


def _make_folder(out: Path) -> None:
    """Make the folder, and find out whether it can be written to before any work is done."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".jumok-can-write"
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = error.strerror or error
        raise ArgumentError(f"cannot write into the folder {out} ({reason}); choose another with --out") from None


def _measured(data: Any, kernel: str) -> Row:
    from jumok.models import KernelRegressor

    fit = data.fit(KernelRegressor(kernel))
    return Row(kernel, None if kernel == "constant" else fit.bandwidth_, data.error(fit))


def _plain(rows: list[Row], answers: list["Answer"], pictures: list[Path]) -> dict[str, Any]:
    return {
        "regression": [asdict(row) for row in rows],
        "database": [
            {
                "query": answer.query,
                "value": answer.value,
                "weights": [{"key": key, "value": value, "weight": weight} for key, value, weight in answer.weights],
            }
            for answer in answers
        ],
        "pictures": [str(picture) for picture in pictures],
    }


def _show(rows: list[Row], answers: list["Answer"], *, noise: float) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    console.print("[bold]Kernel regression[/]: ŷ(x) = Σ α(x, xᵢ) yᵢ", soft_wrap=True)
    console.print(
        f"50 points of y = 2 sin x + x, noise of standard deviation {noise}; bandwidths by leave-one-out. "
        "The error is the root mean squared distance to the true curve.",
        soft_wrap=True,
    )
    console.print(_table(rows))
    console.print()
    console.print("[bold]Soft database[/]: every key answers by how much it resembles the query", soft_wrap=True)
    console.print("{" + ", ".join(f"({key}, {value})" for key, value in SURNAMES) + "}", soft_wrap=True, markup=False)
    for answer in answers:
        first, *weights = str(answer).splitlines()
        console.print(f"\n[bold]{first}[/]", soft_wrap=True)
        console.print("\n".join(weights), soft_wrap=True, markup=False)


def _table(rows: list[Row]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("kernel")
    table.add_column("bandwidth", justify="right")
    table.add_column("error", justify="right")
    best = min(row.rmse for row in rows)
    for row in rows:
        bandwidth = "–" if row.bandwidth is None else f"{row.bandwidth:.2f}"
        name = "plain mean" if row.kernel == "constant" else row.kernel
        table.add_row(name, bandwidth, f"{row.rmse:.3f}", style="bold" if row.rmse == best else None)
    return table
