"""`jumok average`: the mean of several checkpoints or models."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from jumok.cli.arguments import named_folder
from jumok.cli.output import print_json, say


def average(
    models: Annotated[list[Path], Argument(help="Model folders, checkpoints of a run, or .safetensors files.")],
    out: Annotated[Path, Option(parser=named_folder, metavar="<path>", help="Model folder to write.")],
    json: Annotated[bool, Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Average the weights of several models into a new one; all else is taken from the first."""
    from jumok.model_folder import how_many

    _writer(models)(models, out)
    if json:
        print_json({"folder": str(out), "averaged": [str(model) for model in models]})
    else:
        say(f"the mean of {how_many(models)} is in {out}")


def _writer(models: list[Path]) -> Callable[[list[Path], Path], None]:
    """What averages models of the kind of the first folder."""
    from jumok.model_folder import average_models, is_captioner, is_graph_model, run_of
    from jumok.tasks.caption_model import average_captioners
    from jumok.tasks.graph_model import average_graph_models

    first = next((run_of(model) for model in models if model.is_dir()), None)
    if first is None:
        return average_models
    return (
        average_captioners if is_captioner(first) else average_graph_models if is_graph_model(first) else average_models
    )
