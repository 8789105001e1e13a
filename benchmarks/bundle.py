"""The tiny model that comes with jumok: from a finished run of its recipe to src/jumok/bundled.

    jumok train recipes/bundled-en-ko.toml --out runs/bundled
    python -m benchmarks.bundle runs/bundled

Weights are kept in half precision. The result is scored on values that appear neither in training nor in validation.
"""

import argparse
from pathlib import Path

from benchmarks.results import Row, cpu, write
from jumok.data.corpora import corpus_pairs
from jumok.model_folder import BUNDLED, load_model, save_model
from jumok.translator import Translator

UNSEEN = 2000


def bundle(run: Path) -> None:
    trained = load_model(run)
    save_model(BUNDLED, trained, half=True)
    share, wrong = exact_match(Translator.load(BUNDLED, device="cpu"))
    for source, output, target in wrong[:10]:
        print(f"{source} → {output} (not {target})")
    save_model(BUNDLED, trained, half=True, scores={f"exact match of {UNSEEN:,} unseen values": f"{share:.1f}%"})
    size = sum(path.stat().st_size for path in BUNDLED.iterdir())
    rows = [
        Row("bundled-exact-match", "jumok", round(share, 2), "%", f"{UNSEEN:,} unseen values, beam 3"),
        Row("bundled-size", "jumok", round(size / 1e6, 2), "MB", "the whole folder, weights in half precision"),
    ]
    write("bundled", rows, device=cpu())


def exact_match(translator: Translator) -> tuple[float, list[tuple[str, str, str]]]:
    pairs = list(corpus_pairs("cldr", UNSEEN, split="test"))
    found = translator.translate([pair.source for pair in pairs])
    wrong = [(p.source, f.text, p.target) for p, f in zip(pairs, found, strict=True) if f.text != p.target]
    return 100 * (1 - len(wrong) / len(pairs)), wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    bundle(parser.parse_args().run)
