"""The first part of `jumok demo`: attention before neural networks, kernel regression and a soft database."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from jumok.soft_database import Answer

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


class Beginnings(NamedTuple):
    """What the oldest forms of attention give."""

    noise: float
    rows: list[Row]
    answers: list["Answer"]
    pictures: list[Path]


def begin(out: Path) -> Beginnings:
    """Fit every kernel, ask the database, and draw the pictures into `out`."""
    from jumok.regression.picture import NoisySine, draw_bandwidths, draw_kernels
    from jumok.soft_database import SoftDatabase

    data = NoisySine.draw()
    rows = [_measured(data, kernel) for kernel in ("constant", "boxcar", "triangular", "epanechnikov", "gaussian")]
    pictures = [draw_kernels(out / "kernels.png", data), draw_bandwidths(out / "bandwidths.png", data)]
    database = SoftDatabase(SURNAMES)
    return Beginnings(data.noise, rows, [database(query) for query in QUERIES], pictures)


def _measured(data: Any, kernel: str) -> Row:
    from jumok.regression.estimator import KernelRegressor

    fit = data.fit(KernelRegressor(kernel))
    return Row(kernel, None if kernel == "constant" else fit.bandwidth_, data.error(fit))


def as_plain(found: Beginnings) -> dict[str, Any]:
    """The same for JSON."""
    return {
        "regression": [asdict(row) for row in found.rows],
        "database": [
            {
                "query": answer.query,
                "value": answer.value,
                "weights": [{"key": key, "value": value, "weight": weight} for key, value, weight in answer.weights],
            }
            for answer in found.answers
        ],
        "pictures": [str(picture) for picture in found.pictures],
    }


def show(found: Beginnings, console: Any) -> None:
    """Print a table of errors and the database's answers."""
    console.print("[bold]Kernel regression[/]: ŷ(x) = Σ α(x, xᵢ) yᵢ", soft_wrap=True)
    console.print(
        f"50 points of y = 2 sin x + x, noise of standard deviation {found.noise}; bandwidths by leave-one-out. "
        "The error is the root mean squared distance to the true curve.",
        soft_wrap=True,
    )
    console.print(_table(found.rows))
    console.print()
    console.print("[bold]Soft database[/]: every key answers by how much it resembles the query", soft_wrap=True)
    console.print("{" + ", ".join(f"({key}, {value})" for key, value in SURNAMES) + "}", soft_wrap=True, markup=False)
    for answer in found.answers:
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
