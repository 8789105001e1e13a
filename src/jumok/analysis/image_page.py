"""Where each word looked, as one page to be opened offline: point at a word of the caption and the image lights up."""

import json
import re
from base64 import b64encode
from html import escape
from importlib.resources import files

from jumok.analysis.colours import png_bytes
from jumok.analysis.image_map import DIM, ImageMap


def image_page(shown: ImageMap) -> str:
    """One self-contained file: nothing is fetched, and words are inserted as text, never as markup."""
    parts = {
        "title": escape(shown.caption[:300]),
        "css": _web("image_map.css"),
        "js": _web("image_map.js"),
        "data": _inside_script(shown),
    }
    return re.sub("@@(title|css|js|data)@@", lambda found: parts[found[1]], _web("image_map.html.in"))


def _web(name: str) -> str:
    return (files("jumok.analysis") / "web" / name).read_text(encoding="utf-8")


def _inside_script(shown: ImageMap) -> str:
    """JSON that holds no < or >, so that nothing in it can end the element it stands in."""
    picture = shown.picture()
    image = f"data:image/png;base64,{b64encode(png_bytes(picture)).decode()}"
    size = {"width": picture.shape[1], "height": picture.shape[0]}
    plain = {**shown.as_plain(), "dim": DIM, "image": {"href": image, **size}}
    text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text
