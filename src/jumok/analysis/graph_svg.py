"""Whom a node looked at, as an SVG picture."""

from jumok.analysis.attention_map import AttentionMap
from jumok.analysis.graph_scene import Disc, Line, Scene, Words, scene_of
from jumok.analysis.heatmap_svg import FONT, safe


def graph_svg(attention: AttentionMap) -> str:
    """A picture of its own."""
    scene = scene_of(attention)
    width, height = scene.width, scene.height
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="{FONT}">',
            f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
            *drawn(scene),
            "</svg>",
            "",
        ]
    )


def drawn(scene: Scene) -> list[str]:
    """The elements of a scene, what is drawn first at the back."""
    return [*map(_line, scene.lines), *map(_disc, scene.discs), *map(_words, scene.words)]


def _line(line: Line) -> str:
    return (
        f'<line x1="{line.x1:.1f}" y1="{line.y1:.1f}" x2="{line.x2:.1f}" y2="{line.y2:.1f}" stroke="{line.colour}" '
        f'stroke-width="{line.width:.2f}" stroke-linecap="round"><title>{safe(line.hint)}</title></line>'
    )


def _disc(disc: Disc) -> str:
    return (
        f'<circle cx="{disc.x:.1f}" cy="{disc.y:.1f}" r="{disc.radius:.1f}" fill="{disc.fill}" stroke="{disc.rim}" '
        f'stroke-width="1.5"><title>{safe(disc.hint)}</title></circle>'
    )


def _words(words: Words) -> str:
    bold = ' font-weight="600"' if words.bold else ""
    wide, high = 0.58 * words.size * len(words.text) + 6, words.size * 1.3
    patch = (
        f'<rect x="{words.x - wide / 2:.1f}" y="{words.y - high * 0.76:.1f}" width="{wide:.1f}" height="{high:.1f}" '
        f'rx="{high / 2:.1f}" fill="white" pointer-events="none"/>'
    )
    return (patch if words.patch else "") + (
        f'<text x="{words.x:.1f}" y="{words.y:.1f}" font-size="{words.size:g}" fill="{words.colour}" '
        f'text-anchor="{words.anchor}"{bold} pointer-events="none">{safe(words.text)}</text>'
    )
