"""The attention map as one page: every layer and head, to be opened offline in any browser."""

import json
import re
from dataclasses import replace
from html import escape
from importlib.resources import files
from typing import Any, Literal

from jumok.analysis.draw.image import embedded
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.regions import DIM, UNSEEN, Regions

MOST = 4_000_000
"""Numbers a page holds; beyond that it holds averages, or the browser would be busy for minutes."""
SCRIPTS = {"line": "matrix.js", "image": "image.js", "graph": "graph.js"}
"""What draws the map, by where its sources lie."""
Language = Literal["en", "ko"]
TEXTS: dict[Language, dict[str, str]] = {
    "en": {
        "words": "where each word looked",
        "graph": "whom a node looked at",
        "theme": "Light or dark",
        "noscript": "This map needs JavaScript; the same file holds all of its numbers.",
        "many": "This map has {layers} layers of {heads} heads, too many numbers for one page: {what}",
        "heads": "heads are averaged.",
        "all": "all are averaged.",
        "tokens": "Too many tokens for one page: words only.",
    },
    "ko": {
        "words": "단어마다 어디를 보았나",
        "graph": "노드가 누구를 보았나",
        "theme": "밝게 또는 어둡게",
        "noscript": "이 지도를 보려면 자바스크립트가 필요합니다. 숫자는 모두 이 파일 안에 있습니다.",
        "many": "이 지도는 층 {layers}개에 헤드가 {heads}개씩 있어 한 화면에 담기에는 숫자가 너무 많습니다. {what}",
        "heads": "헤드를 평균했습니다.",
        "all": "모두 평균했습니다.",
        "tokens": "토큰이 너무 많아 단어만 보여 줍니다.",
    },
}
"""What a page says around its map; the map itself speaks Korean by korean.js."""


def widget(name: str) -> str:
    """The text of a file in the folder web, the same for a saved page and a server's."""
    return (files("jumok.analysis.draw") / "web" / name).read_text(encoding="utf-8")


def attention_page(attention: AttentionMap, language: Language = "en") -> str:
    """One self-contained file: nothing is fetched, and words are inserted as text, never as markup."""
    texts, kind = TEXTS[language], attention.place.kind
    kept, note = _small_enough(attention, texts)
    korean = ("korean.js",) if language == "ko" else ()
    parts = {
        "title": escape(attention.title or _words(attention)[:300]),
        "heading": texts["graph" if kind == "graph" else "words"],
        "language": language,
        "theme": texts["theme"],
        "noscript": texts["noscript"],
        "note": f'<p class="note">{escape(note)}</p>' if note else "",
        "css": widget("attention.css"),
        "js": "\n".join(map(widget, ("parts.js", *korean, "attention.js", SCRIPTS[kind]))),
        "data": _inside_script(kept),
    }
    return re.sub(f"@@({'|'.join(parts)})@@", lambda found: parts[found[1]], widget("page.html.in"))


def _words(attention: AttentionMap) -> str:
    said = " ".join(attention.target)
    return said if isinstance(attention.place, Regions) else f"{' '.join(attention.source)} → {said}"


def _small_enough(attention: AttentionMap, texts: dict[str, str]) -> tuple[AttentionMap, str]:
    """What a page holds of a map, and what it says of the rest: tokens go first, then heads, then layers."""
    if _numbers(attention) <= MOST:
        return attention, ""
    attention, note = replace(attention, tokens=None), texts["tokens"] if attention.tokens is not None else ""
    if _numbers(attention) <= MOST:
        return attention, note
    layers, heads = attention.weights.shape[:2]
    by_layer = attention.select(head="mean")
    fits = by_layer.weights.numel() <= MOST
    note = texts["many"].format(layers=layers, heads=heads, what=texts["heads" if fits else "all"])
    return by_layer if fits else by_layer.select(layer="mean"), note


def _numbers(attention: AttentionMap) -> int:
    tokens = attention.tokens
    return attention.weights.numel() + (0 if tokens is None else tokens.weights.numel())


def _inside_script(attention: AttentionMap) -> str:
    """JSON that holds no < or >, so that nothing in it can end the element it stands in."""
    text = json.dumps(widget_data(attention), ensure_ascii=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def widget_data(attention: AttentionMap) -> dict[str, Any]:
    """The map as the widget of web/ takes it; an image at the size at which it is drawn."""
    plain = attention.as_plain()
    if isinstance(attention.place, Regions):
        picture = attention.place.picture()
        plain["place"] |= {"image": embedded(picture), "dim": DIM, "unseen": UNSEEN, "box": attention.place.box}
        plain["place"] |= {"height": picture.shape[0], "width": picture.shape[1]}
    return plain
