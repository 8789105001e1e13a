"""Write benchmark results as JSON, and the tables of the documentation from them.

    python -m benchmarks.results        updates every table in the READMEs and docs/

A page marks the place of a table. The table has all rows of results/NAME.json, or those whose id begins with PREFIX and
the row of GOAL; benchmarks/labels.py names its lines and columns.

    <!-- table: NAME PREFIX GOAL -->
    <!-- end -->
"""

import datetime
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import jumok
from benchmarks.commands import MARKED, ROOT
from benchmarks.labels import KOREAN, LABELS, SYSTEMS_DOWN

FOLDER = Path(os.environ.get("JUMOK_RESULTS", ROOT / "benchmarks/results"))

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
    "low-resource-de-en": "German to English, 4,600 pairs",
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
OTHER_UNITS = ("-bleu", "-speed", "-kept")
"""Endings of ids whose number stands on the line of the id without it, in the column of its unit."""


class Row(NamedTuple):
    """One measurement: of what, of whom, how much, and under which conditions. No value means not run."""

    id: str
    system: str
    value: float | None
    unit: str
    conditions: str


def write(
    name: str,
    rows: Iterable[Row],
    *,
    device: str,
    packages: Iterable[str] = ("torch",),
    others: Mapping[str, str] | None = None,
) -> Path:
    """Write results/NAME.json; `others` are the versions of packages of other environments."""
    versions = {"python": platform.python_version(), "jumok": jumok.__version__, **versions_of(packages)}
    versions |= others or {}
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    path = FOLDER / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join("  " + json.dumps(row._asdict(), ensure_ascii=False) for row in rows)
    head = json.dumps({"device": device, "versions": versions, "date": date}, ensure_ascii=False)[:-1]
    path.write_text(f'{head}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    return path


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    return {package: version(package) for package in packages}


def version_in(python: str, package: str) -> str:
    """The version of a package in the environment of another Python."""
    program = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def saved(name: str) -> list[Row]:
    """The rows of results/NAME.json; none if the file is not there."""
    path = FOLDER / f"{name}.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []
    return [Row(**row) for row in rows]


def installed(*packages: str) -> list[str]:
    """Those of the packages that are installed."""
    return [package for package in packages if find_spec(package)]


def table(name: str, prefix: str = "", goal: str = "", *, korean: bool = False) -> str:
    """A line for each measurement and a column for each system, or the other way round for SYSTEMS_DOWN.

    A standard deviation follows its mean, "63.45 ± 0.22". Several numbers of one system on one line have a column for
    each unit. If all rows have one unit, it stands in the corner of the table, otherwise in every cell.
    """
    rows = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    rows = [row for row in rows if row["id"].startswith(prefix) or row["id"] == goal]
    deviations = {(row["id"], row["system"]): row for row in rows if row["id"].endswith("-deviation")}
    rows = [row for row in rows if (row["id"], row["system"]) not in deviations]
    ids, units = {row["id"] for row in rows}, {row["unit"] for row in rows}
    by_unit = any(_base(id) != id and _base(id) in ids for id in ids)
    with_unit = len(units) > 1 and not by_unit
    cells: dict[tuple[str, str], str] = {}
    for row in rows:
        line = GOALS.get(goal, goal) if row["id"] == goal else _base(row["id"]).removeprefix(prefix) or row["id"]
        place = line, row["unit"] if by_unit else row["system"]
        deviation = deviations.get((f"{row['id']}-deviation", row["system"]))
        cells[place[::-1] if name in SYSTEMS_DOWN else place] = _cell(row, deviation, with_unit=with_unit)
    corner = units.pop() if len(units) == 1 else ""
    return _markdown(cells, LABELS.get(name, {}) | (KOREAN.get(name, {}) if korean else {}), corner)


def _base(id: str) -> str:
    """The id on whose line this one stands."""
    return next((id.removesuffix(ending) for ending in OTHER_UNITS if id.endswith(ending)), id)


def _markdown(cells: dict[tuple[str, str], str], labels: dict[str, str], corner: str) -> str:
    lines, columns = (list(dict.fromkeys(names)) for names in zip(*cells, strict=True))
    heads = " | ".join(labels.get(column, column) for column in columns)
    text = [f"| {labels.get(corner, corner)} | {heads} |", "|---" * (1 + len(columns)) + "|"]
    for line in lines:
        values = " | ".join(cells.get((line, column), "") for column in columns)
        text.append(f"| {labels.get(line, line)} | {values} |")
    return "\n".join(text) + "\n"


def with_tables(page: str, *, korean: bool = False) -> str:
    """The page with every marked table made anew."""
    return MARKED.sub(
        lambda match: match[1] + table(match[2], match[3] or "", match[4] or "", korean=korean) + match[6], page
    )


def is_korean(page: Path) -> bool:
    """Whether the tables of a page have Korean labels."""
    return page.name.endswith(".ko.md")


def cpu() -> str:
    """The processor's name, family and model, as far as the system tells: some names cover several generations."""
    try:
        about = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        about = ""
    names = re.findall(r"^model name\s*: (.+)", about, re.MULTILINE)[:1] or [platform.processor() or platform.machine()]
    for field, name in {"cpu family": "family", "model": "model"}.items():
        names += [f"{name} {number}" for number in re.findall(rf"^{field}\s*: (\d+)", about, re.MULTILINE)[:1]]
    return ", ".join(names)


def _cell(row: dict[str, Any], deviation: dict[str, Any] | None, *, with_unit: bool) -> str:
    if row["value"] is None:
        return row["conditions"].partition(";")[0]
    number = _number(row) if deviation is None else f"{_number(row)} ± {_number(deviation)}"
    return f"{number} {row['unit']}".rstrip() if with_unit else number


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
        if (made := with_tables(text, korean=is_korean(page))) != text:
            page.write_text(made, encoding="utf-8")
            print(f"updated {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
