"""`jumok train`: from a recipe to a model folder."""

from pathlib import Path
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
    from jumok.config import read_recipe

    folder = out or Path("runs") / recipe.stem
    found = run_recipe(read_recipe(recipe, set_ or []), folder, resume=resume, device=device)
    if json:
        print_json({"folder": str(folder), "stopped": found.stopped, **found.scores})
    else:
        say(f"the model is in {folder}; use it: jumok translate {folder} < input.txt > output.txt")
