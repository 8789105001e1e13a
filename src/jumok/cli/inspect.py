"""`jumok inspect`: what a model folder holds."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from jumok.cli import library
from jumok.cli.arguments import TaskFile, own_task
from jumok.cli.output import print_json, print_table


def inspect(
    model: Annotated[Path, Argument(help="Folder written by `jumok train`.")],
    weights: Annotated[bool, Option("--weights", help="Also list every weight with its shape.")] = False,
    task: TaskFile = None,
    json: Annotated[bool, Option("--json", help="Print the description as JSON.")] = False,
) -> None:
    """Show what a model consists of, and check all of its files."""
    facts, shapes = inspection = library.inspect.inspect(model, task=own_task(task))
    if json:
        print_json({**facts, **({"weights": shapes} if weights else {})})
        return
    print_table(["", str(model)], [list(row) for row in inspection.rows()])
    if weights:
        print_table(["weight", "shape"], [[name, " × ".join(map(str, shape))] for name, shape in shapes.items()])
