"""How a map is drawn: as a matrix, as panels over an image, or as a graph, by where its sources lie."""

from typing import TYPE_CHECKING

from jumok.analysis.attention_map import AttentionMap
from jumok.analysis.nodes import Nodes
from jumok.analysis.regions import Regions
from jumok.errors import ArgumentError

if TYPE_CHECKING:
    from rich.text import Text


def svg_text(attention: AttentionMap, *, grid: bool = False) -> str:
    """The content of an .svg file."""
    check_grid(attention, grid)
    if isinstance(attention.place, Regions):
        from jumok.analysis.image_panels import panels_svg

        return panels_svg(attention)
    if isinstance(attention.place, Nodes):
        from jumok.analysis.graph_svg import graph_svg

        return graph_svg(attention)
    from jumok.analysis.heatmap_svg import grid_svg, heatmap_svg

    return (grid_svg if grid else heatmap_svg)(attention, attention.title)


def picture_bytes(attention: AttentionMap, kind: str, *, grid: bool = False) -> bytes:
    """The content of a .png or .pdf file."""
    check_grid(attention, grid)
    if isinstance(attention.place, Regions):
        from jumok.analysis.image_panels import panels_picture

        return panels_picture(attention, kind)
    if isinstance(attention.place, Nodes):
        from jumok.analysis.graph_picture import graph_picture

        return graph_picture(attention, kind)
    from jumok.analysis.heatmap_picture import heatmap_picture

    return heatmap_picture(attention, kind, title=attention.title, grid=grid)


def terminal_text(attention: AttentionMap, *, width: int = 100, plain: bool = False) -> "Text":
    """For a terminal of so many columns, with or without colours."""
    if isinstance(attention.place, Regions):
        from jumok.analysis.image_terminal import terminal_image

        return terminal_image(attention, width=width, plain=plain)
    if isinstance(attention.place, Nodes):
        from jumok.analysis.graph_terminal import terminal_graph

        return terminal_graph(attention, plain=plain)
    from jumok.analysis.terminal import terminal_map

    return terminal_map(attention, width=width, plain=plain)


def check_grid(attention: AttentionMap, grid: bool) -> None:
    """Refuse a picture of every layer and head where it would be a picture of pictures."""
    if grid and isinstance(attention.place, Regions | Nodes):
        raise ArgumentError(
            "a grid of layers and heads is drawn of texts only, and the sources of this map are not words; "
            "choose one of them, or save as .html, which shows each"
        )
