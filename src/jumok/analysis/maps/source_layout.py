"""Where the sources of a map lie: on a line of words, on an image or in a graph, which decides how it is drawn."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jumok.analysis.maps.nodes import Nodes
from jumok.analysis.maps.regions import Regions


@dataclass(frozen=True)
class Line:
    """Words beside each other, as they are read."""

    kind = "line"

    def check(self, sources: int, targets: int) -> None:
        """Any number of words may look at any number."""

    def as_plain(self) -> dict[str, Any]:
        """Nothing but its kind."""
        return {"kind": self.kind}


LINE = Line()
Place = Line | Regions | Nodes


def place_from(plain: Mapping[str, Any]) -> Place:
    """The place that `as_plain` described; a ValueError, KeyError or TypeError where it is none."""
    for kind in (Regions, Nodes):
        if plain["kind"] == kind.kind:
            return kind.from_plain(plain)
    if plain["kind"] != Line.kind:
        raise ValueError(f"place of kind {plain['kind']!r}; there are line, image, graph")
    return LINE
