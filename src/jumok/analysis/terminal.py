"""The attention matrix in a terminal: in colour where there is colour, in shades of grey blocks elsewhere."""

from rich.text import Text

from jumok.analysis.attention_map import AttentionMap
from jumok.analysis.heatmap_svg import colour
from jumok.analysis.width import cells, fitted

SHADES = " ░▒▓█"


def terminal_map(attention: AttentionMap, *, width: int = 100, plain: bool = False) -> Text:
    """Source words along the top, a row for every target word; columns as wide as their words where that fits."""
    label = max((cells(word) for word in attention.target), default=0)
    columns = [max(3, cells(word)) for word in attention.source]
    named = label + 2 + sum(column + 1 for column in columns) <= width
    if not named:
        columns = [max(2, len(str(number))) for number in range(1, len(columns) + 1)]
    heads = attention.source if named else [str(number) for number in range(1, len(columns) + 1)]
    lines = [Text(" " * (label + 2) + " ".join(map(fitted, heads, columns)))]
    for word, row in zip(attention.target, attention.mean().tolist(), strict=True):
        shaded = [_cell(weight, size, plain) for weight, size in zip(row, columns, strict=True)]
        lines.append(Text(" " * (label - cells(word)) + word + "  ") + Text(" ").join(shaded))
    if not named:
        legend = "  ".join(f"{number} {word}" for number, word in enumerate(attention.source, 1))
        lines.append(Text(legend, style="dim"))
    return Text("\n").join(lines)


def _cell(weight: float, size: int, plain: bool) -> Text:
    if plain:
        shade = SHADES[min(len(SHADES) - 1, round(weight * (len(SHADES) - 1) + 0.2))]
        return Text(shade * size)
    return Text(" " * size, style=f"on {colour(weight)}")
