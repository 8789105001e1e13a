"""A graph as a place to look at: a node, its neighbours, and theirs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jumok.errors import ArgumentError


@dataclass(frozen=True)
class Nodes:
    """The nodes that are sources: first the one that is asked about, then its neighbours, then theirs.

    The first sources are the targets, in the same order.
    """

    numbers: tuple[int, ...]
    """Of every source, its number in the graph."""
    classes: tuple[str, ...]
    """Of every source; "?" where it is not known."""
    neighbours: int
    """How many nodes the first one can look at besides itself."""
    found: str = ""
    """The class the model says the first one has; "" where it classifies whole graphs."""
    probability: float = 0.0

    kind = "graph"

    @property
    def wrong(self) -> bool:
        """Whether the model says another class than the true one."""
        return self.found not in ("", self.classes[0]) and self.classes[0] != "?"

    def check(self, sources: int, targets: int) -> None:
        """Refuse nodes that do not fit the sources and targets."""
        if not len(self.numbers) == len(self.classes) == sources or not targets <= 1 + self.neighbours <= sources:
            raise ArgumentError(
                f"there are {len(self.numbers)} numbers and {len(self.classes)} classes of nodes, and "
                f"{self.neighbours} neighbours, but {sources} sources and {targets} targets; wanted numbers and "
                "classes of all sources, of which the first are the targets: a node and some of its neighbours"
            )

    def title(self, name: str) -> str:
        """The first node, its class and what the model says of it, in one line."""
        said = f", found to be {self.found} ({self.probability:.0%})" if self.found else ""
        return f"node {name}: class {self.classes[0]}{said}"

    def as_plain(self) -> dict[str, Any]:
        """Numbers, texts and lists only."""
        return {
            "kind": self.kind,
            "numbers": list(self.numbers),
            "classes": list(self.classes),
            "neighbours": self.neighbours,
            "found": self.found,
            "probability": round(self.probability, 6),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Nodes":
        """What `as_plain` described."""
        return cls(
            tuple(map(int, plain["numbers"])),
            tuple(map(str, plain["classes"])),
            int(plain["neighbours"]),
            str(plain.get("found", "")),
            float(plain.get("probability", 0)),
        )
