"""What benchmarks measured: written as JSON, shown in the documentation as tables made from it.

    python -m benchmarks.results        brings every table of the READMEs and docs/ up to date

A page says where a table goes, with all rows of results/NAME.json or those whose id begins with PREFIX, and the row of
a goal among them:

    <!-- table: NAME PREFIX GOAL -->
    <!-- end -->
"""

import datetime
import json
import os
import platform
import re
from collections.abc import Iterable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import jumok

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(os.environ.get("JUMOK_RESULTS", ROOT / "benchmarks/results"))
MARKED = re.compile(r"(<!-- table: (\S+)(?: (\S+))?(?: (\S+))? -->\n)(.*?)(<!-- end -->)", re.DOTALL)

GOALS = {
    "additive-forward": "B16 T512 d256",
    "additive-train": "B16 T512 d256",
    "attend-causal": "bf16 [16, 16, 1024, 64], causal",
    "attend-lengths": "bf16 [16, 16, 1024, 64], lengths",
    "rnnsearch-train": "B128 T32, GRU of 512, bf16",
    "transformer-train": "base, 400 × 64 tokens, bf16",
    "gpu-decode": "base, beam 5, 128 × 32 tokens",
    "gat-train": "GAT, 200k nodes, 8M edges, 8 × 32",
    "gat-memory": "GAT, 200k nodes, 8M edges, 8 × 32",
    "gatv2-train": "GATv2, 200k nodes, 8M edges, 8 × 32",
    "kernel-regression-1m": "gaussian, 1M × 1M, 3-D, h = 1",
    "cpu-decode": "base, beam 5, two cores",
    "cpu-latency": "base, beam 5, one thread",
    "cpu-train-rnn": "rnn",
    "cpu-train-rnn-luong": "rnn-luong",
    "cpu-train-transformer": "transformer",
    "multi30k-en-de-2016": "2016",
    "g2p-2021-high": "high",
    "g2p-2021-medium": "medium",
    "g2p-2021-low": "low",
    "inflection-kor-large": "large",
    "inflection-kor-small": "small",
    "cora": "cora",
    "citeseer": "citeseer",
    "aer-enfr": "English-French",
    "aer-zhen": "Chinese-English",
    "enko-l10n": "English to Korean, catalogues of the training text",
    "enko-l10n-heldout": "English to Korean, other catalogues",
    "koen-l10n": "Korean to English, catalogues of the training text",
    "koen-l10n-heldout": "Korean to English, other catalogues",
    "resume-kills": "resume-kills",
}
"""The measurements by which the project is judged, each under exactly this id, and what a table calls it."""
BESIDE = ("-cased", "-deviation", "-best-join", "-bleu", "-heldout-bleu", "-kept")
"""What the id of a goal may be followed by: another number of the same run. Other work has ids that begin otherwise."""


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
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join("  " + json.dumps(row._asdict(), ensure_ascii=False) for row in rows)
    head = json.dumps({"device": device, "versions": versions, "date": date}, ensure_ascii=False)[:-1]
    path.write_text(f'{head}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    return path


def installed(*packages: str) -> list[str]:
    """Those of the packages that are installed."""
    return [package for package in packages if find_spec(package)]


def table(name: str, prefix: str = "", goal: str = "") -> str:
    """A line for each id, a column for each system; the unit stands above the lines, or in them where it is not one."""
    rows = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    rows = [row for row in rows if row["id"].startswith(prefix) or row["id"] == goal]
    systems = list(dict.fromkeys(row["system"] for row in rows))
    units = {row["unit"] for row in rows}
    found = {(row["id"], row["system"]): row for row in rows}
    above = units.pop() if len(units) == 1 else ""
    lines = [f"| {above} | {' | '.join(systems)} |", "|---" * (1 + len(systems)) + "|"]
    for one in dict.fromkeys(row["id"] for row in rows):
        cells = [_cell(found.get((one, system)), with_unit=not above) for system in systems]
        lines.append(f"| {GOALS[one] if one == goal else one.removeprefix(prefix) or one} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def with_tables(page: str) -> str:
    """The page with every marked table made anew."""
    return MARKED.sub(lambda found: found[1] + table(found[2], found[3] or "", found[4] or "") + found[6], page)


def cpu() -> str:
    """The processor's name, as far as the system tells."""
    try:
        names = re.findall(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def _cell(row: dict[str, Any] | None, *, with_unit: bool) -> str:
    if row is None:
        return ""
    if row["value"] is None:
        return row["conditions"].partition(";")[0]
    return f"{_number(row)} {row['unit']}" if with_unit else _number(row)


def _number(row: dict[str, Any]) -> str:
    value = row["value"]
    if row["unit"] == "BLEU":
        return f"{value:.2f}"
    if row["unit"] == "%":
        return f"{value:.1f}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    for page in [*sorted(ROOT.glob("README*.md")), *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        if with_tables(text) != text:
            page.write_text(with_tables(text), encoding="utf-8")
            print(f"updated {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
