"""Maps and recordings as the output of a notebook cell: a picture without scripts, in the colours of the notebook."""

from base64 import b64encode
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from jumok.analysis.draw.formats import drawing
from jumok.analysis.draw.shapes import Cells, Drawing, safe, svg_text
from jumok.analysis.draw.style import DARK, LIGHT, largest_weight, notebook_variables, weight_pixels
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.record import Recording
from jumok.analysis.maps.source_layout import PNG_URL, TextLayout, png_bytes
from jumok.errors import ArgumentError

HINTED = 900
"""Beyond this many cells, they are one image without hints; otherwise a notebook would become large."""
THUMBNAILS, THUMBNAIL_CELLS = 96, 250_000
"""Most small pictures of heads, and most cells of all of them; a notebook keeps every output."""
LONGEST = 128
"""Positions of a recording that are shown."""
STYLE = (
    notebook_variables(".jumok-out")
    + ".jumok-out{font:13px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);border-radius:8px;"
    "padding:4px 8px;max-width:100%;overflow-x:auto;width:fit-content}"
    ".jumok-out svg{max-width:none;display:block}"
    ".jumok-out summary{cursor:pointer;color:var(--quiet);padding:4px 8px}"
    ".jumok-out p{margin:6px 8px 2px;color:var(--quiet)}"
    ".jumok-out section{display:inline-block;vertical-align:top;margin:0 16px 8px 0}"
    ".jumok-heads{display:grid;gap:8px;padding:4px 8px 8px;justify-content:start}"
    ".jumok-heads figure{margin:0}.jumok-heads figcaption{font-size:11px;color:var(--quiet);line-height:1.4;"
    "white-space:nowrap}"
    ".jumok-heads img{width:72px;height:72px;object-fit:contain;object-position:left top;image-rendering:pixelated;"
    "margin:0;max-width:none}"
)


def map_html(attention: AttentionMap) -> str:
    """The average over layers and heads, and below it, folded, a small picture of every head."""
    return _page(_map_parts(attention))


def recording_html(recording: Recording) -> str:
    """The first sentence of the last run, position by position, for every kind of attention that was recorded."""
    kinds = ("".join(_kind_parts(recording, kind)) for kind in recording.kinds())
    return _page(f"<section>{part}</section>" for part in kinds)


def _kind_parts(recording: Recording, kind: str) -> Iterator[str]:
    layers = [layer for layer in recording.layers if layer.kind == kind]
    names = safe(layers[0].name if len(layers) == 1 else f"{layers[0].name} … {layers[-1].name}")
    try:
        first = recording.weights(layers[0].number, layers[0].kind)
        sentences, _, queries, keys = first.shape
        shown = recording.first_positions(layers[0].kind, LONGEST)
    except ArgumentError as error:
        yield f"<p><b>{kind}</b> · {names} · {safe(str(error))}</p>"
        return
    size = f"{queries} queries, {keys} keys"
    yield f"<p><b>{kind}</b> · {names} · {size} · sentence 0 of {sentences}</p>"
    yield from _map_parts(shown)


def _page(parts: Iterator[str]) -> str:
    return f'<div class="jumok-out"><style>{STYLE}</style>{"".join(parts)}</div>'


def _map_parts(attention: AttentionMap) -> Iterator[str]:
    yield svg_text([_small(drawing(attention))], style="page")
    layers, heads, targets, sources = attention.weights.shape
    few = 1 < layers * heads <= THUMBNAILS and layers * heads * targets * sources <= THUMBNAIL_CELLS
    if few and isinstance(attention.layout, TextLayout) and targets and sources:
        columns = f"grid-template-columns:repeat({heads if heads > 1 else min(layers, 8)},minmax(72px,max-content))"
        yield f'<details><summary>every layer and head</summary><div class="jumok-heads" style="{columns}">'
        yield from _thumbnails(attention)
        yield "</div></details>"


def _small(picture: Drawing) -> Drawing:
    shapes = [
        shape._replace(hints=None) if isinstance(shape, Cells) and shape.shares.size > HINTED else shape
        for shape in picture.shapes
    ]
    return picture._replace(shapes=shapes)


def _thumbnails(attention: AttentionMap) -> Iterator[str]:
    weights = attention.weights.detach().float().cpu().numpy()
    shares = weights / largest_weight(weights)
    for layer, head in np.ndindex(*shares.shape[:2]):
        name = safe(f"layer {attention.layer_names[layer]} · head {attention.head_names[head]}")
        short = safe(f"{attention.layer_names[layer]} · {attention.head_names[head]}")
        yield f'<figure title="{name}">{_pixels(shares[layer, head], name)}<figcaption>{short}</figcaption></figure>'


def _pixels(shares: Float[np.ndarray, "target source"], name: str) -> str:
    """The weights as an image, one for light and one for dark screens."""
    parts = []
    for place, stops in (("on-light", LIGHT), ("on-dark", DARK)):
        content = b64encode(png_bytes(weight_pixels(shares, stops))).decode()
        parts.append(f'<img class="{place}" alt="{name}" src="{PNG_URL}{content}">')
    return "".join(parts)
