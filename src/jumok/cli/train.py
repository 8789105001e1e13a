"""`jumok train`: from a recipe to a model folder."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from jumok.cli.arguments import named_folder
from jumok.cli.output import print_json, say

if TYPE_CHECKING:
    from jumok.tasks.captioning import CaptionRun
    from jumok.tasks.node_classification import GraphRun
    from jumok.tasks.translation import Run


def train(
    recipe: Annotated[Path, Argument(help="The recipe: a .toml file, or the name of one of jumok's own: small-cpu.")],
    out: Annotated[
        Path | None,
        Option(parser=named_folder, metavar="<path>", help="Model folder to write; defaults to runs/NAME-OF-RECIPE."),
    ] = None,
    set_: Annotated[list[str] | None, Option("--set", help="Change a setting: training.steps=2000.")] = None,
    resume: Annotated[bool, Option("--resume", help="Go on from the newest checkpoint.")] = False,
    device: Annotated[str, Option(help="auto, cpu or cuda.")] = "auto",
    json: Annotated[bool, Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a model by a recipe; Ctrl-C saves and --resume goes on exactly there."""
    from jumok.recipe import find_recipe, is_caption_recipe, is_graph_recipe

    recipe, chosen = find_recipe(recipe)
    if chosen:
        say(chosen)
    folder = out or Path("runs") / recipe.stem
    run = _graph if is_graph_recipe(recipe) else _captioner if is_caption_recipe(recipe) else _translator
    found, use = run(recipe, set_ or [], folder, resume, device)
    if json:
        print_json({"folder": str(folder), "stopped": found.stopped, **found.scores})
    else:
        say(f"the model is in {folder}; use it: {use}")
    if found.stopped == "interrupted":
        raise KeyboardInterrupt  # a script that trains and then does more must not go on


def _translator(recipe: Path, changes: list[str], folder: Path, resume: bool, device: str) -> tuple["Run", str]:
    from jumok.recipe import read_recipe
    from jumok.tasks.translation import run_recipe

    found = run_recipe(read_recipe(recipe, changes), folder, resume=resume, device=device)
    return found, f"jumok translate {quote(str(folder))} < input.txt > output.txt"


def _captioner(recipe: Path, changes: list[str], folder: Path, resume: bool, device: str) -> tuple["CaptionRun", str]:
    from jumok.tasks.caption_model import read_caption_recipe
    from jumok.tasks.captioning import run_caption_recipe

    found = run_caption_recipe(read_caption_recipe(recipe, changes), folder, resume=resume, device=device)
    return found, f"jumok caption {quote(str(folder))} image.jpg"


def _graph(recipe: Path, changes: list[str], folder: Path, resume: bool, device: str) -> tuple["GraphRun", str]:
    from jumok.tasks.graph_model import read_graph_recipe
    from jumok.tasks.node_classification import run_graph_recipe

    found = run_graph_recipe(read_graph_recipe(recipe, changes), folder, resume=resume, device=device)
    if "test accuracy" in found.scores:
        say(f"accuracy on the test {found.graph.classified}: {found.scores['test accuracy']:.1f}%")
    named, node = quote(str(folder)), quote(found.graph.name(0))
    return found, f"jumok evaluate {named}, jumok look {named} --node {node}"
