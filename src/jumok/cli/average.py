"""`jumok average`: the mean of several checkpoints or models."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from jumok.cli.output import print_json, say


def average(
    models: Annotated[list[Path], Argument(help="Model folders, or .safetensors files, of one shape.")],
    out: Annotated[Path, Option(help="Model folder to write.")],
    json: Annotated[bool, Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Average the weights of several models into a new one; all else is taken from the first."""
    from jumok.model_folder import average_models

    average_models(models, out)
    if json:
        print_json({"folder": str(out), "averaged": [str(model) for model in models]})
    else:
        say(f"the mean of {len(models)} models is in {out}")
