"""`jumok train`: from a recipe to a model folder."""

from pathlib import Path
from shlex import quote
from typing import Annotated

from typer import Argument, Option

from jumok.cli.output import print_json, say


def train(
    recipe: Annotated[Path, Argument(help="The recipe, a .toml file.")],
    out: Annotated[Path | None, Option(help="Model folder to write; runs/NAME-OF-RECIPE unless told.")] = None,
    set_: Annotated[list[str] | None, Option("--set", help="Change a setting: training.steps=2000.")] = None,
    resume: Annotated[bool, Option("--resume", help="Go on from the newest checkpoint.")] = False,
    device: Annotated[str, Option(help="auto, cpu or cuda.")] = "auto",
    json: Annotated[bool, Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a model by a recipe; Ctrl-C saves and --resume goes on exactly there."""
    from jumok.cli.training_run import run_recipe
    from jumok.config import is_caption_recipe, is_graph_recipe, read_recipe

    folder = out or Path("runs") / recipe.stem
    if is_graph_recipe(recipe):
        _train_graph(recipe, folder, set_ or [], resume=resume, device=device, json=json)
        return
    if is_caption_recipe(recipe):
        _train_captioner(recipe, folder, set_ or [], resume=resume, device=device, json=json)
        return
    found = run_recipe(read_recipe(recipe, set_ or []), folder, resume=resume, device=device)
    if json:
        print_json({"folder": str(folder), "stopped": found.stopped, **found.scores})
    else:
        say(f"the model is in {folder}; use it: jumok translate {quote(str(folder))} < input.txt > output.txt")


def _train_graph(recipe: Path, folder: Path, changes: list[str], *, resume: bool, device: str, json: bool) -> None:
    from jumok.cli.graph_run import run_graph_recipe
    from jumok.graph_model import read_graph_recipe

    found = run_graph_recipe(read_graph_recipe(recipe, changes), folder, resume=resume, device=device)
    if json:
        print_json({"folder": str(folder), "stopped": found.stopped, **found.scores})
        return
    if "test accuracy" in found.scores:
        say(f"accuracy on the test {found.graph.classified}: {found.scores['test accuracy']:.1f}%")
    named, node = quote(str(folder)), quote(found.graph.name(0))
    say(f"the model is in {folder}; use it: jumok evaluate {named}, jumok look {named} --node {node}")


def _train_captioner(recipe: Path, folder: Path, changes: list[str], *, resume: bool, device: str, json: bool) -> None:
    from jumok.caption_model import read_caption_recipe
    from jumok.cli.caption_run import run_caption_recipe

    found = run_caption_recipe(read_caption_recipe(recipe, changes), folder, resume=resume, device=device)
    if json:
        print_json({"folder": str(folder), "stopped": found.stopped, **found.scores})
    else:
        say(f"the model is in {folder}; use it: jumok caption {quote(str(folder))} image.jpg")
