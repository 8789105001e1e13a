"""The attention matrix as an SVG picture: target words down the side, source words along the top."""

from html import escape

from jumok.analysis.attention_map import AttentionMap
from jumok.analysis.width import cells

CELL = 28
TEXT = 14
FONT = "Pretendard, 'Noto Sans KR', 'Noto Sans CJK KR', 'Apple SD Gothic Neo', 'Malgun Gothic', sans-serif"
INK = "#1f2933"
# A single hue from paper to ink: ordered in lightness, so it also reads in grey and to every kind of eye.
PALE, DEEP = (247, 249, 252), (8, 64, 129)


def heatmap_svg(attention: AttentionMap, title: str = "") -> str:
    """One rectangle for every pair, darker where the target word looked; averaged over layers and heads."""
    weights = attention.mean().tolist()
    left = 16 + _longest(attention.target)
    leaning = _longest(attention.source) * 0.71  # how high and how far to the right a word at 45 degrees reaches
    top = 24 + leaning + (30 if title else 0)
    width = max(left + CELL * len(attention.source) + leaning, 32 + _longest((title,)) * 1.08)
    height = top + CELL * len(attention.target) + 14
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="{FONT}" font-size="{TEXT}" fill="{INK}">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
    ]
    if title:
        parts.append(f'<text x="16" y="24" font-weight="600">{escape(title)}</text>')
    for column, word in enumerate(attention.source):
        x, y = left + CELL * (column + 0.5), top - 8
        parts.append(f'<text x="{x:.1f}" y="{y:.1f}" transform="rotate(-45 {x:.1f} {y:.1f})">{escape(word)}</text>')
    for row, word in enumerate(attention.target):
        y = top + CELL * row
        parts.append(f'<text x="{left - 8:.1f}" y="{y + CELL / 2 + 5:.1f}" text-anchor="end">{escape(word)}</text>')
        for column, source in enumerate(attention.source):
            parts.append(_cell(left + CELL * column, y, weights[row][column], word, source))
    return "\n".join([*parts, "</svg>", ""])


def _cell(x: float, y: float, weight: float, target: str, source: str) -> str:
    hint = f"{escape(target)} ← {escape(source)}: {weight:.2f}"
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{CELL - 2}" height="{CELL - 2}" rx="3" fill="{colour(weight)}">'
        f"<title>{hint}</title></rect>"
    )


def colour(weight: float) -> str:
    """From paper (0) to deep blue (1)."""
    share = min(1.0, max(0.0, weight))
    return "#" + "".join(f"{round(pale + share * (deep - pale)):02x}" for pale, deep in zip(PALE, DEEP, strict=True))


def _longest(words: tuple[str, ...]) -> float:
    return max((cells(word) for word in words), default=0) * TEXT * 0.62
