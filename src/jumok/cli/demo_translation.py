"""The main part of `jumok demo`: what a fixed context forgets and attention does not, on the built-in corpus."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jumok.analysis import draw
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.scores.metrics import by_length
from jumok.cli.demo_folders import ATTENTION, FIXED, PICTURE, replacing
from jumok.data import Pair, corpus_pairs
from jumok.recipe import Recipe, make_recipe
from jumok.tasks.translation import run_recipe
from jumok.tasks.translator import Translation, Translator
from jumok.training.progress import report_to_stderr

TESTED = 1000
PAIRS = 60_000
ENOUGH = 400
"""Steps below which neither model has learnt enough to be compared."""
BANDS = (4, 8, 12, 16)
EXAMPLE = "Friday, December 23, 1988"
SHOWN = (EXAMPLE, "3 hours, 25 minutes", "18 weeks ago", "Italy, Kenya, Peru, Japan, Spain, Chile, and India")


@dataclass(frozen=True)
class Comparison:
    """Two models trained for as many steps on the same pairs, tried on the same unseen values."""

    exact: dict[str, float]
    """Percent of outputs right to the letter, of the "fixed" and the "attention" model."""
    bands: list[tuple[str, int, float, float]]
    """For each band of source lengths: its name, how many sentences, percent exact of both."""
    examples: list[tuple[str, str, str]]
    """Source, and what each model says."""
    map: AttentionMap
    picture: Path


def demo_recipe(attention: str, steps: int, minutes: float) -> Recipe:
    """A small recurrent model; the two of the demo differ in their attention only."""
    half = {"kind": "rnn", "cell": "gru", "width": 192, "embedding": 128, "dropout": 0.1}
    return make_recipe(
        {
            "data": {"corpus": "cldr", "size": PAIRS, "valid_size": 200},
            "tokenizer": {"kind": "unigram", "size": 500},
            "encoder": half,
            "decoder": half | {"attention": attention},
            "batch": {"tokens": 768},
            "training": {
                "minutes": minutes,
                "steps": steps,
                "learning_rate": 0.006,
                "schedule": "inverse_sqrt",
                "warmup": 150,
                "label_smoothing": 0.0,
                "validate_every": 100_000,
                "ema": 0.99,
                "patience": 0,
                "metric": "exact_match",
            },
            "decoding": {"beam": 3},
        },
        origin="the demo",
    )


def compare(out: Path, *, steps: int, minutes: float, say: Callable[[str], None]) -> Comparison:
    """Train both models into `out`, and see how they do."""
    say("training the fixed-context model ...")
    fixed = _trained(demo_recipe("none", steps, minutes), out / FIXED, say)
    say("training the model with attention ...")
    attention = _trained(demo_recipe("additive", steps, minutes), out / ATTENTION, say)
    translators = {"fixed": fixed, "attention": attention}
    say(f"translating {TESTED} unseen values with both ...")
    pairs = list(corpus_pairs("cldr", TESTED, split="test"))
    right = {name: _right(translator, pairs) for name, translator in translators.items()}
    lengths = [len(translators["attention"].trained.tokenizers.source.encode(pair.source)) - 2 for pair in pairs]
    without, with_it = (by_length(lengths, right[name], BANDS) for name in ("fixed", "attention"))
    bands = [(one[0], one[1], 100 * one[2], 100 * other[2]) for one, other in zip(without, with_it, strict=True)]
    said = {name: translator.translate(SHOWN) for name, translator in translators.items()}
    shown = said["attention"][0].attention()
    return Comparison(
        exact={name: 100 * sum(values) / len(values) for name, values in right.items()},
        bands=bands,
        examples=[(text, said["fixed"][at].text, said["attention"][at].text) for at, text in enumerate(SHOWN)],
        map=shown,
        picture=_draw(out / PICTURE, shown, said["attention"][0]),
    )


def show(found: Comparison, console: Any) -> None:
    """Print the table by length, the examples and the attention map."""
    from rich import box
    from rich.table import Table

    console.print("[bold]Exact match[/] on values never seen, by the length of the source in tokens")
    table = Table(box=box.SIMPLE_HEAD)
    for head in ("tokens", "sentences", "fixed context", "attention"):
        table.add_column(head, justify="left" if head == "tokens" else "right")
    for name, count, fixed, attention in found.bands:
        table.add_row(name, str(count), f"{fixed:.1f}%", f"{attention:.1f}%")
    total = sum(band[1] for band in found.bands)
    table.add_row("all", str(total), f"{found.exact['fixed']:.1f}%", f"{found.exact['attention']:.1f}%", style="bold")
    console.print(table)
    for source, without, with_it in found.examples:
        console.print(source, style="bold", markup=False)
        console.print(f"  fixed context  {without}\n  attention      {with_it}", markup=False)
    console.print(f"\n[bold]Where it looked[/] ({found.map.crossings()} pairs of words change places)")
    console.print(draw.to_terminal(found.map, width=console.width, plain=console.color_system is None))


def as_plain(found: Comparison) -> dict[str, Any]:
    """The same for JSON."""
    return {
        "exact_match": found.exact,
        "by_length": [
            {"tokens": name, "sentences": count, "fixed": fixed, "attention": attention}
            for name, count, fixed, attention in found.bands
        ],
        "examples": [{"source": a, "fixed": b, "attention": c} for a, b, c in found.examples],
        "map": str(found.picture),
    }


def _trained(recipe: Recipe, folder: Path, say: Callable[[str], None]) -> Translator:
    report = report_to_stderr()
    report.resumes = False
    with replacing(folder) as new:
        run = run_recipe(recipe, new, report=report, draw=False)
        if run.stopped == "interrupted":
            say(f"the demo was stopped: {folder} is as it was before; a demo begins anew each time")
            raise KeyboardInterrupt
    _say_if_short(run.result.state.step, recipe.training.steps, recipe.training.minutes, say)
    return run.translator


def _say_if_short(done: int, steps: int, minutes: float, say: Callable[[str], None]) -> None:
    """What a machine too slow for the steps wanted means for what follows."""
    if done < steps:
        say(f"only {done:,} of {steps:,} steps in {minutes:g} minutes: the machine is slow or busy; what it has learnt")
        say(f"by now is used, and `jumok demo --minutes {max(5.0, 4 * minutes):g}` gives it more time")
    if done < ENOUGH:
        say(f"{done:,} steps are too few to learn much: what follows means little")


def _right(translator: Translator, pairs: Sequence[Pair]) -> list[float]:
    outputs = translator.translate([pair.source for pair in pairs])
    return [float(output.text == pair.target) for output, pair in zip(outputs, pairs, strict=True)]


def _draw(path: Path, shown: AttentionMap, translation: Translation) -> Path:
    return draw.save(shown, path, title=f"{translation.source} → {translation.text}")
