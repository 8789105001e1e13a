"""`jumok caption`: say what images show."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from jumok.cli.arguments import Beam, Device
from jumok.cli.output import print_json, say
from jumok.decoding.config import WIDEST
from jumok.errors import DataError
from jumok.screen import progress

if TYPE_CHECKING:
    from jumok.tasks.captioner import Caption, Captioner


def caption(
    model: Annotated[Path, Argument(help="Folder of a captioner, written by `jumok train`.")],
    images: Annotated[list[Path], Argument(help="Images, or folders of images.")],
    beam: Beam = None,
    n_best: Annotated[
        int, Option(min=1, max=WIDEST, help="Captions for each image, best first, with their scores.")
    ] = 1,
    max_length: Annotated[int | None, Option(min=1, help="Most tokens of a caption.")] = None,
    no_repeat: Annotated[int | None, Option(min=0, help="No run of this many tokens twice; 0 allows all.")] = None,
    device: Device = "auto",
    json: Annotated[bool, Option("--json", help="One JSON object an image, with scores.")] = False,
) -> None:
    """Caption images: a line for each, its file and what it shows."""
    from jumok.tasks.captioner import Captioner

    files = list(_files(images))
    captioner = Captioner.load(model, device=device)
    named, files = len(files), _readable(files, captioner) if len(files) > 1 else files
    found = captioner.stream(files, beam=beam, n_best=n_best, max_length=max_length, no_repeat=no_repeat)
    for one in progress(found, "captioning", "images", len(files)):
        _print(one, json)
    if len(files) < named:
        raise DataError(f"{named - len(files)} of {named} images could not be read, as said above")


def _readable(files: list[Path], captioner: "Captioner") -> list[Path]:
    """Those that are images; of the others it says what is wrong, and the rest goes on."""
    found = []
    for file in files:
        try:
            captioner.seen(file)
            found.append(file)
        except DataError as error:
            say(str(error))
    return found


def _print(found: "Caption", json: bool) -> None:
    best = found.n_best or (found,)
    if json:
        rows = [{"text": one.text, "score": round(one.score, 4)} for one in best]
        print_json({"image": found.image, **rows[0], **({"n_best": rows} if found.n_best else {})})
        return
    for one in best:
        print("\t".join([found.image, one.text, *([f"{one.score:.4f}"] if found.n_best else [])]), flush=True)


def _files(images: list[Path]) -> Iterator[Path]:
    from jumok.images.files import SUFFIXES

    for path in images:
        if not path.is_dir():
            yield path
            continue
        inside = [file for file in sorted(path.iterdir()) if file.suffix.lower() in SUFFIXES]
        if not inside:
            raise DataError(f"there are no images in the folder {path}; looked for {', '.join(SUFFIXES)}")
        yield from inside
