"""Recipes: TOML files, read into the config dataclasses of a task and written back."""

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

from jumok.errors import ConfigError
from jumok.files import nearest_path
from jumok.setting_hints import setting_hint, value_hint
from jumok.settings import (
    MOST_BYTES,
    Settings,
    check_names,
    field_types,
    is_path,
    loads,
    parse_toml,
    read_section,
    with_defaults,
    write_section,
)

PLACES = (Path(__file__).parent / "recipes", Path(__file__).parents[2] / "recipes")
"""Folders of recipes: inside the installed package, or beside src/ in a checkout of the repository."""

SHOWN = 80
"""Characters of an override that a message repeats."""

RecipeT = TypeVar("RecipeT")


def shipped_recipes() -> dict[str, Path]:
    """The recipes that come with jumok by their names, such as small-cpu."""
    folder = next((place for place in PLACES if place.is_dir()), None)
    return {path.stem: path for path in sorted(folder.glob("*.toml"))} if folder is not None else {}


def recipe_title(path: Path) -> str:
    """The first sentence of the comment at the beginning of a recipe."""
    lines = takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines())
    comment = " ".join(line.lstrip("# ") for line in lines)
    return re.split(r"(?<!et al)\.(?= |$)", comment)[0]


def find_recipe(path: Path) -> tuple[Path, str]:
    """The file of a recipe given by its path or by the name of one that comes with jumok, and a message on the choice.

    A file of the user's own is preferred to one of the same name that comes with jumok.
    """
    shipped = shipped_recipes()
    name = path.stem if path.suffix == ".toml" else path.name
    is_name = path.parent in (Path(), Path("recipes"))
    if path.exists() and not (path.is_dir() and is_name and name in shipped):
        return path, ""
    own = path.with_name(f"{path.name}.toml")
    if path.suffix != ".toml" and own.is_file():
        other = "; the one of the same name that comes with jumok is not used" if is_name and name in shipped else ""
        return own, f"the recipe is {own}{other}"
    if is_name and name in shipped:
        return shipped[name], f"the recipe is {name}, which comes with jumok: {shipped[name]}"
    if path.suffix == ".toml" or not is_name:  # a file, most likely
        close = get_close_matches(name, shipped, n=1)
        near = nearest_path(path)
        if close and "did you mean" not in near:
            near = f"; jumok has a {close[0]} of its own"
        raise ConfigError(f"there is no recipe {path}{near}")
    close = get_close_matches(name, shipped, n=1)
    near = f"did you mean {close[0]}?" if close else "`jumok recipes` lists them"
    raise ConfigError(f"there is no recipe {path}, and none of that name comes with jumok; {near}")


