"""`jumok demo`: kernel regression, a soft database and two translators, in a few minutes on a laptop."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich import box
from rich.console import Console
from rich.table import Table
from typer import Option

from jumok.cli import library
from jumok.cli.arguments import named_folder
from jumok.cli.output import print_json, say
from jumok.errors import MissingExtraError
from jumok.files import check_place

if TYPE_CHECKING:
    from jumok.tasks.demo import KernelFit, RegressionDemo, TranslationDemo


def demo(
    out: Annotated[
        Path,
        Option(parser=named_folder, metavar="<path>", help="Folder for models and pictures; created if missing."),
    ] = Path("demo"),
    steps: Annotated[int, Option(min=1, help="Training steps of each of the two models.")] = 1800,
    minutes: Annotated[
        float,
        Option(
            min=0.01, help="Time limit for training the first model; the second trains for the same number of steps."
        ),
    ] = 12,
    quick: Annotated[bool, Option("--quick", help="Run only the first part, which trains nothing.")] = False,
    json: Annotated[bool, Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Show kernel regression, a soft database, and two translators: with a fixed context and with attention."""
    check_place(out)
    out.mkdir(parents=True, exist_ok=True)
    if not quick:
        library.demo.check_folders(out)
    results = _regression(out, json)
    if not quick:
        results |= _translation(out, steps, minutes, json)
    if json:
        print_json(results)


def _regression(out: Path, json: bool) -> dict[str, Any]:
    say("1. kernel regression and a soft database: fitting and drawing ...")
    try:
        results = library.demo.demonstrate_regression(out)
    except MissingExtraError as error:
        say(f"skipped: {error}")
        return {}
    if not json:
        _print_regression(results, _console())
    for picture in results.pictures:
        say(f"wrote {picture}")
    return results.as_plain()


def _translation(out: Path, steps: int, minutes: float, json: bool) -> dict[str, Any]:
    say(
        f"\n2. two translators from English to Korean, {steps:,} training steps each, which take about three minutes on"
    )
    say(f"two idle cores. The first one stops after {minutes:g} minutes at the latest; the second takes as many steps:")
    results = library.demo.demonstrate_translation(out, steps=steps, minutes=minutes, say=say)
    if not json:
        _print_translation(results, _console())
    say(f"wrote {results.picture}; the models are in {out / library.demo.FIXED} and {out / library.demo.ATTENTION}")
    return results.as_plain()


def _console() -> Console:
    return Console(highlight=False, soft_wrap=True)


def _print_regression(results: "RegressionDemo", console: Console) -> None:
    console.print("[bold]Kernel regression[/]: ŷ(x) = Σ α(x, xᵢ) yᵢ", soft_wrap=True)
    console.print(
        f"50 points of y = 2 sin x + x, noise of standard deviation {results.noise}; bandwidths by leave-one-out. "
        "The error is the root mean squared distance to the true curve.",
        soft_wrap=True,
    )
    console.print(_fits_table(results.fits))
    console.print()
    console.print("[bold]Soft database[/]: the weight of each key is its similarity to the query", soft_wrap=True)
    pairs = ", ".join(f"({key}, {value})" for key, value in library.demo.SURNAMES)
    console.print(f"{{{pairs}}}", soft_wrap=True, markup=False)
    for answer in results.answers:
        first, *weights = str(answer).splitlines()
        console.print(f"\n[bold]{first}[/]", soft_wrap=True)
        console.print("\n".join(weights), soft_wrap=True, markup=False)


def _fits_table(fits: list["KernelFit"]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("kernel")
    table.add_column("bandwidth", justify="right")
    table.add_column("error", justify="right")
    best = min(fit.rmse for fit in fits)
    for fit in fits:
        bandwidth = "–" if fit.bandwidth is None else f"{fit.bandwidth:.2f}"
        name = "plain mean" if fit.kernel == "constant" else fit.kernel
        table.add_row(name, bandwidth, f"{fit.rmse:.3f}", style="bold" if fit.rmse == best else None)
    return table


def _print_translation(results: "TranslationDemo", console: Console) -> None:
    """Print the table by length, the examples and the attention map."""
    console.print("[bold]Exact match[/] on values never seen, by the length of the source in tokens")
    table = Table(box=box.SIMPLE_HEAD)
    for header in ("tokens", "sentences", "fixed context", "attention"):
        table.add_column(header, justify="left" if header == "tokens" else "right")
    for name, count, fixed, attention in results.bands:
        table.add_row(name, str(count), f"{fixed:.1f}%", f"{attention:.1f}%")
    total = sum(count for _, count, _, _ in results.bands)
    exact = [f"{results.exact[name]:.1f}%" for name in ("fixed", "attention")]
    table.add_row("all", str(total), *exact, style="bold")
    console.print(table)
    if results.steps < results.planned:
        console.print(f"Both models were trained for {results.steps:,} of {results.planned:,} steps only.\n")
    for source, fixed_text, attention_text in results.examples:
        console.print(source, style="bold", markup=False)
        console.print(f"  fixed context  {fixed_text}\n  attention      {attention_text}", markup=False)
    console.print(f"\n[bold]Where it looked[/] ({results.map.crossings()} pairs of words change places)")
    console.print(library.draw.to_terminal(results.map, width=console.width, plain=console.color_system is None))
