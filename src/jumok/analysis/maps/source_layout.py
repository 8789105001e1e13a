"""How the sources of an attention map are arranged: words of a text, regions of an image, or nodes of a graph."""

import struct
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import UInt8

from jumok.errors import ArgumentError
from jumok.images.files import decode_image

IMAGE_SIDE = 480
"""Pixels of the longer side of the image in a picture of a map."""
WHOLE = (0.0, 0.0, 1.0, 1.0)
PNG_URL = "data:image/png;base64,"


@dataclass(frozen=True)
class TextLayout:
    """Words in reading order."""

    kind = "line"

    def check(self, sources: int, targets: int) -> None:
        """Accept any number of words."""

    def as_plain(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"kind": self.kind}


@dataclass(frozen=True, eq=False)
class ImageLayout:
    """Regions of an image, row by row: `rows` and `columns` of `part` of the image."""

    image: UInt8[np.ndarray, "height width 3"]
    rows: int
    columns: int
    part: tuple[float, float, float, float] = WHOLE
    """The part the model saw: top, left, bottom and right edges as fractions of the image's height and width."""
    centres: tuple[float, float] | None = None
    """Centre of the first region and distance to the next as fractions of `part`; None: regions divide it evenly."""

    kind = "image"

    def __post_init__(self) -> None:
        image = self.image
        pixels = isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 3
        if not pixels or image.shape[2] != 3 or not image.size:
            description = (
                f"{list(image.shape)} of {image.dtype}" if isinstance(image, np.ndarray) else type(image).__name__
            )
            raise ArgumentError(f"image must be an array of bytes [height, width, 3], but it is {description}")
        top, left, bottom, right = self.part
        if not (0 <= top < bottom <= 1 and 0 <= left < right <= 1):
            raise ArgumentError(
                f"part = {self.part} must be top, left, bottom and right between 0 and 1, with top less than bottom "
                "and left less than right"
            )

        if self.centres is not None and not (0 <= self.centres[0] <= 1 and 0 < self.centres[1] <= 1):
            raise ArgumentError(
                f"centres = {self.centres} must be the first centre, between 0 and 1, and the distance to the next, "
                "above 0 and at most 1"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the regions, counted from 1."""
        return tuple(f"row {row + 1}, column {column + 1}" for row, column in np.ndindex(self.rows, self.columns))

    def check(self, sources: int, targets: int) -> None:
        """Raise an ArgumentError unless there is one source per region."""
        if self.rows < 1 or self.columns < 1 or sources != self.rows * self.columns:
            raise ArgumentError(
                f"an image of {self.rows} × {self.columns} regions needs {self.rows * self.columns} sources, but there "
                f"are {sources}"
            )

    def as_plain(self) -> dict[str, Any]:
        """Return the JSON object; the image is a PNG data URL, and `part` and `centres` are left out by default."""
        image = PNG_URL + b64encode(png_bytes(self.image)).decode()
        part = {} if self.part == WHOLE else {"part": list(self.part)}
        centres = {} if self.centres is None else {"centres": list(self.centres)}
        return {"kind": self.kind, "rows": self.rows, "columns": self.columns, "image": image, **part, **centres}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "ImageLayout":
        """Read what `as_plain` returned."""
        content = b64decode(str(plain["image"]).removeprefix(PNG_URL), validate=True)
        top, left, bottom, right = map(float, plain.get("part", WHOLE))
        image, centres = decode_image(content, "of the map"), None
        if "centres" in plain:
            first, step = map(float, plain["centres"])
            centres = first, step
        return cls(image, int(plain["rows"]), int(plain["columns"]), (top, left, bottom, right), centres)


@dataclass(frozen=True)
class GraphLayout:
    """Nodes of a graph: the node in question, then its neighbours, then their neighbours.

    The first sources are the targets, in the same order.
    """

    numbers: tuple[int, ...]
    """Number of every source in the graph."""
    classes: tuple[str, ...]
    """Class of every source; "?" if unknown."""
    neighbours: int
    """Number of nodes the first one can attend to besides itself."""
    predicted: str = ""
    """Class the model predicts for the first node; "" if the model classifies whole graphs."""
    probability: float = 0.0

    kind = "graph"

    @property
    def wrong(self) -> bool:
        """Whether the predicted class differs from the true one."""
        return self.predicted not in ("", self.classes[0]) and self.classes[0] != "?"

    def check(self, sources: int, targets: int) -> None:
        """Raise an ArgumentError unless the nodes fit the sources and targets."""
        if not len(self.numbers) == len(self.classes) == sources or not targets <= 1 + self.neighbours <= sources:
            raise ArgumentError(
                f"a graph of {sources} sources and {targets} targets needs {sources} numbers and classes and "
                f"{max(targets - 1, 0)} to {sources - 1} neighbours, but there are {len(self.numbers)} numbers, "
                f"{len(self.classes)} classes and {self.neighbours} neighbours"
            )

    def title(self, name: str) -> str:
        """Describe the first node, its class and the prediction in one line."""
        prediction = f", predicted {self.predicted} ({self.probability:.0%})" if self.predicted else ""
        return f"node {name}: class {self.classes[0]}{prediction}"

    def as_plain(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "kind": self.kind,
            "numbers": list(self.numbers),
            "classes": list(self.classes),
            "neighbours": self.neighbours,
            "predicted": self.predicted,
            "probability": round(self.probability, 6),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "GraphLayout":
        """Read what `as_plain` returned."""
        return cls(
            tuple(map(int, plain["numbers"])),
            tuple(map(str, plain["classes"])),
            int(plain["neighbours"]),
            str(plain.get("predicted", "")),
            float(plain.get("probability", 0)),
        )


TEXT = TextLayout()
SourceLayout = TextLayout | ImageLayout | GraphLayout


def layout_from(plain: Mapping[str, Any]) -> SourceLayout:
    """Read the layout that `as_plain` returned; raises ValueError, KeyError or TypeError for anything else."""
    for layout in (ImageLayout, GraphLayout):
        if plain["kind"] == layout.kind:
            return layout.from_plain(plain)
    if plain["kind"] != TextLayout.kind:
        raise ValueError(f"layout of kind {plain['kind']!r}; the kinds are line, image and graph")
    return TEXT


def png_bytes(pixels: UInt8[np.ndarray, "height width 3"]) -> bytes:
    """Encode an image as PNG, without an imaging library."""
    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], 1)  # 0: no filter in this row
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )
