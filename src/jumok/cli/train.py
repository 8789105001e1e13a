"""`jumok train`: from a recipe to a model folder."""

import sys
from collections.abc import Iterable
from pathlib import Path
from shlex import quote
from typing import Annotated

from typer import Argument, Option

from jumok.cli import library
from jumok.cli.arguments import TaskFile, named_folder, own_task
from jumok.cli.output import print_json, say
from jumok.errors import ArgumentError
from jumok.torchrun import prints_messages


def train(
    recipe: Annotated[
        Path,
        Argument(
            help="Recipe: a .toml file, or the name of one that comes with jumok, such as small-cpu; with --resume, "
            "also the folder of the run."
        ),
    ],
    out: Annotated[
        Path | None,
        Option(parser=named_folder, metavar="<path>", help="Model folder to write; defaults to runs/NAME-OF-RECIPE."),
    ] = None,
    set_: Annotated[
        list[str] | None, Option("--set", help="Change a setting, such as training.steps=2000; repeatable.")
    ] = None,
    resume: Annotated[bool, Option("--resume", help="Continue from the newest checkpoint.")] = False,
    prepare_only: Annotated[
        bool,
        Option("--prepare-only", help="Tokenise the data and stop; the same command without this option then trains."),
    ] = False,
    task: TaskFile = None,
    device: Annotated[
        str, Option(help="auto, cpu or cuda; each process that torchrun starts uses its own GPU.")
    ] = "auto",
    json: Annotated[bool, Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a model from a recipe; Ctrl-C saves it, and --resume continues from there.

    With --prepare-only, it only prepares the data, for which no GPU is needed.

    On several GPUs: torchrun --nproc-per-node 8 -m jumok train recipe.toml
    """
    if prepare_only:
        _prepare(recipe, set_ or (), out, task, device, resume=resume, json=json)
        return
    overrides = set_ or ()
    run = library.run.train(recipe, overrides=overrides, out=out, resume=resume, device=device, task=own_task(task))
    if not prints_messages():
        sys.exit(run.stopped == "interrupted")
    if json:
        print_json({"folder": str(run.folder), "stopped": run.stopped, **run.metrics})
    else:
        commands = run.commands(quote(str(run.folder)), task_file=quote(str(task or "FILE")))
        say(f"the model is in {run.folder}; use it: {', '.join(commands)}")
    if run.stopped == "interrupted":
        raise KeyboardInterrupt  # a script that trains and then does more must not go on


def _prepare(
    recipe: Path,
    overrides: Iterable[str],
    out: Path | None,
    task: Path | None,
    device: str,
    *,
    resume: bool,
    json: bool,
) -> None:
    if resume:
        raise ArgumentError("--resume continues a run, whose data are prepared already; leave out --prepare-only")
    data = library.run.prepare_data(recipe, overrides=overrides, out=out, device=device, task=own_task(task))
    if not prints_messages():
        return
    if json:
        print_json({"data": str(data)})
    else:
        say(f"the data are prepared in {data}; the same command without --prepare-only trains the model")
