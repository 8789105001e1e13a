"""Maps to files: the ending of the name says which kind."""

from pathlib import Path
from typing import TYPE_CHECKING

from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.nodes import Nodes
from jumok.analysis.maps.regions import Regions
from jumok.errors import ArgumentError
from jumok.files import atomic_write

if TYPE_CHECKING:
    from rich.text import Text


def svg_text(attention: AttentionMap, *, grid: bool = False) -> str:
    """The content of an .svg file."""
    check_grid(attention, grid)
    if isinstance(attention.place, Regions):
        from jumok.analysis.draw.image import panels_svg

        return panels_svg(attention)
    if isinstance(attention.place, Nodes):
        from jumok.analysis.draw.graph import graph_svg

        return graph_svg(attention)
    from jumok.analysis.draw.heatmap_svg import grid_svg, heatmap_svg

    return (grid_svg if grid else heatmap_svg)(attention, attention.title)


def picture_bytes(attention: AttentionMap, kind: str, *, grid: bool = False) -> bytes:
    """The content of a .png or .pdf file."""
    check_grid(attention, grid)
    if isinstance(attention.place, Regions):
        from jumok.analysis.draw.image import panels_picture

        return panels_picture(attention, kind)
    if isinstance(attention.place, Nodes):
        from jumok.analysis.draw.graph import graph_picture

        return graph_picture(attention, kind)
    from jumok.analysis.draw.heatmap import heatmap_picture

    return heatmap_picture(attention, kind, title=attention.title, grid=grid)


def terminal_text(attention: AttentionMap, *, width: int = 100, plain: bool = False) -> "Text":
    """For a terminal of so many columns, with or without colours."""
    if isinstance(attention.place, Regions):
        from jumok.analysis.draw.image import terminal_image

        return terminal_image(attention, width=width, plain=plain)
    if isinstance(attention.place, Nodes):
        from jumok.analysis.draw.graph import terminal_graph

        return terminal_graph(attention, plain=plain)
    from jumok.analysis.draw.terminal import terminal_map

    return terminal_map(attention, width=width, plain=plain)


def check_grid(attention: AttentionMap, grid: bool) -> None:
    """Refuse a picture of every layer and head where it would be a picture of pictures."""
    if grid and isinstance(attention.place, Regions | Nodes):
        raise ArgumentError(
            "a grid of layers and heads is drawn of texts only, and the sources of this map are not words; "
            "choose one of them, or save as .html, which shows each"
        )


KINDS = ("png", "svg", "pdf", "html", "json")


def save_map(attention: AttentionMap, path: Path, *, grid: bool = False) -> Path:
    """Write the map to `path`, whole or not at all."""
    found = map_bytes(attention, check_kind(path.suffix.lstrip(".").lower(), path), grid=grid)
    with atomic_write(path) as file:
        file.write(found)
    return path


def check_kind(kind: str, path: Path | str) -> str:
    """The kind, if it is one."""
    if kind not in KINDS:
        raise ArgumentError(f"{path} should end in one of .{', .'.join(KINDS)}")
    return kind


def map_bytes(attention: AttentionMap, kind: str, *, grid: bool = False) -> bytes:
    """The content of a file of that kind."""
    if kind == "json":
        return (attention.to_json() + "\n").encode(errors="replace")
    if kind == "html":
        from jumok.analysis.draw.page import attention_page

        return attention_page(attention).encode(errors="replace")
    if kind == "svg":
        return svg_text(attention, grid=grid).encode(errors="replace")
    return picture_bytes(attention, kind, grid=grid)
