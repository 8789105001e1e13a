"""Small pieces of HTML. Whatever is not already `Html` is text from somewhere, and is escaped."""

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import SequenceMatcher
from html import escape
from zlib import crc32

from jumok.analysis.draw.chart import NARROW, WIDTH
from jumok.analysis.draw.heatmap_svg import PAGE, heatmap_svg
from jumok.analysis.draw.style import cells
from jumok.analysis.maps.attention_map import AttentionMap
from jumok.analysis.maps.attention_stats import LITTLE, MUCH, source_words

PHONE = 40
"""Letters beside each other that fit a telephone; the rows of a wider table are stacked there."""
LONG = 1000
"""Words beyond which an output is shown unmarked: comparing takes time with the square of them."""


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def html(said: object) -> Html:
    """HTML as it is, and anything else as text."""
    return said if isinstance(said, Html) else Html(escape(str(said)))


def join(parts: Iterable[object], between: str = "\n") -> Html:
    """Pieces one after another."""
    return Html(between.join(html(part) for part in parts))


def tag(name: str, *inside: object, **attributes: object) -> Html:
    """<name attributes>inside</name>; `class_` is written class, and `aria_label` aria-label."""
    said = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"' for key, value in attributes.items())
    return Html(f"<{name}{said}>{join(inside, '')}</{name}>")


def table(heads: Sequence[object], rows: Sequence[Sequence[object]], *, caption: str) -> Html:
    """A table whose first column names its rows; the rest are numbers, to the right.

    On a telephone a wide one becomes a card for each row, on which every number says its column.
    """
    head = tag("tr", *(tag("th", one, scope="col") for one in heads))
    body = [
        tag(
            "tr",
            tag("th", row[0], scope="row"),
            *(tag("td", one, data_column=column) for column, one in zip(heads[1:], row[1:], strict=True)),
        )
        for row in rows
    ]
    stacked = {"class_": "stacked"} if _letters([heads, *rows]) > PHONE else {}
    whole = tag("table", tag("thead", head), tag("tbody", *body), aria_label=caption, **stacked)
    return join([tag("p", caption, class_="caption", aria_hidden="true"), scrolling(whole, caption)])


def _letters(rows: Sequence[Sequence[object]]) -> int:
    """How wide a table is: the longest text of each column, and what lies between columns; names of rows wrap."""
    longest = [max(cells(re.sub("<[^>]*>", "", html(one))) for one in column) for column in zip(*rows, strict=True)]
    return min(longest[0], 16) + sum(longest[1:]) + 2 * len(longest)


def scrolling(inside: Html, label: str) -> Html:
    """Something wide: it scrolls by itself on a narrow screen, by keyboard too."""
    return tag("div", inside, class_="scroll", tabindex=0, role="region", aria_label=label)


def folded(summary: str, inside: Html, *, is_open: bool = False) -> Html:
    """Shown when asked for."""
    opened = Html(" open") if is_open else Html("")
    return Html(f"<details{opened}>{tag('summary', summary)}{inside}</details>")


def chart(draw: Callable[..., str]) -> Html:
    """A chart made by us, which has escaped its own texts: `draw(width=...)` for a screen, and for a telephone."""
    shown = [tag("div", Html(draw(width=width)), class_=name) for name, width in (("wide", WIDTH), ("narrow", NARROW))]
    return tag("figure", *shown)


def attention_picture(shown: AttentionMap, label: str) -> Html:
    """The map of one sentence, in the colours of the page."""
    svg = _own_ids(heatmap_svg(shown, paint=PAGE), f"map{crc32(label.encode()):08x}")
    return tag("div", Html(svg), class_="scroll map", tabindex=0, role="region", aria_label=label)


def _own_ids(svg: str, name: str) -> str:
    """The picture with ids that no other on the page has; quotes are escaped in texts, so only markup is changed."""
    return re.sub(r'(id="|="url\(#)', rf"\1{name}-", svg)


def compared(output: str, reference: str) -> Html:
    """The output, its words that are not where the reference has them marked, unless it is very long."""
    words, wanted = output.split(), reference.split()
    if max(len(words), len(wanted)) > LONG:
        return html(output)
    shown: list[Html] = []
    for kind, start, end, _, _ in SequenceMatcher(None, words, wanted, autojunk=False).get_opcodes():
        said = " ".join(words[start:end])
        if said:
            shown.append(html(said) if kind == "equal" else tag("mark", said))
    return join(shown, " ") if shown else tag("em", "nothing", class_="quiet")


def covered_source(shown: AttentionMap) -> Html:
    """The words of the source: dotted below where hardly looked at, doubly lined where looked at again and again."""
    words = []
    for word, value in source_words(shown):
        kind = "little" if value < LITTLE else "much" if value > MUCH else "fair"
        words.append(tag("span", word, class_=f"word {kind}", title=f"attention {value:.2f}"))
    return join(words, " ")
