"""Pictures of layers: heads, local windows, positions and graphs."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from docs.drawing.style import BLUE, GREY, INK, ORANGE, PALE, SCORES, bare, cells, sheet
from jumok.layers import (
    AdditiveAttention,
    ConcatenatedPositions,
    GraphAttention,
    GraphAttentionV2,
    LuongAttention,
    MultiHeadAttention,
    RotaryPositions,
    TokenEmbedding,
    sinusoids,
)


def multi_head() -> Figure:
    """Four heads with weights set by hand: one step back, the same position, one step ahead, and everywhere."""
    width, heads = 64, 4
    layer = MultiHeadAttention(width=width, heads=heads, bias=False)
    places = sinusoids(torch.arange(9), 16, base=30.0).repeat(1, heads)
    with torch.no_grad():
        layer.to_key.weight.copy_(torch.eye(width))
        for head, (step, sharp) in enumerate([(-1, 4.0), (0, 4.0), (1, 4.0), (0, 0.3)]):
            piece = slice(head * 16, head * 16 + 16)
            layer.to_query.weight[piece] = 0
            layer.to_query.weight[piece, piece] = sharp * _shift(step, 16, 30.0)
    weights = layer(places[None]).weights()[0]
    figure, axes = sheet(heads, width=4.4, height=1.35)
    titles = ("one back", "itself", "one on", "all")
    for number, (one, title) in enumerate(zip(axes, titles, strict=True)):
        cells(one, weights[number], rows="query" if number == 0 else "")
        one.set_title(title)
    return figure


def grouped() -> Figure:
    """Eight query heads share two heads of keys and values."""
    figure, axes = sheet(height=1.2)
    for head in range(8):
        axes.plot([head, 1.5 + 4 * (head // 4)], [1, 0], color=GREY, lw=0.8, zorder=1)
        axes.plot(head, 1, "s", color=BLUE, ms=6)
    axes.plot([1.5, 5.5], [0, 0], "s", color=ORANGE, ms=8)
    axes.text(3.5, 1.2, "query heads", ha="center", va="bottom", color=BLUE)
    axes.text(3.5, -0.25, "key and value heads", ha="center", va="top", color=ORANGE)
    axes.set(xlim=(-0.5, 7.5), ylim=(-0.6, 1.5))
    bare(axes)
    return figure


def incremental() -> Figure:
    """Incremental decoding: computes the newest row and keeps the earlier keys."""
    figure, axes = sheet(width=2.0)
    rows, keys = torch.arange(8)[:, None], torch.arange(8)
    amount = torch.where(rows == 5, 0.85, 0.2)
    cells(axes, amount.expand(8, 8), hidden=(keys > rows) | (rows > 5), high=1)
    axes.annotate("this step", (8.1, 5.5), color=BLUE, va="center", annotation_clip=False)
    return figure


@torch.enable_grad()
def additive_layer() -> Figure:
    """The weights of a layer trained to reverse a sequence."""
    length, layer = 10, AdditiveAttention(query_width=16, key_width=24, hidden=32)
    places = sinusoids(torch.arange(length), 16, base=40.0)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.02)
    for _ in range(250):
        words = torch.randn(16, length, 8)
        states = torch.cat([places.expand(16, -1, -1), words], -1)
        said = layer(places.expand(16, -1, -1), layer.memory(states)).values[..., 16:]
        optimiser.zero_grad()
        F.mse_loss(said, words.flip(1)).backward()
        optimiser.step()
    figure, axes = sheet(width=1.5)
    cells(axes, layer(places[None], layer.memory(states[:1])).weights()[0], columns="source", rows="target")
    return figure


def luong_local(reach: str) -> Figure:
    """The weights of a layer that sees only a window."""
    layer = LuongAttention(query_width=8, key_width=8, reach=reach, half_window=2)
    states, queries = torch.randn(1, 10, 8), torch.randn(1, 10, 8)
    if reach == "local-p":  # queries that drift, so that the predicted centre does
        drift = torch.linspace(-1, 1, 10)[:, None]
        with torch.no_grad():
            layer.to_centre[0].weight.copy_(torch.eye(8))
            layer.to_centre[2].weight.fill_(0.3)
        queries = (drift * 1.1 + 0.25 * torch.randn(10, 8))[None]
    weights = layer(queries, layer.memory(states)).weights()[0]
    figure, axes = sheet(width=1.5)
    cells(axes, weights, hidden=weights == 0, columns="source", rows="target")
    return figure


def added() -> Figure:
    """Sinusoids, one row per position."""
    figure, axes = sheet()
    axes.imshow(sinusoids(torch.arange(32), 48).numpy(), cmap=SCORES, interpolation="nearest")
    axes.set(xlabel="feature", ylabel="position")
    bare(axes)
    return figure


def concatenated() -> Figure:
    """The token's vector followed by the position's vector."""
    layer = ConcatenatedPositions(width=48, position_width=16)
    figure, axes = sheet()
    axes.imshow(layer(0.6 * torch.randn(32, 32)).numpy(), cmap=SCORES, interpolation="nearest")
    axes.axvline(31.5, color="white", lw=1.5)
    axes.set(ylabel="position")
    axes.text(15.5, 33, "token", ha="center", va="top")
    axes.text(40, 33, "PE", ha="center", va="top")
    bare(axes)
    return figure


def learned() -> Figure:
    """A table with one vector per position; position 5 is highlighted."""
    figure, axes = sheet(width=2.0)
    cells(axes, torch.randn(10, 14), colours=SCORES, low=None, columns="feature", rows="position")
    axes.plot([0, 14, 14, 0, 0], [5, 5, 6, 6, 5], color=ORANGE, lw=1.4, clip_on=False)
    axes.annotate("P[5]", (14.3, 5.5), color=ORANGE, va="center", annotation_clip=False)
    return figure


def rotary() -> Figure:
    """The same vector at positions 0 to 5."""
    turned = RotaryPositions(head_dim=2, base=1.0)(torch.tensor([[0.9, 0.35]]).expand(6, 2) * 1.0)
    figure, axes = sheet(width=1.5)
    circle = torch.linspace(0, 2 * torch.pi, 100)
    axes.plot(0.966 * circle.cos(), 0.966 * circle.sin(), color=PALE, lw=1)
    for place, point in enumerate(turned.tolist()):
        colour = colormaps["Blues"](0.95 - 0.1 * place)
        axes.annotate("", point, (0, 0), arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 1.1})
        axes.text(1.22 * point[0], 1.22 * point[1], str(place), ha="center", va="center")
    axes.set(xlim=(-1.35, 1.35), ylim=(-1.35, 1.35), aspect="equal")
    bare(axes)
    return figure


def feed_forward() -> Figure:
    """The activation functions."""
    x = torch.linspace(-3, 2, 200)
    figure, axes = sheet()
    for name, curve, colour, line in (
        ("relu", F.relu, INK, "-"),
        ("gelu", F.gelu, BLUE, "-"),
        ("silu", F.silu, ORANGE, "--"),
    ):
        axes.plot(x, curve(x), line, color=colour, label=name, lw=1.2)
    axes.legend(frameon=False, fontsize=7, loc="upper left", handlelength=1.4, borderaxespad=0)
    axes.set(xticks=[0], yticks=[0])
    return figure


def embedding() -> Figure:
    """Ids select rows of a table; the padding row is zero."""
    layer = TokenEmbedding(vocabulary=7, width=8, padding=0)
    ids = torch.tensor([3, 5, 1, 0])
    figure, (left, right) = sheet(2, width=2.6, ratios=[1, 1])
    high = float(layer.table.abs().max())
    cells(left, layer.table, colours=SCORES, low=-high, high=high, columns="table", rows="id")
    cells(right, layer(ids), colours=SCORES, low=-high, high=high, columns="", rows="")
    right.set(yticks=torch.arange(4) + 0.5, yticklabels=ids.tolist(), xlabel="sentence 3 5 1 0")
    right.tick_params(length=0)
    return figure


NODES = torch.tensor([[0.0, 0.0], [1.0, 0.55], [0.85, -0.6], [-0.2, -1.0], [-1.05, -0.3], [-0.7, 0.85], [0.3, 1.05]])
EDGES = torch.tensor([[1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 0]])


def gat() -> Figure:
    """A node and its neighbours; the width of an edge shows α."""
    layer = GraphAttention(in_width=4, out_width=8)
    weights = layer(0.9 * torch.randn(7, 4), EDGES).weights()[:, 0]
    figure, axes = sheet(width=1.7, height=1.55)
    for (source, target), weight in zip(EDGES.T.tolist(), weights.tolist(), strict=True):
        start, end = NODES[source], NODES[target]
        step = (end - start) / (end - start).norm()
        axes.plot(
            *zip((start + 0.1 * step).tolist(), (end - 0.2 * step).tolist(), strict=True), color=BLUE, lw=10 * weight
        )
        head = {
            "arrowstyle": "-|>,head_width=0.22,head_length=0.4",
            "color": BLUE,
            "lw": 0.5,
            "shrinkA": 0,
            "shrinkB": 0,
        }
        axes.annotate("", (end - 0.11 * step).tolist(), (end - 0.3 * step).tolist(), arrowprops=head)
    axes.scatter(*NODES.T.numpy(), s=34, color=[ORANGE] + [INK] * 6, zorder=3)
    axes.set(xlim=(-1.3, 1.25), ylim=(-1.25, 1.3), aspect="equal")
    bare(axes)
    return figure


def gat_v2() -> Figure:
    """In GAT all nodes rank their neighbours alike; in GATv2 each node can have its own ranking."""
    nodes = 7
    everyone = torch.cartesian_prod(torch.arange(nodes), torch.arange(nodes)).T
    x = 2.5 * torch.randn(nodes, 6, generator=torch.Generator().manual_seed(8))
    figure, axes = sheet(2, width=2.8, height=1.5)
    for one, kind, title in zip(axes, (GraphAttention, GraphAttentionV2), ("GAT", "GATv2"), strict=True):
        torch.manual_seed(21)
        weights = kind(in_width=6, out_width=8)(x, everyone).weights().view(nodes, nodes).T  # target, source
        cells(one, weights, columns="neighbour", rows="node" if kind is GraphAttention else "")
        _dots(one, weights)
        one.set_title(title)
    return figure


def _dots(axes: Axes, weights: Tensor) -> None:
    axes.plot(weights.argmax(-1) + 0.5, torch.arange(len(weights)) + 0.5, "o", color=ORANGE, ms=3.5)


def _shift(step: int, width: int, base: float) -> Tensor:
    """The matrix that maps the sinusoids of p to those of p + step."""
    angle = step * base ** -(torch.arange(0, width, 2) / width)
    turns = [torch.tensor([[a.cos(), a.sin()], [-a.sin(), a.cos()]]) for a in angle]
    return torch.block_diag(*turns)


PICTURES: dict[str, Callable[[], Figure]] = {
    "multi_head": multi_head,
    "grouped": grouped,
    "incremental": incremental,
    "additive_layer": additive_layer,
    "local_m": partial(luong_local, "local-m"),
    "local_p": partial(luong_local, "local-p"),
    "added": added,
    "concatenated": concatenated,
    "learned": learned,
    "rotary": rotary,
    "feed_forward": feed_forward,
    "embedding": embedding,
    "gat": gat,
    "gat_v2": gat_v2,
}
