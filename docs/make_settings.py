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

from jumok.data.sources import MixedCorpus
from jumok.recipe import sections as recipe_sections
from jumok.settings import Settings, field_types, limit_words, only_with, to_toml
from jumok.tasks.recipes import CaptionRecipe, GraphRecipe, TranslationRecipe

PAGES = tuple(Path(__file__).with_name(name) for name in ("train.md", "fine_tuning.md", "graphs.md", "captions.md"))
MARKED = re.compile(r"<!-- settings: (.+?) -->\n.*?<!-- end -->", re.DOTALL)


def sections() -> dict[str, type]:
    """Every section of a recipe, with one entry per kind where a section has kinds, by its name on the page."""
    named: dict[str, type] = {}
    for cls, half in ((TranslationRecipe, ""), (CaptionRecipe, "image "), (GraphRecipe, "graph ")):
        for name, kinds in recipe_sections(cls).items():
            for kind, config in kinds.items():
                title = f"{half if name in ('encoder', 'tokenizer', 'decoding') else ''}{name}"
                named.setdefault(f"{title}, kind = {kind}" if kind else title, config)
    return named | {MixedCorpus.section: MixedCorpus}


def with_settings(page: str) -> str:
    """The page with all marked tables regenerated."""
    tables = sections()
    return MARKED.sub(lambda found: f"<!-- settings: {found[1]} -->\n{table(tables[found[1]])}<!-- end -->", page)


def table(cls: Any) -> str:
    """One row per setting: name, default, limits, the other setting that it needs, and docstring."""
    texts = {name: text for parent in reversed(cls.__mro__) for name, text in docstrings(parent)}
    types = field_types(cls)
    defaults = {field.name: field.default for field in fields(cls)}
    rows = ["| setting | default | limits | |", "|---|---|---|---|"]
    for field in fields(cls):
        limits = limit_words(types[field.name])
        if needed := only_with(types[field.name]):
            limits += f"{'; ' if limits else ''}only with {needed.words(f'`{needed.name}`', defaults[needed.name])}"
        default = "none" if field.default is None else "" if field.default is MISSING else f"`{to_toml(field.default)}`"
        text = texts[field.name].replace("|", r"\|")
        rows.append(f"| `{field.name}` | {default} | {limits} | {text} |")
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
