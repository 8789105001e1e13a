"""`jumok caption`: captions of images."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

import jumok
from jumok.cli import library
from jumok.cli.arguments import Beam, Device, TaskFile, decoding_option, task_or
from jumok.cli.output import print_json, say
from jumok.errors import DataError
from jumok.images import SUFFIXES
from jumok.progress import progress


def caption(
    model: Annotated[Path, Argument(help="Folder of a trained captioner.")],
    images: Annotated[list[Path], Argument(help="Images, or folders of images.")],
    beam: Beam = None,
    n_best: Annotated[int, decoding_option("beam", "Number of captions per image, best first, with their scores.")] = 1,
    max_length: Annotated[int | None, decoding_option("max_length", "Maximum number of tokens in a caption.")] = None,
    no_repeat: Annotated[
        int | None, decoding_option("no_repeat", "Size of n-grams that may not repeat in a caption; 0 allows all.")
    ] = None,
    task: TaskFile = None,
    device: Device = "auto",
    json: Annotated[bool, Option("--json", help="Print one JSON object per image, with scores.")] = False,
) -> None:
    """Caption images: one line per image, with its file name and its caption."""
    files = list(_files(images))
    captioner = task_or(library.tasks.CAPTIONING, task).load(model, device=device)
    unread: list[DataError] = []

    def skip(error: DataError) -> None:
        say(str(error))
        unread.append(error)

    settings = {"beam": beam, "max_length": max_length, "no_repeat": no_repeat}
    captions = captioner.stream(files, n_best=n_best, skip=skip if len(files) > 1 else None, **settings)
    for result in progress(captions, "captioning", len(files)):
        _print(result, json)
    if unread:
        raise DataError(f"{len(unread)} of {len(files)} images could not be read; the messages above say why")


def _print(result: "jumok.Caption", json: bool) -> None:
    best = result.n_best or (result,)
    if json:
        rows = [{"text": output.text, "score": round(output.score, 4)} for output in best]
        print_json({"image": result.image, **rows[0], **({"n_best": rows} if result.n_best else {})})
        return
    for output in best:
        score = [f"{output.score:.4f}"] if result.n_best else []
        print("\t".join([result.image, output.text, *score]), flush=True)


def _files(images: list[Path]) -> Iterator[Path]:
    for path in images:
        if not path.is_dir():
            yield path
            continue
        inside = [file for file in sorted(path.iterdir()) if file.suffix.lower() in SUFFIXES]
        if not inside:
            raise DataError(f"there are no images in the folder {path}; looked for {', '.join(SUFFIXES)}")
        yield from inside
