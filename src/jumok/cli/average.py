"""`jumok average`: the mean of several checkpoints or models."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from jumok.cli.arguments import named_folder
from jumok.cli.output import print_json, say
from jumok.tasks.average import average_models, how_many


def average(
    models: Annotated[list[Path], Argument(help="Model folders, checkpoints of a run, or .safetensors files.")],
    out: Annotated[Path, Option(parser=named_folder, metavar="<path>", help="Model folder to write.")],
    json: Annotated[bool, Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Average the weights of several models into a new one; everything else is taken from the first."""
    average_models(models, out)
    if json:
        print_json({"folder": str(out), "averaged": [str(model) for model in models]})
    else:
        say(f"the mean of {how_many(models)} is in {out}")
