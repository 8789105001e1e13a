"""Whom a node looked at, in a terminal: a row for every node with its weight as a number and as a bar."""

from rich.text import Text

from jumok.analysis.attention_map import AttentionMap
from jumok.analysis.colours import colour
from jumok.analysis.graph_rows import row_of
from jumok.analysis.terminal import one_line
from jumok.analysis.width import cells, fitted

BAR = 24
"""Cells of the longest bar."""
SHOWN = 30
"""Rows of the table."""


def terminal_graph(attention: AttentionMap, *, plain: bool = False) -> Text:
    """What the node looked at in the last layer of the map, averaged over heads."""
    row = row_of(attention)
    every = sorted((*row.others, *row.itself), key=lambda one: -one.weight)
    if not every:
        return Text("it has no neighbour and looked at nothing")
    seen, rest = every[:SHOWN], every[SHOWN:]
    names = [one_line(one.name) + (" (itself)" if one.place == 0 else "") for one in seen]
    labels = [one_line(one.label) for one in seen]
    wide, label = (max(map(cells, column)) for column in (["node", *names], ["class", *labels]))
    top = seen[0].weight or 1.0
    lines = [Text(f"{fitted('node', wide)}  {fitted('class', label)}  weight")]
    for name, said, one in zip(names, labels, seen, strict=True):
        bar = round(BAR * one.weight / top)
        shade = Text("█" * bar) if plain else Text(" " * bar, style=f"on {colour(0.25 + 0.75 * one.weight / top)}")
        lines.append(Text(f"{fitted(name, wide)}  {fitted(said, label)}   {one.weight:.3f}  ") + shade)
    if rest:
        lines.append(Text(f"and {len(rest)} more, together {sum(one.weight for one in rest):.3f}; --json has all"))
    return Text("\n").join(lines)
