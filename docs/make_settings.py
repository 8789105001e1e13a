"""Write the tables of settings in docs/ from the dataclasses: `python -m docs.make_settings`."""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any

from jumok.images.augment import AugmentConfig
from jumok.images.captioner import IMAGE_ENCODERS
from jumok.images.pairs import ImagesConfig
from jumok.recipe import BY_KIND, PLAIN
from jumok.settings import Settings, field_types, limit_words, to_toml
from jumok.tasks.graph_model import SECTIONS

PAGES = tuple(Path(__file__).with_name(name) for name in ("train.md", "graphs.md", "captions.md"))
MARKED = re.compile(r"<!-- settings: (.+?) -->\n.*?<!-- end -->", re.DOTALL)


def sections() -> dict[str, type]:
    """Every section of a recipe, with one entry per kind where a section has kinds, by its name on the page."""
    kinds = {f"{name}, kind = {kind}": cls for name, of_kind in BY_KIND.items() for kind, cls in of_kind.items()}
    images = {f"image encoder, kind = {kind}": cls for kind, cls in IMAGE_ENCODERS.items()}
    return {**PLAIN, **SECTIONS, **kinds, "images": ImagesConfig, "augment": AugmentConfig, **images}


def with_settings(page: str) -> str:
    """The page with all marked tables regenerated."""
    tables = sections()
    return MARKED.sub(lambda found: f"<!-- settings: {found[1]} -->\n{table(tables[found[1]])}<!-- end -->", page)


def table(cls: Any) -> str:
    """One row per setting: name, default, limits and docstring."""
    texts = {name: text for parent in reversed(cls.__mro__) for name, text in docstrings(parent)}
    types = field_types(cls)
    rows = ["| setting | default | limits | |", "|---|---|---|---|"]
    for field in fields(cls):
        default = "none" if field.default is None else "" if field.default is MISSING else f"`{to_toml(field.default)}`"
        text = texts[field.name].replace("|", r"\|")
        rows.append(f"| `{field.name}` | {default} | {limit_words(types[field.name])} | {text} |")
    return "\n".join(rows) + "\n"


def docstrings(cls: type) -> Iterator[tuple[str, str]]:
    """The fields of a class with the docstrings below them."""
    if cls in (Settings, object):
        return
    (body,) = (node.body for node in ast.parse(dedent(inspect.getsource(cls))).body if isinstance(node, ast.ClassDef))
    for above, below in pairwise(body):
        if isinstance(above, ast.AnnAssign) and isinstance(above.target, ast.Name) and isinstance(below, ast.Expr):
            text = ast.literal_eval(below.value) if isinstance(below.value, ast.Constant) else ""
            yield above.target.id, " ".join(str(text).split())


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_settings(page.read_text(encoding="utf-8")), encoding="utf-8")
