"""`jumok export`: a model for another toolkit."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from jumok.cli import library
from jumok.cli.arguments import TaskFile, named_folder, task_or
from jumok.cli.output import print_json, say
from jumok.decoding.config import Quantization
from jumok.exchange import Format


def export(
    model: Annotated[Path, Argument(help="Folder of a trained translation model.")],
    out: Annotated[Path, Option(parser=named_folder, metavar="<path>", help="New folder to write.")],
    to: Annotated[
        Format,
        Option(help="Format: ctranslate2, onnx, marian-hf, or hf, which chooses the matching class of transformers."),
    ] = "ctranslate2",
    quantization: Annotated[Quantization, Option(help="Precision of the weights for CTranslate2.")] = "float32",
    task: TaskFile = None,
    json: Annotated[bool, Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Export a translation model for another engine, such as CTranslate2."""
    its_task = task_or(library.tasks.TRANSLATION, task)
    reader = library.convert.export_model(model, out, to=to, quantization=quantization, task=its_task)
    if json:
        print_json({"folder": str(out), "format": to, "quantization": quantization, "reader": reader})
    else:
        say(f"{model} is exported to {out}, which {reader} loads")
