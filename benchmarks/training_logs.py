"""Small logs of training runs, to be committed: results/logs/BENCHMARK.MODEL.jsonl or BENCHMARK.MODEL.SEED.jsonl.

A log has the lines of metrics.jsonl with validation scores, or MOST of them at equal distances, and the last line of a
training step, with its loss, speed and time.
"""

import json
from pathlib import Path

from benchmarks import results
from jumok.training.metrics import read_metrics
from jumok.training.progress import Record

MOST = 40
"""Lines of a log."""
PATTERNS = ("*/metrics.jsonl", "*/*/metrics.jsonl", "*.*.metrics.jsonl")


def keep_logs(benchmark: str, folder: Path) -> list[Path]:
    """Write the logs of all runs in FOLDER: MODEL/metrics.jsonl, MODEL/SEED/metrics.jsonl, MODEL.SEED.metrics.jsonl."""
    logs = results.FOLDER / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    written = []
    files = [path for pattern in PATTERNS for path in folder.glob(pattern)]
    for metrics in sorted(files):
        run = ".".join(metrics.relative_to(folder).parts).removesuffix(".metrics.jsonl")
        log = logs / f"{benchmark}.{run}.jsonl"
        log.write_text("".join(f"{line(record)}\n" for record in thinned(read_metrics(metrics))), encoding="utf-8")
        written.append(log)
    return written


def thinned(records: list[Record]) -> list[Record]:
    """Validations at equal distances, with the best and the last one, and the last training step, in their order."""
    validations = [place for place, record in enumerate(records) if "validation" in record]
    steps = [place for place, record in enumerate(records) if "validation" not in record]
    best = [place for place in validations if records[place].get("best")]
    distance = -(-len(validations) // (MOST - 3))
    kept = {*validations[:: distance or 1], *validations[-1:], *best[-1:], *steps[-1:]}
    return [records[place] for place in sorted(kept)]


def line(record: Record) -> str:
    """One line of JSON, with six digits of every number."""
    return json.dumps(json.loads(json.dumps(record), parse_float=lambda digits: float(f"{float(digits):.6g}")))
