"""Write an attention map to a file; the extension of the file selects the format."""

from dataclasses import replace
from pathlib import Path

from rich.text import Text

from jumok.analysis.draw.graph import graph_drawing, terminal_graph
from jumok.analysis.draw.heatmap import heatmap, heatmap_grid
from jumok.analysis.draw.image import image_panels, terminal_image
from jumok.analysis.draw.page import attention_page
from jumok.analysis.draw.shapes import Drawing, picture_bytes, svg_text
from jumok.analysis.draw.terminal import terminal_map
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.source_layout import GraphLayout, ImageLayout
from jumok.errors import ArgumentError
from jumok.files import atomic_write, checked_format

FORMATS = ("png", "svg", "pdf", "html", "json", "txt")


def save(attention: AttentionMap, path: str | Path, *, title: str | None = None, grid: bool = False) -> Path:
    """Write a map as .png, .svg, .pdf, .html, .json or .txt, completely or not at all.

    Pictures and text show the average over all layers and heads (for a graph, over the heads of the last layer), or
    with `grid` every layer and head separately; pages and JSON hold all weights. `title` replaces the map's own.
    """
    path = Path(path)
    kind = checked_format(path, FORMATS)
    content = to_bytes(attention if title is None else replace(attention, title=title), kind, grid=grid)
    with atomic_write(path) as file:
        file.write(content)
    return path


def to_bytes(attention: AttentionMap, kind: str, *, grid: bool = False) -> bytes:
    """Return the content of a file in that format."""
    if kind in ("png", "pdf"):
        return picture_bytes([drawing(attention, grid=grid)], kind)
    if kind == "svg":
        return to_svg(attention, grid=grid).encode(errors="replace")
    if kind == "html":
        return attention_page(attention).encode(errors="replace")
    text = attention.to_json() + "\n" if kind == "json" else _plain_text(attention)
    return text.encode(errors="replace")


def to_svg(attention: AttentionMap, *, grid: bool = False) -> str:
    """Draw a map as SVG."""
    return svg_text([drawing(attention, grid=grid)])


def to_terminal(attention: AttentionMap, *, width: int = 100, plain: bool = False) -> Text:
    """Draw a map for a terminal of `width` columns; `plain` uses shades instead of colours."""
    if isinstance(attention.layout, ImageLayout):
        return terminal_image(attention, width=width, plain=plain)
    if isinstance(attention.layout, GraphLayout):
        return terminal_graph(attention, plain=plain)
    return terminal_map(attention, width=width, plain=plain)


def _plain_text(attention: AttentionMap) -> str:
    lines = to_terminal(attention, plain=True).plain.splitlines()
    return "".join(f"{line.rstrip()}\n" for line in ([attention.title] if attention.title else []) + lines)


def drawing(attention: AttentionMap, *, grid: bool = False) -> Drawing:
    """Lay out the picture of a map."""
    if grid and isinstance(attention.layout, ImageLayout | GraphLayout):
        raise ArgumentError(
            "a grid of layers and heads shows maps of texts only, and the sources of this map are not words; "
            "select a layer and head, or save as .html, which shows each"
        )
    if isinstance(attention.layout, ImageLayout):
        return image_panels(attention)
    if isinstance(attention.layout, GraphLayout):
        return graph_drawing(attention)
    return heatmap_grid(attention) if grid else heatmap(attention)
