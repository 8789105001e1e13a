"""`jumok import`: a model of another toolkit as a model folder of ours."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from jumok.cli import library
from jumok.cli.arguments import named_folder
from jumok.cli.output import print_json, say


def import_model(
    folder: Annotated[
        Path,
        Argument(help="Folder of a Marian, OPUS-MT, M2M-100, NLLB or JoeyNMT model, or an OpenNMT-py checkpoint."),
    ],
    out: Annotated[Path, Option(parser=named_folder, metavar="<path>", help="Model folder to write.")],
    from_language: Annotated[
        str | None, Option("--from", help="Default source language of a multilingual model.")
    ] = None,
    to_language: Annotated[str | None, Option("--to", help="Default target language of a multilingual model.")] = None,
    tokenizer: Annotated[
        Path | None, Option(help="SentencePiece model for an OpenNMT-py checkpoint, which does not contain one.")
    ] = None,
    json: Annotated[bool, Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Convert a model of another toolkit, such as OPUS-MT, into a model folder."""
    trained = library.convert.import_model(folder, out, source=from_language, target=to_language, tokenizer=tokenizer)
    if json:
        print_json({"folder": str(out), "imported": trained.recipe.data.imported})
    else:
        source = trained.tokenizers.source
        to = f" --to {source.languages[0]}" if source.needs_language() else ""
        say(f"{folder} is now the model folder {out}; try: echo Hello | jumok translate {out}{to}")
