"""Maps to files: the ending of the name says which kind."""

from collections.abc import Callable
from pathlib import Path

from jumok.analysis.attention_map import AttentionMap
from jumok.data.files import atomic_write
from jumok.errors import ArgumentError

KINDS = ("png", "svg", "pdf", "html", "json")


def save_map(attention: AttentionMap, path: Path, *, title: str = "", grid: bool = False) -> Path:
    """Write the map to `path`."""
    return save_as(path, lambda kind: map_bytes(attention, kind, title=title, grid=grid))


def save_as(path: str | Path, content: Callable[[str], bytes]) -> Path:
    """Write the content of the kind that the name asks for, whole or not at all."""
    path = Path(path)
    found = content(check_kind(path.suffix.lstrip(".").lower(), path))
    with atomic_write(path) as file:
        file.write(found)
    return path


def check_kind(kind: str, path: Path | str) -> str:
    """The kind, if it is one."""
    if kind not in KINDS:
        raise ArgumentError(f"{path} should end in one of .{', .'.join(KINDS)}")
    return kind


def map_bytes(attention: AttentionMap, kind: str, *, title: str = "", grid: bool = False) -> bytes:
    """The content of a file of that kind."""
    if kind == "json":
        return (attention.to_json() + "\n").encode(errors="replace")
    if kind == "html":
        from jumok.analysis.page import attention_page

        return attention_page(attention, title).encode(errors="replace")
    if kind == "svg":
        from jumok.analysis.heatmap_svg import grid_svg, heatmap_svg

        return (grid_svg if grid else heatmap_svg)(attention, title).encode(errors="replace")
    from jumok.analysis.heatmap_picture import heatmap_picture

    return heatmap_picture(attention, kind, title=title, grid=grid)
