"""Reads a recipe, a TOML file, into the config dataclasses that the folders of jumok own."""

import os
import re
import tomllib
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from jumok.data.batches import BatchConfig
from jumok.data.filters import FilterConfig
from jumok.data.sources import DataConfig
from jumok.data.tokenizer import TokenizerConfig
from jumok.decoding.config import DecodingConfig
from jumok.errors import ConfigError
from jumok.models.build import DECODERS, ENCODERS, DecoderConfig, EncoderConfig
from jumok.setting_hints import setting_hint, value_hint
from jumok.settings import MOST_BYTES, check_names, loads, nearest, parse_toml, read_section, write_section
from jumok.training.config import TrainingConfig

PLACES = (Path(__file__).parent / "recipes", Path(__file__).parents[2] / "recipes")
"""Inside the installed package, and beside src/ where jumok is used from its repository."""


def shipped_recipes() -> dict[str, Path]:
    """The recipes by their names, such as small-cpu."""
    folder = next((place for place in PLACES if place.is_dir()), None)
    return {path.stem: path for path in sorted(folder.glob("*.toml"))} if folder is not None else {}


def find_recipe(given: Path) -> tuple[Path, str]:
    """The recipe meant by a path or by the name of one that comes with jumok, and what is to be said of the choice.

    A file of the user's own goes before one of the same name that comes with jumok.
    """
    shipped = shipped_recipes()
    name = given.stem if given.suffix == ".toml" else given.name
    is_name = given.parent in (Path(), Path("recipes"))
    if given.exists() and not (given.is_dir() and is_name and name in shipped):
        return given, ""
    own = given.with_name(f"{given.name}.toml")
    if given.suffix != ".toml" and own.is_file():
        other = "; jumok has one of that name, too, which is not used" if is_name and name in shipped else ""
        return own, f"the recipe is {own}{other}"
    if is_name and name in shipped:
        return shipped[name], f"the recipe is {name}, which comes with jumok: {shipped[name]}"
    if given.suffix == ".toml" or not is_name:  # a file, most likely
        close = get_close_matches(name, shipped, n=1)
        raise ConfigError(f"there is no recipe {given}" + (f"; jumok has a {close[0]} of its own" if close else ""))
    raise ConfigError(f"there is no recipe {given}, and none of that name comes with jumok{nearest(name, shipped)}")


PLAIN = {
    "data": DataConfig,
    "tokenizer": TokenizerConfig,
    "filter": FilterConfig,
    "batch": BatchConfig,
    "training": TrainingConfig,
    "decoding": DecodingConfig,
}
"""The sections that are one dataclass each; [encoder] and [decoder] also have a `kind` that says which."""

BY_KIND: dict[str, dict[str, type]] = {
    "encoder": {kind: family.config for kind, family in ENCODERS.items()},
    "decoder": {kind: family.config for kind, family in DECODERS.items()},
}

GRAPH_SECTIONS = frozenset({"graph", "network"})
"""Sections that only the recipe of a graph network has."""

CAPTION_SECTIONS = frozenset({"images", "augment"})
"""Sections that only the recipe of a captioner has."""

