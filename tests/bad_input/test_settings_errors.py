"""Limits of settings: declared at the field, checked in one place, for recipes and for Python alike."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import pytest
from annotated_types import Ge, Gt, Le

from docs.make_settings import sections
from jumok.data.normalise import Normaliser
from jumok.errors import ConfigError
from jumok.settings import Fraction, PositiveInt, Settings, field_types, limits_of, read_section


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
    ("name", "value", "message"),
    [
        ("width", 0, "example.width = 0 must be at least 1"),
        ("width", 8.0, "example.width = 8.0 must be a whole number"),
        ("width", True, "example.width = True must be a whole number"),
        ("width", "8", "example.width = '8' must be a whole number"),
        ("width", None, "example.width = None must be a whole number"),
        ("width", 2**63, "example.width = 9223372036854775808 is too large; the largest whole number is"),
        ("heads", 0, "example.heads = 0 must be at least 1"),
        ("dropout", 1.0, "example.dropout = 1.0 must be at least 0 and below 1"),
        ("share", 0, "example.share = 0.0 must be above 0 and at most 1"),
        ("share", 1.5, "example.share = 1.5 must be above 0 and at most 1"),
        ("offset", -3, "example.offset = -3 must be at least -2"),
        ("rate", float("inf"), "example.rate = inf must be a finite number"),
        ("rate", float("nan"), "example.rate = nan must be a finite number"),
        ("betas", (0.9, 1.0), "example.betas[1] = 1.0 must be at least 0 and below 1"),
        ("betas", (0.9,), "example.betas = [0.9] must have 2 entries, but it has 1"),
        ("betas", 0.9, "example.betas = 0.9 must be a list"),
        ("sizes", [3, 0], "example.sizes[1] = 0 must be at least 1"),
        ("column", 0, "example.column = 0 must be a whole number at least 1 or a text in quotes"),
        ("norm", "middle", "example.norm = 'middle' is not one of 'pre', 'post'"),
        ("name", 3, "example.name = 3 must be a text in quotes"),
        ("copy", 1, "example.copy = 1 must be true or false"),
    ],
)
def test_a_recipe_and_python_code_get_the_same_message(name, value, message):
    with pytest.raises(ConfigError) as from_recipe:
        read_section(ExampleConfig, {name: value}, "example")
    with pytest.raises(ConfigError) as from_python:
        ExampleConfig(**{name: value})
    assert str(from_recipe.value) == str(from_python.value)
    assert str(from_python.value).startswith(message)


def test_values_at_their_limits_are_taken():
    taken = ExampleConfig(width=1, heads=None, dropout=0, share=1, offset=-2, betas=[0, 0.99], sizes=[1], column="a")
    assert (taken.dropout, taken.share, taken.betas, taken.sizes) == (0.0, 1.0, (0.0, 0.99), (1,))


def limited_settings() -> list[tuple[type, str]]:
    return [(cls, name) for cls in sections().values() for name, hint in field_types(cls).items() if limits_of(hint)]


@pytest.mark.parametrize(
    ("cls", "name"), limited_settings(), ids=lambda part: part if isinstance(part, str) else part.__name__
)
def test_every_declared_limit_is_enforced_and_names_its_setting(cls, name):
    with pytest.raises(ConfigError) as raised:
        cls(**{name: -6})
    assert str(raised.value).startswith(f"{cls.section}.{name} = -6")


def test_settings_without_a_section_are_named_alone():
    with pytest.raises(ConfigError, match=r"^spaces = 'some' is not one of 'collapse', 'keep'$"):
        Normaliser(spaces="some")
