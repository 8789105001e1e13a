"""The attention map as one page: every layer and head, to be opened offline in any browser."""

import json
from html import escape
from importlib.resources import files

from jumok.analysis.attention_map import AttentionMap

MOST = 4_000_000
"""Numbers a page holds; beyond that it holds averages, or the browser would be busy for minutes."""


def widget(name: str) -> str:
    """The text of attention.js or attention.css, the same for a saved page and a server's."""
    return (files("jumok.analysis") / "web" / name).read_text(encoding="utf-8")


def attention_page(attention: AttentionMap, title: str = "") -> str:
    """One self-contained file: nothing is fetched, and words are inserted as text, never as markup."""
    kept, note = _small_enough(attention)
    shown = escape(title or f"{' '.join(attention.source)} → {' '.join(attention.target)}"[:300])
    return PAGE.format(
        title=shown,
        note=f'<p class="note">{escape(note)}</p>' if note else "",
        css=widget("attention.css"),
        js=widget("attention.js"),
        data=_inside_script(kept),
    )


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


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="jumok">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>{title}</title>
<style>
{css}
html {{ background: #fff; color-scheme: light dark; }}
:root[data-theme="light"] {{ color-scheme: light; }}
:root[data-theme="dark"] {{ background: #131925; color-scheme: dark; }}
@media (prefers-color-scheme: dark) {{ :root:not([data-theme="light"]) {{ background: #131925; }} }}
body {{ margin: 0 auto; padding: 12px clamp(14px, 4vw, 40px) 48px; max-width: 1180px; }}
header {{ display: flex; justify-content: space-between; align-items: center; margin-bottom: 14px;
  font: 13px system-ui, sans-serif; color: #7b8794; }}
header button {{ border: 0; background: none; color: inherit; font-size: 20px; cursor: pointer; padding: 8px; margin: 0 -8px; }}
.note {{ font: 14px system-ui, sans-serif; color: #8a6d1d; }}
</style>
</head>
<body>
<header><span>주목 jumok · where each word looked</span><button type="button" aria-label="Light or dark">◐</button></header>
{note}
<main id="map"></main>
<noscript>This map needs JavaScript; the same file holds all of its numbers.</noscript>
<script type="application/json" id="data">{data}</script>
<script>
{js}
</script>
<script>
(function () {{
  const page = document.documentElement;
  document.querySelector("header button").addEventListener("click", function () {{
    const dark = page.dataset.theme ? page.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    page.dataset.theme = dark ? "light" : "dark";
  }});
  window.map = Jumok.attentionMap(document.getElementById("map"), JSON.parse(document.getElementById("data").textContent));
}})();
</script>
</body>
</html>
"""
