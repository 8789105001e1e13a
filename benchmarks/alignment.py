"""Word alignment on two gold standards, compared with eflomal and fast_align given the same text.

    JUMOK_DATA=path/to/data python -m benchmarks.alignment_train prepare WORK      a minute or two
    python -m benchmarks.alignment_train train WORK OUT                            on a GPU; nine minutes
    JUMOK_DATA=path/to/data python -m benchmarks.alignment text OUT                the aligner without a model
    JUMOK_DATA=path/to/data python -m benchmarks.alignment peers OUT               needs eflomal-align and fast_align
    JUMOK_DATA=path/to/data python -m benchmarks.alignment score OUT

English-French: the Hansards (447 pairs), aligned together with 196,130 pairs of other text. Chinese-English: 450 pairs
of news, aligned alone because no other Chinese-English text is available. Training uses no gold links. The 37 pairs of
the English-French development set select the variant and the symmetrisation of every system, also for Chinese-English.
The hyperparameters of jumok.analysis.alignment.statistical were tuned on other text (benchmarks.alignment_dev).
"""

import argparse
import json
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path

from benchmarks.alignment_text import write_text
from benchmarks.alignment_train import STAGES, TEXTS, rows_of_tests, scores, write_joined, write_pharaoh

PEERS = ("eflomal", "fast_align")
SYSTEMS = {
    "jumok, guided": tuple(stage for stage in STAGES if stage.startswith("full")),
    "jumok, guided without null": ("full",),
    "jumok": ("text",),
    "jumok, guided, causal context": ("causal",),
    "jumok, attention alone": ("plain",),
    "eflomal": ("eflomal",),
    "fast_align": ("fast_align",),
}
"""Each with its stages, of which the development set chooses one."""
ALONE = "the 450 pairs alone"


def data() -> Path:
    return Path(os.environ.get("JUMOK_DATA", "../shared/data"))


def text(out: Path) -> None:
    """Both texts as `jumok align` aligns them."""
    from jumok.analysis.alignment.statistical import align_text
    from jumok.data import read_pairs

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_text(data(), work / "text")
        links = rows_of_tests(work, align_text(list(read_pairs(work / "text/train.en", work / "text/train.fr"))))
        links["zhen"] = align_text(list(read_pairs(work / "text/zhen.zh", work / "text/zhen.en")))
    for name, rows in links.items():
        write_pharaoh(out / f"links/text.{name}.agreement", rows)


def peers(out: Path) -> None:
    """Align the same texts with eflomal and fast_align, as they come."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_text(data(), work / "text")
        for system, (forward, backward) in _align(work, "train", ("en", "fr")).items():
            tests = [rows_of_tests(work, links) for links in (forward, backward)]
            for name in TEXTS:
                write_joined(out, f"{system}.{name}", *(links[name] for links in tests))
        for system, links in _align(work, "zhen", ("zh", "en")).items():
            write_joined(out, f"{system}.zhen", *links)


def _align(work: Path, name: str, sides: tuple[str, str]) -> dict[str, list[list]]:
    """The links of each peer in both directions."""
    from jumok.data import read_lines
    from jumok.data.word_links import read_word_links

    source, target = (work / f"text/{name}.{side}" for side in sides)
    (work / "both").write_text(
        "".join(
            f"{sentence} ||| {translation}\n"
            for sentence, translation in zip(read_lines(source), read_lines(target), strict=True)
        )
    )
    texts = ["-s", source, "-t", target, "--overwrite"]
    subprocess.run(["eflomal-align", *texts, "-f", work / "eflomal.0", "-r", work / "eflomal.1"], check=True)
    for number, options in enumerate(([], ["-r"])):
        with (work / f"fast_align.{number}").open("wb") as links:
            command = ["fast_align", "-i", work / "both", "-d", "-o", "-v", *options]
            subprocess.run(command, stdout=links, check=True)
    return {system: [list(read_word_links(work / f"{system}.{number}")) for number in (0, 1)] for system in PEERS}


def score(out: Path) -> None:
    """Each system with the variant and the way of joining its directions that are best on the development set.

    Links of a stage may be of another run than the one that about.json tells of, if it says under "earlier" what run
    that was; the system is then named so. Rows of systems that have no links in `out` stay as they are.
    """
    from benchmarks.results import FOLDER, Row, write

    if (out / "results.tar.xz").exists():
        with tarfile.open(out / "results.tar.xz") as packed:
            packed.extractall(out, filter="data")
    before = json.loads((FOLDER / "alignment.json").read_text(encoding="utf-8"))
    about = json.loads((out / "about.json").read_text()) if (out / "about.json").exists() else {}
    rows = [Row(**row) for row in before["rows"]]
    with tempfile.TemporaryDirectory() as folder:
        write_text(data(), Path(folder))
        for system, stages in SYSTEMS.items():
            ways = [_way(path) for stage in stages for path in sorted(out.glob(f"links/{stage}.dev.*"))]
            if ways:
                new = _rows(out, Path(folder), system, ways, about)
                rows = [*new, *(row for row in rows if row.system != new[0].system)]
    order = [name for system in SYSTEMS for name in (system, f"{system}, earlier run")]
    rows = sorted((row for row in rows if row.system in order), key=lambda row: (order.index(row.system), row.id))
    device = f"{about['device']}, torch {about['torch']}; peers on a CPU" if about else before["device"]
    write("alignment", rows, device=device)


def _rows(out: Path, folder: Path, system: str, ways: list[tuple[str, str]], about: dict) -> list:
    """The errors with the way that is best on the development set, and with the one that is best on the test itself."""
    from benchmarks.results import Row

    several = len({stage for stage, _ in ways}) > 1
    chosen = min(ways, key=lambda way: scores(out, folder, "dev", *way).error)
    name = system + ", earlier run" * (chosen[0] in about.get("earlier", {}))
    rows = []
    for goal, test in {"aer-enfr": "gold", "aer-zhen": "zhen"}.items():
        errors = {
            way: scores(out, folder, test, *way) for way in ways if (out / f"links/{way[0]}.{test}.{way[1]}").exists()
        }
        if not errors:
            continue
        best = min(errors, key=lambda way: errors[way].error)
        for row, way, why in ((goal, chosen, ""), (f"{goal}-best-join", best, ", the best on the test set itself")):
            rates = f"precision {100 * errors[way].precision:.1f}, recall {100 * errors[way].recall:.1f}"
            named = ", ".join(way) if several else way[1]
            conditions = f"{named}{why}; {rates}{_about(about, way[0])}" + f"; {ALONE}" * (test == "zhen")
            rows.append(Row(row, name, round(100 * errors[way].error, 2), "AER %", conditions))
    return rows


def _way(path: Path) -> tuple[str, str]:
    """The stage and the method that a file of links is named after."""
    stage, _, method = path.name.split(".", 2)
    return stage, method


def _about(about: dict, stage: str) -> str:
    """How long both models of a stage were trained, or what else is to be known."""
    if stage in about.get("earlier", {}):
        return f"; {about['earlier'][stage]}"
    runs = [run for name, run in about.get("runs", {}).items() if run and name.rpartition(".")[0] == stage]
    if not runs:
        return ""
    epochs, minutes = (min(run[key] for run in runs) for key in ("epoch", "seconds"))
    return f"; {epochs} epochs in {minutes / 60:.1f} minutes, {about['together']} models trained side by side"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["text", "peers", "score"])
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    {"text": text, "peers": peers, "score": score}[given.what](given.folder)
