"""The attention map as one page: every layer and head, to be opened offline in any browser."""

import json
import re
from base64 import b64encode
from html import escape
from importlib.resources import files
from typing import Any

from jumok.analysis.attention_map import AttentionMap
from jumok.analysis.colours import png_bytes
from jumok.analysis.regions import DIM, PNG, Regions

MOST = 4_000_000
"""Numbers a page holds; beyond that it holds averages, or the browser would be busy for minutes."""
SCRIPTS = {"line": "matrix.js", "image": "image.js", "graph": "graph.js"}
"""What draws the map, by where its sources lie."""
HEADINGS = {"graph": "whom a node looked at"}


def widget(name: str) -> str:
    """The text of a file in the folder web, the same for a saved page and a server's."""
    return (files("jumok.analysis") / "web" / name).read_text(encoding="utf-8")


def attention_page(attention: AttentionMap) -> str:
    """One self-contained file: nothing is fetched, and words are inserted as text, never as markup."""
    kept, note = _small_enough(attention)
    kind = attention.place.kind
    parts = {
        "title": escape(attention.title or _words(attention)[:300]),
        "heading": HEADINGS.get(kind, "where each word looked"),
        "note": f'<p class="note">{escape(note)}</p>' if note else "",
        "css": widget("attention.css"),
        "js": "\n".join(map(widget, ("parts.js", "attention.js", SCRIPTS[kind]))),
        "data": _inside_script(kept),
    }
    return re.sub(f"@@({'|'.join(parts)})@@", lambda found: parts[found[1]], widget("page.html.in"))


def _words(attention: AttentionMap) -> str:
    said = " ".join(attention.target)
    return said if isinstance(attention.place, Regions) else f"{' '.join(attention.source)} → {said}"


def _small_enough(attention: AttentionMap) -> tuple[AttentionMap, str]:
    if attention.weights.numel() <= MOST:
        return attention, ""
    layers, heads = attention.weights.shape[:2]
    note = f"This map has {layers} layers of {heads} heads, too many numbers for one page: "
    by_layer = attention.select(head="mean")
    if by_layer.weights.numel() <= MOST:
        return by_layer, note + "heads are averaged."
    return by_layer.select(layer="mean"), note + "all are averaged."


def _inside_script(attention: AttentionMap) -> str:
    """JSON that holds no < or >, so that nothing in it can end the element it stands in."""
    text = json.dumps(_plain(attention), ensure_ascii=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _plain(attention: AttentionMap) -> dict[str, Any]:
    """The map; an image as large as pictures show it, so that both show the same."""
    plain = attention.as_plain()
    if isinstance(attention.place, Regions):
        picture = attention.place.picture()
        plain["place"] |= {"image": PNG + b64encode(png_bytes(picture)).decode(), "dim": DIM}
        plain["place"] |= {"height": picture.shape[0], "width": picture.shape[1]}
    return plain
