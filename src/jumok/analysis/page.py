"""The attention map as one page: every layer and head, to be opened offline in any browser."""

import json
import re
from html import escape
from importlib.resources import files

from jumok.analysis.attention_map import AttentionMap

MOST = 4_000_000
"""Numbers a page holds; beyond that it holds averages, or the browser would be busy for minutes."""


def widget(name: str) -> str:
    """The text of attention.js or attention.css, the same for a saved page and a server's; or of page.html.in."""
    return (files("jumok.analysis") / "web" / name).read_text(encoding="utf-8")


def attention_page(attention: AttentionMap, title: str = "") -> str:
    """One self-contained file: nothing is fetched, and words are inserted as text, never as markup."""
    kept, note = _small_enough(attention)
    shown = escape(title or f"{' '.join(attention.source)} → {' '.join(attention.target)}"[:300])
    parts = {
        "title": shown,
        "note": f'<p class="note">{escape(note)}</p>' if note else "",
        "css": widget("attention.css"),
        "js": widget("attention.js"),
        "data": _inside_script(kept),
    }
    return re.sub("@@(title|note|css|js|data)@@", lambda found: parts[found[1]], widget("page.html.in"))


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
    text = json.dumps(attention.as_plain(), ensure_ascii=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text