def read_tables(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        with open(path, "rb") as file:  # a pipe, too, as `<(...)` of a shell is one
            return parse_toml(file.read(MOST_BYTES + 1), path)
    except FileNotFoundError:
        raise ConfigError(f"there is no recipe {path}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} is a folder; name a recipe, a .toml file") from None
    except OSError as error:
        raise ConfigError(f"cannot read the recipe {path}: {error.strerror or error}") from None


class Override(NamedTuple):
    """A setting that is changed from outside the recipe."""

    place: str
    """Its section and name: "training.steps"."""
    value: Any
    shown: str
    """How messages name it."""


def parse_overrides(overrides: Mapping[str, Any] | Iterable[str]) -> list[Override]:
    """Overrides from {"training.steps": 2000}, or from texts such as "training.steps=2000"."""
    if isinstance(overrides, Mapping):
        return [
            Override(place, os.fspath(value) if isinstance(value, os.PathLike) else value, f"overrides[{place!r}]")
            for place, value in overrides.items()
        ]
    return [_parsed_override(text) for text in overrides]


def parse_recipe(
    cls: type[RecipeT],
    tables: Mapping[str, Any],
    overrides: Sequence[Override] = (),
    *,
    complete: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
    origin: object = "the recipe",
    variables: bool = True,
) -> RecipeT:
    """A recipe of a task, `cls`, from the tables of a TOML file; errors name the override at fault, or `origin`.

    `complete` adds what the recipe takes from elsewhere. $NAME in a path stands for a variable of the environment and ~
    for the home folder unless `variables` is False.
    """
    completed = complete(_overridden(tables, overrides, cls))
    try:
        return _parsed(cls, completed, variables)
    except ConfigError as error:
        raise ConfigError(f"{_at_fault(str(error), overrides) or origin}: {error}") from None


def write_recipe(recipe: Any) -> str:
    """The whole recipe as TOML, including defaults, so that a later version with other defaults reads the same."""
    return "\n".join(write_section(getattr(recipe, field.name), field.name) for field in fields(recipe))


def sections(cls: Any) -> dict[str, dict[str, type[Settings]]]:
    """The sections of a recipe, each with its config dataclasses by `kind`; a section without kinds has one, ""."""
    hints = get_type_hints(cls)
    by_section = {}
    for field in fields(cls):
        kinds = get_args(hints[field.name])
        by_section[field.name] = {kind.kind: kind for kind in kinds} if kinds else {"": hints[field.name]}
    return by_section


def _parsed(cls: type[RecipeT], tables: Mapping[str, Any], variables: bool) -> RecipeT:
    known = sections(cls)
    check_names(tables, list(known))
    read: dict[str, Any] = {}
    for field in fields(cls):  # type: ignore[arg-type]
        name = field.name
        table = with_defaults(tables.get(name, {}), _own_defaults(field))
        kind = _kind_of(known[name], table, name)
        read[name] = read_section(kind, _with_variables(table, kind, name) if variables else table, name)
    return cls(**read)


def _own_defaults(field: Field[Any]) -> dict[str, Any]:
    """The settings of a section whose default in this recipe differs from that of the section's class."""
    if field.default is MISSING:
        return {}
    ours = {setting.name: getattr(field.default, setting.name) for setting in fields(field.default)}
    return {
        setting.name: ours[setting.name] for setting in fields(field.default) if ours[setting.name] != setting.default
    }


def _kind_of(kinds: Mapping[str, type[Settings]], table: Any, name: str) -> type[Settings]:
    """The dataclass of a section, which its `kind` names where there are several; defaults to the first."""
    first = next(iter(kinds))
    if "" in kinds or not isinstance(table, Mapping):  # what is no section is refused when it is read
        return kinds[first]
    kind = table.get("kind", first)
    if not isinstance(kind, str) or kind not in kinds:
        raise ConfigError(f"{name}.kind = {kind!r} is not one of {', '.join(kinds)}{value_hint(kind, kinds)}")
    for other, cls in kinds.items():
        theirs = field_types(cls).keys() - field_types(kinds[kind]).keys()
        if wrong := [key for key in table if key in theirs]:
            raise ConfigError(f'{name}.{wrong[0]} is a setting of {name}.kind = "{other}", but the kind is "{kind}"')
    return kinds[kind]


def _with_variables(table: Any, cls: type[Settings], place: str) -> Any:
    if not isinstance(table, Mapping):
        return table
    hints = field_types(cls)
    return {key: _with_variable(value, hints.get(key), f"{place}.{key}") for key, value in table.items()}


def _with_variable(value: Any, hint: Any, place: str) -> Any:
    if isinstance(value, str) and is_path(hint):
        return expanded(value, place)
    inner = next(iter(get_args(hint)), None)
    if isinstance(value, list) and isinstance(inner, type) and issubclass(inner, Settings):  # such as [[data.mix]]
        return [_with_variables(part, inner, f"{place}[{number}]") for number, part in enumerate(value)]
    return value


def expanded(text: str, place: str) -> str:
    """A path with $NAME and ${NAME} replaced from the environment, and ~ at its beginning by the home folder."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in os.environ:
            raise ConfigError(
                f"{place} = {text!r} needs the environment variable {name}, which is not set; "
                f"for example: export {name}=path/to/data"
            )
        return os.environ[name]

    path = re.sub(r"\$(?:(\w+)|\{(\w+)\})", value, text)
    return os.path.expanduser(path) if text.startswith("~") else path


def _parsed_override(text: str) -> Override:
    place, equals, value = text.partition("=")
    shown = f"--set {_shortened(text)}"
    if not equals:
        return Override("", None, shown)
    try:
        parsed = loads(f"value = {value.strip()}", shown)
    except tomllib.TOMLDecodeError:
        parsed = {}
    # A word without its quotes, as shells leave it, is a text.
    return Override(place.strip(), parsed["value"] if len(parsed) == 1 else value.strip(), shown)


def _overridden(tables: Mapping[str, Any], overrides: Sequence[Override], cls: Any) -> dict[str, Any]:
    """The tables of a recipe with settings changed; an error names the override at fault."""
    changed = {name: dict(table) if isinstance(table, Mapping) else table for name, table in tables.items()}
    for place, value, shown in overrides:
        section, dot, key = place.partition(".")
        if not dot or not key:
            wanted = "training.steps=2000" if shown.startswith("--set") else '{"training.steps": 2000}'
            raise ConfigError(f"{shown} must look like {wanted}{_section_hint(place or shown[6:], cls)}")
        table = changed.setdefault(section, {})
        if isinstance(table, dict):  # what is no section is refused with the rest of the recipe
            table[key] = value
    return changed


def _section_hint(key: str, cls: Any) -> str:
    """The full name of a setting that was named without its section."""
    places = [
        f"{name}.{key}" for name, kinds in sections(cls).items() for kind in kinds.values() if key in field_types(kind)
    ]
    named = " or ".join(dict.fromkeys(places))
    return f"; did you mean {named}?" if named else setting_hint(key)


def _at_fault(message: str, overrides: Sequence[Override]) -> str:
    """The last override that a message is about, as it was given; "" if it is about none."""
    for override in overrides[::-1]:
        section = re.escape(override.place.partition(".")[0])
        if re.search(rf"(?<![\w.]){re.escape(override.place)}(?![\w.])|no section \[{section}\]", message):
            return override.shown
    return ""


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
