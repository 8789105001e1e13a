"""The commands that measure the tables of the READMEs and docs/; `make results` lists them.

    python -m benchmarks.commands              all tables, page by page
    python -m benchmarks.commands results.md   the tables of one page

The commands write benchmarks/results/NAME.json, and `python -m benchmarks.results` makes the tables from these files.
Listing them needs only Python. JUMOK_DATA is the folder with the corpora, which docs/data.md lists.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
MARKED = re.compile(r"(<!-- table: (\S+)(?: (\S+))?(?: (\S+))? -->\n)(.*?)(<!-- end -->)", re.DOTALL)
"""The mark of a table: the name of its results, the beginning of its ids, a goal among them; then the table."""


class Commands(NamedTuple):
    """How results are measured: commands to run in this order, on what, and how long they take.

    A time is what the script itself says, or only its order of magnitude, minutes or hours, which was not measured.
    """

    device: str
    time: str
    run: tuple[str, ...]
    data: bool = False
    """Whether JUMOK_DATA must name the corpora."""


GPU, CPU = "one GPU", "CPU"
SHORT_MODELS = "--systems hard-short transducer-short"
PEERS = "--peers opennmt=PYTHON eole=PYTHON joeynmt=PYTHON"

COMMANDS = {
    "additive_checks": Commands(GPU, "minutes", ("benchmarks.additive_checks",)),
    "additive_code": Commands(CPU, "minutes", ("benchmarks.additive_code",)),
    "additive_gpu": Commands(GPU, "minutes", ("benchmarks.additive_gpu",)),
    "additive_sanitizers": Commands(GPU, "minutes", ("benchmarks.additive_sanitizers",)),
    "alignment": Commands(
        "CPU and one GPU",
        "minutes",
        (
            "benchmarks.alignment_train prepare work",
            "benchmarks.alignment_train train work runs/alignment --stages full,full-null",
            "benchmarks.alignment text runs/alignment",
            "benchmarks.alignment peers runs/alignment",
            "benchmarks.alignment score runs/alignment",
        ),
        data=True,
    ),
    "attend_cpu": Commands(CPU, "minutes", ("benchmarks.attend_cpu",)),
    "attend_gpu": Commands(GPU, "minutes", ("benchmarks.attend_gpu",)),
    "attention_cpu": Commands(CPU, "five minutes", ("benchmarks.attention_cpu",)),
    "built_in": Commands(CPU, "five minutes", ("benchmarks.built_in runs/built-in",)),
    "bundled": Commands(
        CPU,
        "40 minutes",
        ("jumok train recipes/bundled-en-ko.toml --out runs/bundled", "benchmarks.bundle runs/bundled"),
    ),
    "captions": Commands(GPU, "minutes", ("benchmarks.captions runs/captions",), data=True),
    "claims_fine_tuning": Commands(
        CPU,
        "half an hour of one core",
        (
            "benchmarks.fine_tuning text",
            "benchmarks.fine_tuning train runs/fine-tuning",
            "benchmarks.fine_tuning score runs/fine-tuning",
        ),
        data=True,
    ),
    "claims_gradient": Commands(CPU, "minutes", ("benchmarks.claims gradient MODELS",), data=True),
    "claims_length": Commands(CPU, "minutes", ("benchmarks.claims length MODELS",), data=True),
    "claims_long": Commands(GPU, "minutes", ("benchmarks.claims long MODELS",), data=True),
    "claims_speed_cpu": Commands(CPU, "minutes", ("benchmarks.claims speed",)),
    "claims_speed_gpu": Commands(GPU, "minutes", ("benchmarks.claims speed --device cuda",)),
    "cpu_train": Commands(CPU, "minutes", (f"benchmarks.cpu_train {PEERS}",), data=True),
    "crash": Commands(CPU, "50 minutes at most", ("benchmarks.crash --kills 1000",)),
    "dataset": Commands(CPU, "five minutes", ("benchmarks.dataset",)),
    "decode_cpu": Commands(CPU, "minutes", (f"benchmarks.decode_cpu TRANSFORMER {PEERS}",), data=True),
    "decode_gpu": Commands(GPU, "minutes", ("benchmarks.decode_gpu",)),
    "decode_rows": Commands(CPU, "seconds", ("benchmarks.decode_rows",), data=True),
    "decoding": Commands(CPU, "minutes", ("benchmarks.decoding TRANSFORMER --rnn RNNSEARCH",), data=True),
    "fuzz": Commands(CPU, "minutes", ("benchmarks.fuzz",)),
    "g2p": Commands(
        "CPU and one GPU",
        "hours",
        (
            "benchmarks.g2p train runs/g2p --systems all --seeds 1",
            "benchmarks.g2p train runs/g2p --systems hard transducer --groups medium --seeds 1 2 3",
            "benchmarks.g2p train runs/g2p --systems hard transducer --groups low --seeds 1 2 3 4 5",
            f"benchmarks.g2p train runs/g2p {SHORT_MODELS} --groups high --seeds 1 2 3 --device cpu",
            "benchmarks.g2p score runs/g2p",
        ),
        data=True,
    ),
    "gpu": Commands(GPU, "55 minutes at most", ("benchmarks.gpu",), data=True),
    "graph_attention": Commands(GPU, "minutes", ("benchmarks.graph_attention",)),
    "graph_attention_cpu": Commands(CPU, "minutes", ("benchmarks.graph_attention_cpu",)),
    "graphs": Commands("CPU or one GPU", "hours", ("benchmarks.graphs run --seeds 100",), data=True),
    "inflection": Commands(
        "CPU and one GPU",
        "hours",
        (
            "benchmarks.inflection train runs/inflection --tasks large --systems transformer --seeds 1 2",
            "benchmarks.inflection train runs/inflection --tasks small --systems transformer rnnsearch --seeds 1",
            "benchmarks.inflection train runs/inflection --tasks small --systems hard --seeds 1 2 3 --device cpu",
            "benchmarks.inflection score runs/inflection",
        ),
        data=True,
    ),
    "l10n": Commands(
        GPU,
        "hours",
        (
            "benchmarks.l10n text text/l10n",
            "benchmarks.l10n train runs/l10n",
            "benchmarks.l10n score runs/l10n --more",
        ),
        data=True,
    ),
    "low_resource": Commands(
        GPU,
        "minutes",
        (
            "benchmarks.low_resource train runs/low-resource --workers 3",
            "benchmarks.low_resource score runs/low-resource",
        ),
        data=True,
    ),
    "multi30k": Commands(
        GPU,
        "hours",
        ("benchmarks.multi30k train runs/multi30k", "benchmarks.multi30k score runs/multi30k"),
        data=True,
    ),
    "multi30k_variants": Commands(GPU, "hours", ("benchmarks.multi30k variants runs/variants",), data=True),
    "multi30k_time": Commands(GPU, "minutes", ("benchmarks.multi30k time runs/multi30k",), data=True),
    "regression_cpu": Commands(CPU, "ten minutes", ("benchmarks.regression cpu",)),
    "regression_gpu": Commands(GPU, "two minutes", ("benchmarks.regression gpu",)),
    "resume_gpu": Commands(GPU, "minutes", ("benchmarks.resume_gpu runs/resume",), data=True),
    "rnn_gpu": Commands(GPU, "minutes", ("benchmarks.rnn_gpu",)),
    "sampled_batches": Commands(CPU, "a minute", ("benchmarks.sampled_batches",), data=True),
    "scale": Commands(
        "CPU and one GPU", "minutes", ("benchmarks.train_gpu", "benchmarks.scale prepare", "benchmarks.scale")
    ),
    "scale_gpu": Commands(GPU, "minutes", ("benchmarks.scale gpu",)),
    "scale_prepare": Commands(CPU, "minutes", ("benchmarks.scale prepare",)),
    "serve": Commands(CPU, "minutes", ("benchmarks.serve",)),
    "small_cpu": Commands(CPU, "minutes", ("benchmarks.small_cpu runs/small",), data=True),
    "soak": Commands(CPU, "75 seconds", ("benchmarks.soak",)),
    "train_curves": Commands(GPU, "minutes", ("benchmarks.train_curves",)),
    "train_curves_control": Commands(GPU, "minutes", ("benchmarks.train_curves control",)),
    "train_gpu": Commands(GPU, "minutes", ("benchmarks.train_gpu",)),
    "train_profile": Commands(GPU, "a minute", ("benchmarks.train_profile",)),
}
"""By the name of the results they write."""


class Table(NamedTuple):
    """A table of a page: the name of its results, and what the ids of its rows begin with."""

    page: Path
    name: str
    prefix: str


def tables() -> Iterator[Table]:
    """Every table, in the order of pages."""
    for page in [*sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("README*.md"))]:
        for mark in MARKED.finditer(page.read_text(encoding="utf-8")):
            yield Table(page, mark[2], mark[3] or "")


def shown(name: str) -> list[str]:
    """The commands that measure results, as one types them."""
    commands = COMMANDS[name]
    return [_typed(command, data=commands.data) for command in commands.run]


def _typed(command: str, *, data: bool) -> str:
    if not command.startswith("benchmarks."):
        return command
    return f"{'JUMOK_DATA=path/to/data ' if data else ''}python -m {command}"


def listing(pages: list[str]) -> Iterator[str]:
    """Page by page, the results its tables show, the ids of each, what it takes, and its commands."""
    listed = [table for table in tables() if not pages or table.page.name in pages]
    for page in dict.fromkeys(table.page for table in listed):
        yield f"{page.relative_to(ROOT)}"
        own = [table for table in listed if table.page == page]
        for name in dict.fromkeys(table.name for table in own):
            prefixes = [f"{table.prefix}…" if table.prefix else "all" for table in own if table.name == name]
            yield from entry(name, ", ".join(prefixes))
        yield ""
    if not pages:
        yield "in no table"
        for name in sorted(COMMANDS.keys() - {table.name for table in listed}):
            yield from entry(name, "all")
        yield ""
    yield "The first lines of benchmarks/SCRIPT.py explain names in capitals and further options."
    yield "To update the tables after a measurement: python -m benchmarks.results"


def entry(name: str, ids: str) -> Iterator[str]:
    """The results of one name: the ids shown, what they take, and the commands."""
    yield f"  {name}.json: {ids}  ({COMMANDS[name].device}, {COMMANDS[name].time})"
    yield from (f"    {command}" for command in shown(name))


def main() -> None:
    print("\n".join(listing(sys.argv[1:])))


if __name__ == "__main__":
    main()
