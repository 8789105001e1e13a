"""Draw every picture of the documentation: python -m docs.make_pictures [folder]."""

import sys
from pathlib import Path

import torch

from docs.drawing import layers, mechanism, scores, speed, visible
from docs.drawing.style import styled

PICTURES = {**mechanism.PICTURES, **scores.PICTURES, **visible.PICTURES, **layers.PICTURES, **speed.PICTURES}


def make_pictures(folder: Path, ending: str = "svg") -> None:
    """Write NAME.svg for every picture into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        torch.manual_seed(0)
        with styled(), torch.no_grad():
            draw().savefig(folder / f"{name}.{ending}", metadata={"Date": None} if ending == "svg" else None, dpi=220)


if __name__ == "__main__":
    if any(argument.startswith("-") for argument in sys.argv[1:]):  # an option, not a folder
        sys.exit(__doc__)
    make_pictures(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("pictures"), *sys.argv[2:])
