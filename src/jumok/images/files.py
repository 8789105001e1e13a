"""Images in files, folders and archives."""

import os
import unicodedata
import warnings
from collections.abc import Callable
from functools import cached_property
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import UInt8

from jumok.devices import free_memory
from jumok.errors import ArgumentError, DataError, MissingExtraError, error_text
from jumok.files import megabytes, open_zip, read_member

if TYPE_CHECKING:
    from PIL.Image import Image

Fit = Literal["crop", "stretch"]
Pixels = UInt8[np.ndarray, "height width 3"]

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""The formats that are decoded; some others could run programs, as PostScript does."""
MOST_BYTES = 200_000_000
MOST_MEMORY = 2**30
"""A file whose header promises that decoding takes more bytes is refused before anything is decoded."""
ENOUGH = 2048
"""Sufficient pixels per side, twice the largest `images.size`; larger images are reduced while they are decoded."""
STRIP = 1 << 21
"""Pixels that are brought to red, green and blue at once."""
BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2}
"""Of a pixel in Pillow's memory; 4 in all other modes."""
OVERHEAD = {"WEBP": 12, "JPEG": 6, "MPO": 6, "TIFF": 4}
"""Bytes a pixel that decoders take besides: canvases, the coefficients of a progressive photo, a strip."""
TURNS: dict[object, Callable[[np.ndarray], np.ndarray]] = {
    2: np.fliplr,
    3: lambda image: np.rot90(image, 2),
    4: np.flipud,
    5: lambda image: image.transpose(1, 0, 2),
    6: lambda image: np.rot90(image, -1),
    7: lambda image: np.rot90(image, 2).transpose(1, 0, 2),
    8: np.rot90,
}
"""How to turn an image upright, by its EXIF orientation."""
ORIENTATION = 0x0112


def read_image(path: str | Path) -> Pixels:
    """An image file as red, green and blue, upright; a DataError naming the file if it cannot be read."""
    path = Path(path)
    try:
        with open(path, "rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise DataError(f"there is no image {path}") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder, not an image") from None
    except OSError as error:
        raise DataError(f"cannot read the image {path}: {error.strerror or error}") from None
    if len(content) > MOST_BYTES:
        raise DataError(f"the image {path} has more than {MOST_BYTES:,} bytes; make it smaller first")
    return decode_image(content, str(path))


def decode_image(content: bytes, name: str) -> Pixels:
    """The image in some bytes; messages call it `name`.

    One whose shorter side has 2 · ENOUGH pixels or more is reduced by a whole number, to ENOUGH at least.
    """
    module = _pillow(name)
    try:
        with warnings.catch_warnings():
            # Pillow would warn of what we refuse, and of odd metadata, which is no harm.
            warnings.simplefilter("ignore")
            with module.open(BytesIO(content), formats=FORMATS) as image:
                _check_memory(image, name)
                return _upright(image)
    except DataError:
        raise
    except module.DecompressionBombError:
        raise DataError(f"the header of the image {name} declares too many pixels, so it is not decoded") from None
    except module.UnidentifiedImageError:
        raise DataError(
            f"{name} is not an image that can be read here: it is none of {', '.join(FORMATS)}, or it is damaged"
        ) from None
    except Exception as error:  # a decoder stumbles over damage wherever it is: TypeError, struct.error and others
        raise DataError(
            f"the image {name} is damaged or cut short ({error_text(error)}); make or copy it again"
        ) from None


def squared(image: Pixels, side: int, *, fit: Fit = "crop") -> UInt8[np.ndarray, "{side} {side} 3"]:
    """The image `side` pixels high and wide: its middle ("crop"), or all of it, squeezed ("stretch")."""
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or 0 in image.shape:
        raise ArgumentError(f"an image must be uint8 [height, width, 3], but it is {image.dtype} {list(image.shape)}")
    height, width = image.shape[:2]
    top, left, bottom, right = kept_part(height, width, fit)
    image = image[top:bottom, left:right]
    if image.shape[:2] == (side, side):
        return np.ascontiguousarray(image)
    module = _pillow("an image")
    resized = module.fromarray(np.ascontiguousarray(image)).resize((side, side), module.Resampling.BILINEAR)
    return np.array(resized)


def kept_part(height: int, width: int, fit: Fit) -> tuple[int, int, int, int]:
    """What `squared` keeps of an image: the top, left, bottom and right edge in pixels."""
    if fit == "stretch":
        return 0, 0, height, width
    shorter = min(height, width)
    top, left = (height - shorter) // 2, (width - shorter) // 2
    return top, left, top + shorter, left + shorter


