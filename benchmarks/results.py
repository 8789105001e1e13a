"""What benchmarks measured: written as JSON, shown in the documentation as tables made from it.

    python -m benchmarks.results        brings every table of README.md and docs/ up to date

A page says where a table goes, with all rows of results/NAME.json or those whose id begins with PREFIX:

    <!-- table: NAME PREFIX -->
    <!-- end -->
"""

import datetime
import json
import platform
import re
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jumok

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "benchmarks/results"
MARKED = re.compile(r"(<!-- table: (\S+)(?: (\S+))? -->\n)(.*?)(<!-- end -->)", re.DOTALL)


class Row(NamedTuple):
    """One measurement: of what, of whom, how much, and under which conditions. No value means not run."""

    id: str
    system: str
    value: float | None
    unit: str
    conditions: str


def write(name: str, rows: Iterable[Row], *, device: str, packages: Iterable[str] = ("torch",)) -> Path:
    """Write results/NAME.json."""
    versions = {
        "python": platform.python_version(),
        "jumok": jumok.__version__,
        **{package: version(package) for package in packages},
    }
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    path = FOLDER / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    lines = ",\n".join("  " + json.dumps(row._asdict(), ensure_ascii=False) for row in rows)
    head = json.dumps({"device": device, "versions": versions, "date": date}, ensure_ascii=False)[:-1]
    path.write_text(f'{head}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    return path


def table(name: str, prefix: str = "") -> str:
    """A line for each id, a column for each system."""
    rows = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    rows = [row for row in rows if row["id"].startswith(prefix)]
    systems = list(dict.fromkeys(row["system"] for row in rows))
    units = {row["unit"] for row in rows}
    found = {(row["id"], row["system"]): row for row in rows}
    lines = [f"| {' / '.join(sorted(units))} | {' | '.join(systems)} |", "|---" * (1 + len(systems)) + "|"]
    for one in dict.fromkeys(row["id"] for row in rows):
        cells = [_cell(found.get((one, system))) for system in systems]
        lines.append(f"| {one.removeprefix(prefix)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def with_tables(page: str) -> str:
    """The page with every marked table made anew."""
    return MARKED.sub(lambda found: found[1] + table(found[2], found[3] or "") + found[5], page)


def cpu() -> str:
    """The processor's name, as far as the system tells."""
    try:
        names = re.findall(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    if row["value"] is None:
        return row["conditions"].partition(";")[0]
    value = row["value"]
    if row["unit"] == "BLEU":
        return f"{value:.2f}"
    if row["unit"] == "%":
        return f"{value:.1f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        if with_tables(text) != text:
            page.write_text(with_tables(text), encoding="utf-8")
            print(f"updated {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
