"""Whom a node looked at, as a png or pdf picture: the drawing of the svg, by matplotlib."""

from io import BytesIO

from jumok.analysis.attention_map import AttentionMap
from jumok.analysis.fonts import fonts_for
from jumok.analysis.graph_scene import scene_of

POINTS = 0.72
"""Points to a unit of the drawing."""


def graph_picture(attention: AttentionMap, kind: str) -> bytes:
    """The content of a .png or .pdf file."""
    scene = scene_of(attention)
    fonts = fonts_for([words.text for words in scene.words])
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.patches import Circle

    with rc_context({"font.family": fonts}):
        figure = Figure(figsize=(scene.width / 100, scene.height / 100), dpi=200, facecolor="white")
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, scene.width), ylim=(scene.height, 0))
        axes.axis("off")
        for line in scene.lines:
            axes.plot(
                [line.x1, line.x2],
                [line.y1, line.y2],
                color=line.colour,
                lw=line.width * POINTS,
                solid_capstyle="round",
                zorder=1,
            )
        for disc in scene.discs:
            axes.add_patch(Circle((disc.x, disc.y), disc.radius, fc=disc.fill, ec=disc.rim, lw=1.5 * POINTS, zorder=2))
        for words in scene.words:
            axes.text(
                words.x,
                words.y,
                words.text,
                fontsize=words.size * POINTS,
                color=words.colour,
                zorder=3,
                ha={"start": "left", "middle": "center", "end": "right"}[words.anchor],
                va="baseline",
                fontweight="bold" if words.bold else "normal",
                parse_math=False,
                bbox={"boxstyle": "round,pad=0.25,rounding_size=0.8", "fc": "white", "ec": "none"}
                if words.patch
                else None,
            )
        content = BytesIO()
        figure.savefig(content, format=kind, metadata={"CreationDate": None} if kind == "pdf" else None)
    return content.getvalue()
