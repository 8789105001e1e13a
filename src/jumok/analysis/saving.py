"""Maps to files: the ending of the name says which kind."""

from pathlib import Path

from jumok.analysis.attention_map import AttentionMap
from jumok.analysis.drawing import picture_bytes, svg_text
from jumok.data.files import atomic_write
from jumok.errors import ArgumentError

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
        from jumok.analysis.page import attention_page

        return attention_page(attention).encode(errors="replace")
    if kind == "svg":
        return svg_text(attention, grid=grid).encode(errors="replace")
    return picture_bytes(attention, kind, grid=grid)
