"""`jumok average`: the mean of several checkpoints or models."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from jumok.cli import library
from jumok.cli.arguments import TaskFile, named_folder, own_task
from jumok.cli.output import print_json, say


def average(
    models: Annotated[list[Path], Argument(help="Model folders, checkpoints of a run, or .safetensors files.")],
    out: Annotated[Path, Option(parser=named_folder, metavar="<path>", help="Model folder to write.")],
    task: TaskFile = None,
    json: Annotated[bool, Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Average the weights of several models into a new one; everything else comes from the first."""
    library.average.average_models(models, out, task=own_task(task))
    averaged = library.average.without_backups(models)
    if json:
        print_json({"folder": str(out), "averaged": [str(model) for model in averaged]})
    else:
        say(f"the mean of {library.describe.count(len(averaged), 'model')} is in {out}")
    if len(averaged) == 1:
        say("the mean of a single model is the model itself; name several, such as runs/NAME/checkpoints/step-*")
