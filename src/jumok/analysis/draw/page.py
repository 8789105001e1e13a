"""The map as one HTML page that opens offline in any browser."""

import json
from dataclasses import replace
from importlib.resources import files
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from jumok.analysis.draw.image import DIM, UNSEEN, resized_image, seen_box
from jumok.analysis.draw.shapes import image_url
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.source_layout import GraphLayout, ImageLayout

MOST = 4_000_000
"""Most weights on a page; beyond that it holds averages, because browsers would take minutes."""
SCRIPTS = {"line": "matrix.js", "image": "image.js", "graph": "graph.js"}
"""The script that draws the map, by the layout of its sources."""
Language = Literal["en", "ko"]
TEXTS: dict[Language, dict[str, str]] = {
    "en": {
        "words": "attention of each word",
        "encoder": "self-attention of the encoder",
        "decoder": "self-attention of the decoder",
        "graph": "attention of a node",
        "theme": "Switch between light and dark",
        "noscript": "This map needs JavaScript. All of its numbers are in this file.",
        "many": "This map has {layers} layers of {heads} heads, which is too much for one page: {what}",
        "heads": "the heads are averaged.",
        "all": "layers and heads are averaged.",
        "tokens": "The map between tokens is too large for one page; only words are shown.",
    },
    "ko": {
        "words": "단어별 어텐션",
        "encoder": "인코더의 셀프 어텐션",
        "decoder": "디코더의 셀프 어텐션",
        "graph": "노드의 어텐션",
        "theme": "밝은 화면과 어두운 화면 전환",
        "noscript": "이 맵을 보려면 자바스크립트가 필요합니다. 수치는 모두 이 파일에 들어 있습니다.",
        "many": "이 맵은 레이어가 {layers}개이고 레이어마다 헤드가 {heads}개여서 한 페이지에 담기에 큽니다. {what}",
        "heads": "헤드를 평균했습니다.",
        "all": "레이어와 헤드를 모두 평균했습니다.",
        "tokens": "토큰 맵이 한 페이지에 담기에 너무 커서 단어만 표시합니다.",
    },
}
"""Texts around the map; korean.js has those of the map itself."""


def widget(name: str) -> str:
    """Return the text of a file in the folder web, which saved pages and the server share."""
    return (files("jumok.analysis.draw") / "web" / name).read_text(encoding="utf-8")


def attention_page(attention: AttentionMap, language: Language = "en") -> str:
    """Return a self-contained page: it loads nothing, and words are inserted as text, never as markup."""
    texts, kind = TEXTS[language], attention.layout.kind
    kept, note = _small_enough(attention, texts)
    title = attention.title or _words(attention)[:300]
    if language != "en" and _has_own_title(attention):
        kept = replace(kept, title="")  # the script writes it in the language of the page
        title = f"{texts['graph']}: {attention.source[0]}"
    korean = ("korean.js",) if language == "ko" else ()
    templates = Environment(
        loader=PackageLoader("jumok.analysis.draw", "web"), autoescape=True, undefined=StrictUndefined
    )
    return templates.get_template("page.html.jinja").render(
        title=title,
        heading=texts[kind if kind == "graph" else "words" if attention.kind == "cross" else attention.kind],
        language=language,
        theme=texts["theme"],
        noscript=texts["noscript"],
        note=note,
        scripts=["parts.js", *korean, "attention.js", SCRIPTS[kind]],
        data=_inside_script(kept),
    )


def _has_own_title(attention: AttentionMap) -> bool:
    """Whether the title is that of a node and says nothing else."""
    layout = attention.layout
    return isinstance(layout, GraphLayout) and attention.title == layout.title(attention.source[0])


def _words(attention: AttentionMap) -> str:
    target = " ".join(attention.target)
    alone = isinstance(attention.layout, ImageLayout) or attention.kind != "cross"
    return target if alone else f"{' '.join(attention.source)} → {target}"


def _small_enough(attention: AttentionMap, texts: dict[str, str]) -> tuple[AttentionMap, str]:
    """Reduce a map to what fits a page, and note what is missing: tokens first, then heads, then layers."""
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


def _inside_script(attention: AttentionMap) -> Markup:
    """Write JSON without < and >, so that nothing in it can end its element."""
    text = json.dumps(widget_data(attention), ensure_ascii=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(text)


def widget_data(attention: AttentionMap) -> dict[str, Any]:
    """Return the JSON object for the scripts in web/; an image has the size that pictures show."""
    plain = attention.as_plain()
    if isinstance(attention.layout, ImageLayout):
        picture, box = resized_image(attention.layout), seen_box(attention.layout)
        plain["layout"] |= {"image": image_url(picture), "dim": DIM, "unseen": UNSEEN, "box": box}
        plain["layout"] |= {"height": picture.shape[0], "width": picture.shape[1]}
    return plain
