"""Limits of settings: declared at the field, checked in one place, for recipes and for Python alike."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import pytest
from annotated_types import Ge, Gt, Le

from docs.make_settings import sections
from jumok.data.normalise import Normaliser
from jumok.errors import ConfigError
from jumok.settings import Fraction, PositiveInt, Settings, field_types, limits_of, read_section
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


def test_settings_without_a_section_are_named_alone():
    with pytest.raises(ConfigError, match=r"^spaces = 'some' .*'collapse', 'keep'"):
        Normaliser(spaces="some")


def test_a_limit_is_named_in_words():
    with pytest.raises(ConfigError, match=r"^example.dropout = 1.0 must be at least 0 and below 1$"):
        ExampleConfig(dropout=1.0)
