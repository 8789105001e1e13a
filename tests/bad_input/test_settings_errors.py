"""Limits of settings: declared at the field, checked in one place, for recipes and for Python alike."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_args

import pytest
from annotated_types import Ge, Gt, Le

from docs.make_settings import sections
from jumok.data.normalise import Normaliser
from jumok.errors import ConfigError
from jumok.settings import (
    Fraction,
    OnlyWith,
    PositiveInt,
    Settings,
    changed,
    field_types,
    limits_of,
    only_with,
    read_section,
)
from support.refusals import refuses


@dataclass(frozen=True, kw_only=True)
class ExampleConfig(Settings):
    section: ClassVar[str] = "example"

    width: PositiveInt = 8
    heads: PositiveInt | None = None
    dropout: Fraction = 0.0
    share: Annotated[float, Gt(0), Le(1)] = 0.5
    offset: Annotated[int, Ge(-2)] = 0
    rate: float = 1.0
    betas: tuple[Fraction, Fraction] = (0.0, 0.5)
    sizes: tuple[PositiveInt, ...] = ()
    column: PositiveInt | str = 1
    norm: Literal["pre", "post"] = "pre"
    name: str = ""
    copy: bool = False
    copies: Annotated[PositiveInt, OnlyWith("copy", True)] = 1
    warmth: Annotated[float, Gt(0), OnlyWith("rate")] = 1.0
    suffix: Annotated[str, OnlyWith("name")] = ""
    after: Annotated[bool, OnlyWith("norm", "post")] = False
    twice: Annotated[bool, OnlyWith("after", True)] = False
    margin: Annotated[float, OnlyWith("column", 2, 3, "last")] = 0.0


@pytest.mark.parametrize(
    ("name", "value", "facts"),
    [
        ("width", 0, "example.width = 0 … 1"),
        ("width", 8.0, "example.width = 8.0 … whole number"),
        ("width", True, "example.width = True … whole number"),
        ("width", "8", "example.width = '8' … whole number"),
        ("width", None, "example.width = None … whole number"),
        ("width", 2**63, "example.width = 9223372036854775808 … too large"),
        ("heads", 0, "example.heads = 0 … 1"),
        ("share", 0, "example.share = 0.0 … 0 … 1"),
        ("share", 1.5, "example.share = 1.5 … 0 … 1"),
        ("offset", -3, "example.offset = -3 … -2"),
        ("rate", float("inf"), "example.rate = inf … finite"),
        ("rate", float("nan"), "example.rate = nan … finite"),
        ("betas", (0.9, 1.0), "example.betas[1] = 1.0 … 0 … 1"),
        ("betas", (0.9,), "example.betas = [0.9] … 2 … 1"),
        ("betas", 0.9, "example.betas = 0.9 … list"),
        ("sizes", [3, 0], "example.sizes[1] = 0 … 1"),
        ("column", 0, "example.column = 0 … whole number … 1 … text"),
        ("norm", "middle", "example.norm = 'middle' … 'pre', 'post'"),
        ("name", 3, "example.name = 3 … text"),
        ("copy", 1, "example.copy = 1 … true or false"),
    ],
)
def test_a_recipe_and_python_code_get_the_same_message(name, value, facts):
    with refuses(ConfigError, facts) as from_recipe:
        read_section(ExampleConfig, {name: value}, "example")
    with refuses(ConfigError, facts) as from_python:
        ExampleConfig(**{name: value})
    assert str(from_recipe.value) == str(from_python.value)


def test_values_at_their_limits_are_taken():
    taken = ExampleConfig(width=1, heads=None, dropout=0, share=1, offset=-2, betas=[0, 0.99], sizes=[1], column="a")
    assert (taken.dropout, taken.share, taken.betas, taken.sizes) == (0.0, 1.0, (0.0, 0.99), (1,))


LIMITED = {cls: [name for name, hint in field_types(cls).items() if limits_of(hint)] for cls in sections().values()}


@pytest.mark.parametrize("cls", LIMITED, ids=lambda cls: cls.__name__)
def test_every_declared_limit_is_enforced_and_names_its_setting(cls):
    for name in LIMITED[cls]:
        with refuses(ConfigError, f"{cls.section}.{name} = -6"):
            cls(**{name: -6})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"copies": 2},
            "copies = 2 has no effect, because example.copy = false; leave it out, or set example.copy = true",
        ),
        (
            {"warmth": 2, "rate": 0},
            "warmth = 2.0 has no effect, because example.rate = 0.0; leave it out, or set example.rate above 0",
        ),
        ({"suffix": "b"}, 'suffix = "b" has no effect, because example.name = ""; leave it out, or set example.name'),
        (
            {"after": True},
            'after = true has no effect, because example.norm = "pre"; leave it out, or set example.norm = "post"',
        ),
        (
            {"margin": 0.5},
            "margin = 0.5 has no effect, because example.column = 1; leave it out, or set example.column = 2, 3 or "
            '"last"',
        ),
    ],
    ids=lambda case: next(iter(case)) if isinstance(case, dict) else "",
)
def test_a_setting_without_effect_is_refused_with_what_to_change(given, message):
    for make in (lambda: ExampleConfig(**given), lambda: read_section(ExampleConfig, given, "example")):
        with pytest.raises(ConfigError) as refused:
            make()
        assert str(refused.value) == f"example.{message}"


def test_a_setting_with_an_effect_or_at_its_default_is_taken():
    ExampleConfig(copy=True, copies=2, rate=0.5, warmth=2, name="a", suffix="b", norm="post", after=True, column=3)
    ExampleConfig(copy=False, copies=1, rate=0, warmth=1, name="", suffix="", norm="pre", after=False, twice=False)


def test_what_a_change_leaves_without_effect_returns_to_its_default():
    before = ExampleConfig(norm="post", after=True, twice=True, name="a", suffix="b", width=3)
    assert changed(before, norm="pre") == ExampleConfig(name="a", suffix="b", width=3)
    with refuses(ConfigError, 'example.after = true has no effect, because example.norm = "pre"'):
        changed(before, norm="pre", after=True)


CONDITIONAL = {
    (cls, name): needed
    for cls in sections().values()
    for name, hint in field_types(cls).items()
    if (needed := only_with(hint))
}


@pytest.mark.parametrize(("cls", "name"), CONDITIONAL, ids=lambda part: getattr(part, "__name__", part))
def test_a_setting_that_needs_another_one_names_values_that_this_one_takes(cls, name):
    needed = CONDITIONAL[cls, name]
    for value in needed.values:
        hint = field_types(cls)[needed.name]
        assert value in {*get_args(hint), *get_args(next(iter(get_args(hint)), None)), True}
    assert needed.values or needed.name in field_types(cls)


def test_settings_without_a_section_are_named_alone():
    with pytest.raises(ConfigError, match=r"^spaces = 'some' .*'collapse', 'keep'"):
        Normaliser(spaces="some")


def test_a_limit_is_named_in_words():
    with pytest.raises(ConfigError, match=r"^example.dropout = 1.0 must be at least 0 and below 1$"):
        ExampleConfig(dropout=1.0)