SHOWN = 80
"""Letters of a change that a message repeats."""

Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything that decides what a run gives: the data, the model, how it is trained and how it is used."""

    data: DataConfig
    tokenizer: TokenizerConfig
    filter: FilterConfig
    batch: BatchConfig
    encoder: EncoderConfig
    decoder: DecoderConfig
    training: TrainingConfig
    decoding: DecodingConfig

    def __post_init__(self) -> None:
        if self.training.guided_alignment and not self.data.alignments:
            raise ConfigError(
                f"training.guided_alignment = {self.training.guided_alignment} needs word links of the training pairs: "
                "set data.alignments to a file in Pharaoh format, as `jumok align` writes"
            )
        if self.training.guided_context == "full" and self.decoder.kind != "transformer":
            raise ConfigError(
                'training.guided_context = "full" needs decoder.kind = "transformer": a recurrent decoder reads its '
                'target word by word; set it to "causal"'
            )
        if self.data.alignments and not self.training.guided_alignment:
            raise ConfigError(
                "data.alignments is given, but training.guided_alignment = 0 makes no use of it; set that to 0.1 or so"
            )


def read_recipe(path: str | Path, changes: Sequence[str] = (), *, variables: bool = True) -> Recipe:
    """The recipe in a file, with changes such as "training.steps=2000" made to it.

    $NAME in a path stands for a variable of the environment and ~ for a home folder, unless `variables` is False: then
    they are what they say.
    """
    return read_file(path, changes, lambda tables: _made(tables, variables))


def read_file(path: str | Path, changes: Sequence[str], make: Callable[[Mapping[str, Any]], Made]) -> Made:
    """What `make` makes of the tables of a TOML file with changes; its errors name the file, or the change at fault."""
    return _checked(_changed(read_tables(path), changes), path, changes, make)


def of_contents(content: bytes, path: Path, make: Callable[[Mapping[str, Any]], Made]) -> Made:
    """What `make` makes of the contents of a TOML file that was read from `path`; its errors name the file."""
    return _checked(parse_toml(content, path), path, (), make)


def _checked(
    tables: dict[str, Any], path: str | Path, changes: Sequence[str], make: Callable[[Mapping[str, Any]], Made]
) -> Made:
    try:
        return make(tables)
    except ConfigError as error:
        raise ConfigError(f"{_blamed(str(error), changes) or path}: {error}") from None


def is_graph_recipe(path: str | Path) -> bool:
    """Whether a recipe is that of a graph network; it has other sections, see jumok.tasks.graph_model."""
    return not GRAPH_SECTIONS.isdisjoint(read_tables(path))


def is_caption_recipe(path: str | Path) -> bool:
    """Whether a recipe is that of a captioner; it has other sections, see jumok.tasks.caption_model."""
    return not CAPTION_SECTIONS.isdisjoint(read_tables(path))


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


def make_recipe(tables: Mapping[str, Any], *, origin: str = "the recipe", variables: bool = True) -> Recipe:
    """A recipe from the tables of a TOML file."""
    try:
        return _made(tables, variables)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None


def _made(tables: Mapping[str, Any], variables: bool) -> Recipe:
    if not GRAPH_SECTIONS.isdisjoint(tables):
        raise ConfigError("this is the recipe of a graph network, which has no texts")
    if not CAPTION_SECTIONS.isdisjoint(tables):
        raise ConfigError("this is the recipe of a captioner, which reads images")
    check_names(tables, [field.name for field in fields(Recipe)])
    if variables:
        tables = {
            name: with_variables(table, name, table if name == "data" else ("vectors",))
            for name, table in tables.items()
        }
    sections: dict[str, Any] = {name: read_section(cls, tables.get(name, {}), name) for name, cls in PLAIN.items()}
    for name, kinds in BY_KIND.items():
        sections[name] = read_by_kind(kinds, tables.get(name, {}), name)
    if sections["training"].metric == "accuracy":
        raise ConfigError('training.metric = "accuracy" is for graphs; for texts there is "exact_match"')
    return Recipe(**sections)


def _blamed(message: str, changes: Sequence[str]) -> str:
    """The last change from outside that a message is about, if it is about one."""
    for change in reversed(changes):
        place = change.partition("=")[0].strip()
        section = re.escape(place.partition(".")[0])
        if re.search(rf"(?<![\w.]){re.escape(place)}(?![\w.])|no section \[{section}\]", message):
            return f"--set {_shortened(change)}"
    return ""


def write_recipe(recipe: Any) -> str:
    """The whole recipe as TOML, defaults included, so that a later version with other defaults reads it alike."""
    return "\n".join(write_section(getattr(recipe, field.name), field.name) for field in fields(recipe))


def read_by_kind(kinds: Mapping[str, type], table: Mapping[str, Any], name: str) -> Any:
    """A section whose `kind` says which dataclass it is; the first one unless told."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"[{name}] must be a section of its own, but it is the value {table!r}")
    kind = table.get("kind", next(iter(kinds)))
    if not isinstance(kind, str) or kind not in kinds:
        raise ConfigError(f"{name}.kind = {kind!r} is not one of {', '.join(kinds)}{value_hint(kind, kinds)}")
    for other, cls in kinds.items():
        theirs = {field.name for field in fields(cls)} - {field.name for field in fields(kinds[kind])}
        if wrong := [key for key in table if key in theirs]:
            raise ConfigError(f'{name}.{wrong[0]} is a setting of {name}.kind = "{other}", but the kind is "{kind}"')
    return read_section(kinds[kind], table, name)


def with_variables(table: Any, name: str, paths: Container[str]) -> Any:
    """A section with $NAME, ${NAME} and ~ in its paths as a shell has them, so that recipes can be shared."""
    if not isinstance(table, Mapping):
        return table
    return {
        key: expanded(value, f"{name}.{key}") if isinstance(value, str) and key in paths else value
        for key, value in table.items()
    }


def expanded(text: str, place: str) -> str:
    """A path with $NAME and ${NAME} as the environment has them, and a home folder for ~ at its beginning."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name not in os.environ:
            raise ConfigError(
                f"{place} = {text!r} needs the environment variable {name}, which is not set; "
                f"for example: export {name}=path/to/data"
            )
        return os.environ[name]

    path = re.sub(r"\$(?:(\w+)|\{(\w+)\})", value, text)
    return os.path.expanduser(path) if text.startswith("~") else path


def _changed(tables: dict[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    for change in changes:
        place, equals, text = change.partition("=")
        section, dot, key = place.strip().partition(".")
        if not equals or not dot or not key:
            hint = _section_hint(place.strip())
            raise ConfigError(f"--set {_shortened(change)!r} must look like training.steps=2000{hint}")
        table = tables.setdefault(section, {})
        if isinstance(table, dict):  # what is no section is refused with the rest of the recipe
            table[key] = _parsed(text.strip(), change)
    return tables


def _section_hint(key: str) -> str:
    """Where a setting stands that was named without its section."""
    of_halves = [(half, cls) for half, classes in BY_KIND.items() for cls in classes.values()]
    places = [
        f"{name}.{key}" for name, cls in (*PLAIN.items(), *of_halves) if key in (field.name for field in fields(cls))
    ]
    named = " or ".join(dict.fromkeys(places))
    return f"; did you mean {named}?" if named else setting_hint(key)


def _parsed(text: str, change: str) -> Any:
    try:
        found = loads(f"value = {text}", f"--set {_shortened(change)}")
    except tomllib.TOMLDecodeError:
        return text  # a word without its quotes, as shells leave it
    return found["value"] if len(found) == 1 else text


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
