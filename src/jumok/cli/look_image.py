"""`jumok look CAPTIONER image.jpg`: caption an image and show where every word of the caption looked."""

from os.path import exists
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jumok.cli.output import print_json, save_all
from jumok.errors import ArgumentError

if TYPE_CHECKING:
    from jumok.analysis.image_map import ImageMap


def look_image(
    model: str,
    image: str | None,
    *,
    caption: str | None,
    layer: list[int],
    heads: list[int],
    beam: int | None,
    out: list[Path],
    device: str,
    json: bool,
) -> None:
    """Print the caption and small pictures, and write the map to the files of `out`."""
    from jumok.analysis.image_map import ImageMap
    from jumok.captioner import Captioner

    if image is None:
        raise ArgumentError(f"{model} is a captioner; say which image to look at: jumok look {model} image.jpg")
    if not exists(image):
        raise ArgumentError(
            f"there is no image {image}; {model} is a captioner and looks at images: jumok look {model} image.jpg, and "
            "a caption of your own goes behind --target"
        )
    for name, given in (("--layer", layer), ("--head", heads)):
        if len(given) > 1:
            raise ArgumentError(f"{name} can be given once for a captioner: one is shown, or the average of all")
    settings: dict[str, Any] = {} if beam is None else {"beam": beam}
    found = Captioner.load(model, device=device).look(
        image, caption=caption, layer=next(iter(layer), None), head=next(iter(heads), None), **settings
    )
    shown = ImageMap(found.image, found.words, found.weights, found.caption.text)
    failed = save_all(out, shown.save)
    if json:
        score = {} if caption is not None else {"score": round(found.caption.score, 4)}
        print_json({"file": image, **score, **shown.as_plain()})
    else:
        _print(shown)
    if failed is not None:
        raise failed


def _print(shown: "ImageMap") -> None:
    from rich.console import Console

    from jumok.analysis.image_terminal import terminal_image

    console = Console(highlight=False, markup=False, emoji=False)
    plain = console.color_system is None or console.no_color
    console.print(shown.caption, style=None if plain else "bold", soft_wrap=True)
    console.print(terminal_image(shown, width=console.width, plain=plain), soft_wrap=True)
