"""One image from a file or from bytes: checked before it is decoded, turned upright, cut or squeezed to a square."""

import warnings
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import UInt8

from jumok.errors import ArgumentError, DataError, MissingExtraError

if TYPE_CHECKING:
    from PIL.Image import Image

Fit = Literal["crop", "stretch"]
Pixels = UInt8[np.ndarray, "height width 3"]

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm")
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""What is decoded; some others would run programs of their own, as PostScript does."""
MOST_PIXELS = 100_000_000
"""A file whose header promises more is refused before anything is decoded."""
MOST_BYTES = 200_000_000


def read_image(path: str | Path) -> Pixels:
    """An image file as red, green and blue, upright; a DataError naming the file if it cannot be read."""
    path = Path(path)
    try:
        size = path.stat().st_size
        content = path.read_bytes() if size <= MOST_BYTES else b""
    except FileNotFoundError:
        raise DataError(f"there is no image {path}") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder, not an image") from None
    except OSError as error:
        raise DataError(f"cannot read the image {path}: {error.strerror or error}") from None
    if size > MOST_BYTES:
        raise DataError(f"the image {path} has {size:,} bytes; the most is {MOST_BYTES:,}; make it smaller first")
    return decode_image(content, str(path))


def decode_image(content: bytes, name: str) -> Pixels:
    """The image in some bytes; messages call it `name`."""
    module = _pillow(name)
    try:
        with warnings.catch_warnings():
            # Pillow would warn of what we refuse, and of odd metadata, which is no harm.
            warnings.simplefilter("ignore")
            with module.open(BytesIO(content), formats=FORMATS) as image:
                width, height = image.size
                if width * height > MOST_PIXELS:
                    raise _bomb(name, f"{width} × {height} pixels")
                return _upright(image)
    except module.DecompressionBombError:
        raise _bomb(name, "far too many pixels") from None
    except module.UnidentifiedImageError:
        raise DataError(
            f"{name} is not an image that can be read here: it is none of {', '.join(FORMATS)}, or it is damaged"
        ) from None
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, OverflowError, MemoryError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"the image {name} is damaged or cut short ({reason}); make or copy it again") from None


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


def _upright(image: "Image") -> Pixels:
    """Turned as the camera was held, what is transparent on white, sixteen bits a colour cut to eight."""
    from PIL import Image, ImageOps

    image.load()
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I;16") or upright.mode == "I":
        upright = Image.fromarray((np.asarray(upright).astype(np.int64) // 256).clip(0, 255).astype(np.uint8))
    if upright.mode in ("RGBA", "LA", "PA") or "transparency" in upright.info:
        clear = upright.convert("RGBA")
        upright = Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear)
    return np.array(upright.convert("RGB"))


def _bomb(name: str, size: str) -> DataError:
    return DataError(
        f"the image {name} says it has {size}, more than the {MOST_PIXELS:,} allowed, and is not decoded; "
        "if it is meant, make it smaller first"
    )


def _pillow(name: str) -> ModuleType:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError("pillow", "images", f"reading {name}") from None
    return Image
