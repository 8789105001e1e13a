"""The colours of weights: one hue from paper to ink, ordered in lightness, so it reads in grey and to every eye."""

import struct
import zlib
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

LIGHT = ("#f3f6fb", "#cfe1f3", "#82b4de", "#2f78bc", "#0a3a78")
DARK = ("#1d2534", "#1f4570", "#2a74b8", "#67b7f0", "#dcf1ff")
"""As in web/parts.js and report.css: on a light and on a dark ground."""
INK, QUIET = "#1f2933", "#66717f"
"""Of words, and of what should not be noticed first."""


def colour(weight: float, stops: Sequence[str] = LIGHT) -> str:
    """From the first of the stops (0) to the last (1), as #rrggbb."""
    return "#" + "".join(f"{part:02x}" for part in shades(np.array(float(weight)), stops).tolist())


def mixed(weight: float, stops: Sequence[str]) -> str:
    """The same where the stops are variables of a page: CSS that mixes the two next to the weight."""
    place = min(max(float(weight), 0.0), 1.0) * (len(stops) - 1)
    low = min(int(place), len(stops) - 2)
    return f"color-mix(in srgb, {stops[low]}, {stops[low + 1]} {100 * (place - low):.0f}%)"


def shades(weights: Float[np.ndarray, "*place"], stops: Sequence[str] = LIGHT) -> np.ndarray:
    """Red, green and blue of every weight, in bytes, along a new last axis."""
    known = np.array([[int(stop[at : at + 2], 16) for at in (1, 3, 5)] for stop in stops], float)
    places = np.linspace(0, 1, len(stops))
    parts = [np.interp(weights.clip(0, 1), places, known[:, part]) for part in range(3)]
    return np.stack(parts, -1).round().astype(np.uint8)


def darkest(weights: Float[np.ndarray, "*place"]) -> float:
    """The weight that gets the darkest colour: the largest there is."""
    return float(weights.max(initial=0.0)) or 1.0


def png_bytes(pixels: np.ndarray) -> bytes:
    """A PNG file of red, green and blue bytes [height, width, 3]."""
    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], 1)  # 0: a row as it is
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in parts
    )