def reduced(image: Pixels, longest: int) -> UInt8[np.ndarray, "high wide 3"]:
    """The image with its proportions, no side longer than `longest` pixels."""
    height, width = image.shape[:2]
    if max(height, width) <= longest:
        return image
    scale = longest / max(height, width)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    module = _pillow("an image")
    return np.array(module.fromarray(image).resize(size, module.Resampling.LANCZOS))


def _check_memory(image: "Image", name: str) -> None:
    """Refuse an image that takes too much memory to decode; a large photo is set to be decoded smaller."""
    width, height = image.size
    image.draft(None, (ENOUGH, ENOUGH))  # of a photo (JPEG) alone, by halves
    pixels, factor = image.width * image.height, _reduction(image)
    size = width * height * OVERHEAD.get(image.format or "", 0) + pixels * BYTES.get(image.mode, 4)
    size += 6 * pixels // factor**2
    limit = min(MOST_MEMORY, free_memory() / 2)
    if size > limit:
        raise DataError(
            f"the header of the image {name} declares {width} × {height} pixels, which take {megabytes(size)} of "
            f"memory to decode, more than the {megabytes(limit)} allowed, so it is not decoded; make it smaller first"
        )


def _reduction(image: "Image") -> int:
    return max(1, min(image.size) // ENOUGH)


def _upright(image: "Image") -> Pixels:
    """Turned as the camera was held; a strip at a time, as every conversion is a copy."""
    image.load()
    width, height, factor = *image.size, _reduction(image)
    rows = max(1, STRIP // (width * factor)) * factor
    strips = [_colours(image.crop((0, top, width, min(top + rows, height))), factor) for top in range(0, height, rows)]
    pixels = strips[0] if len(strips) == 1 else np.concatenate(strips)
    turn = TURNS.get(image.getexif().get(ORIENTATION))
    return pixels if turn is None else np.ascontiguousarray(turn(pixels))


def _colours(strip: "Image", factor: int) -> Pixels:
    """Red, green and blue; what is transparent on white, sixteen bits a colour cut to eight."""
    from PIL import Image

    if strip.mode.startswith("I;16") or strip.mode == "I":
        strip = Image.fromarray((np.asarray(strip).astype(np.int64) // 256).clip(0, 255).astype(np.uint8))
    if strip.mode in ("RGBA", "LA", "PA") or "transparency" in strip.info:
        clear = strip.convert("RGBA")
        strip = Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear)
    strip = strip.convert("RGB")
    return np.array(strip.reduce(factor) if factor > 1 else strip)


def _pillow(name: str) -> ModuleType:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError("pillow", "images", f"reading {name}") from None
    return Image


def composed(name: str) -> str:
    """A name with every syllable as one character."""
    return unicodedata.normalize("NFC", name)


class ImageFolder:
    """A folder or a zip of images, by name."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._zip = open_zip(self.path) if self.path.suffix == ".zip" and self.path.exists() else None
        if self._zip is None and not self.path.is_dir():
            what = "is a file, neither a folder nor a .zip" if self.path.exists() else "does not exist"
            raise DataError(f"images.path = {str(path)!r} {what}")
        self._infos = {} if self._zip is None else {info.filename: info for info in self._zip.infolist()}

    def __contains__(self, image: str) -> bool:
        return self._has(self._own_name(image))

    def names(self) -> list[str]:
        """The files there are, as captions name them."""
        if self._zip is not None:
            return [name for name in self._infos if not name.endswith("/")]
        return [path.relative_to(self.path).as_posix() for path in sorted(self.path.rglob("*")) if path.is_file()]

    def facts(self, image: str) -> tuple[int, int]:
        """Size of an image in bytes, and in a zip its checksum; -1 for a missing image."""
        image = self._own_name(image)
        if not self._has(image):
            return -1, -1
        if self._zip is None:
            return (self.path / image).stat().st_size, -1
        return self._infos[image].file_size, self._infos[image].CRC

    def read(self, image: str) -> Pixels:
        """One image in its own size."""
        image = self._own_name(image)
        if self._zip is None:
            return read_image(self.path / image)
        return decode_image(read_member(self._zip, self._infos[image], most=MOST_BYTES), f"{self.path}:{image}")

    def _own_name(self, image: str) -> str:
        """The name of an image as the folder spells it."""
        return image if image.isascii() or self._has(image) else self._composed.get(composed(image), image)

    def _has(self, image: str) -> bool:
        if self._zip is not None:
            return image in self._infos
        home = os.path.abspath(self.path)  # a name with .. in it, or from the root, may lead out of the folder
        return Path(os.path.normpath(Path(home, image))).is_relative_to(home) and (self.path / image).is_file()

    @cached_property
    def _composed(self) -> dict[str, str]:
        """A Mac writes the syllables of file names in letters; captions rarely do."""
        return {composed(name): name for name in self.names() if not name.isascii()}
