"""Settings: dataclasses whose fields declare their limits, TOML tables as such dataclasses, and back.

    @dataclass(frozen=True, kw_only=True)
    class ExampleConfig(Settings):
        section: ClassVar[str] = "example"
        width: PositiveInt = 256
        share: Annotated[float, Gt(0), Le(1)] = 0.5

Whoever makes one, a recipe or Python code, gets the same check of types and limits, and the same ConfigError.
"""

import difflib
import json
import math
import operator
import re
import tomllib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import astuple, fields
from numbers import Integral, Real
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt

from jumok.errors import ConfigError
from jumok.setting_hints import section_hint, setting_hint, value_hint

MOST_BYTES = 2**15
"""Size limit of a recipe; jumok's own have under a thousand bytes, and reading a hostile one must not take long."""
SHOWN = 80
"""Characters of a line that a message repeats."""
UNQUOTED = re.compile(r"(?P<key>[\w.-]+)\s*=\s*(?P<value>[^\W\d][^\"'#]{0,80}?|[~/.$][^\"'#]{1,80}?)\s*(#.*)?")
"""A line whose value is a text without quotes."""
MOST_BITS = 4096
"""Size limit of a whole number; Python refuses to print longer ones."""
LARGEST = 2**63 - 1
"""The largest whole number that PyTorch and TOML can hold."""


COMPARISONS: dict[type, tuple[str, Callable[[Any, Any], bool]]] = {
    Ge: ("at least", operator.ge),
    Gt: ("above", operator.gt),
    Le: ("at most", operator.le),
    Lt: ("below", operator.lt),
}
"""The limits a field can declare, in words, and what they compare."""

PositiveInt = Annotated[int, Ge(1)]
NonNegativeInt = Annotated[int, Ge(0)]
Depth = Annotated[int, Ge(1), Le(1000)]
"""A number of layers; the deepest Transformers published have a thousand."""
PositiveFloat = Annotated[float, Gt(0)]
NonNegativeFloat = Annotated[float, Ge(0)]
Fraction = Annotated[float, Ge(0), Lt(1)]
"""Dropout and other shares: from 0 to below 1."""


class IsPath:
    """Marks a setting that names a file or folder."""


FilePath = Annotated[str, IsPath()]
"""In a recipe, $NAME and ~ are expanded in it; it may change before a resume."""


class OnlyWith:
    """Marks a setting that has an effect only with some values of another one in its section.

        half_window: Annotated[PositiveInt, OnlyWith("reach", "local-m", "local-p")] = 10
        top_k: Annotated[NonNegativeInt, OnlyWith("samples")] = 0

    Without values, the other one must be set: a number above 0, or a text or list that is not empty.
    """

    def __init__(self, name: str, *values: Any) -> None:
        self.name, self.values = name, values

    def allows(self, value: Any) -> bool:
        """Whether the setting has an effect with this value of the other one."""
        return value in self.values if self.values else bool(value)

    def words(self, other: str, default: Any) -> str:
        """The other setting, written as `other`, with the values it must have; `default` is its default."""
        if not self.values:
            return f"{other} above 0" if isinstance(default, int | float) else other
        *first, last = map(to_toml, self.values)
        return f"{other} = {', '.join(first)} or {last}" if first else f"{other} = {last}"


class Settings:
    """Base of the config dataclasses: checks the type, the limits and the effect of every field.

    A value that differs from the default of its field must have an effect. A class that also compares fields with each
    other overrides `__post_init__` and calls this one first.
    """

    section: ClassVar[str] = ""
    """The section of a recipe that messages name."""

    def __post_init__(self) -> None:
        for name, hint in field_types(type(self)).items():
            place = f"{self.section}.{name}" if self.section else name
            # A list becomes a tuple, and a number of NumPy one of Python.
            object.__setattr__(self, name, _checked_value(getattr(self, name), hint, place))
        for name, needed in without_effect(type(self), vars(self)).items():
            other = needed.words(f"{self.section}.{needed.name}", getattr(self, needed.name))
            raise ConfigError(
                f"{self.shown(name)} has no effect, because {self.shown(needed.name)}; leave it out, or set {other}"
            )

    def shown(self, name: str) -> str:
        """The setting as a recipe writes it, for messages: `encoder.width = 256`."""
        return f"{self.section}.{name} = {to_toml(getattr(self, name))}"


Section = TypeVar("Section", bound=Settings)


def field_types(cls: type) -> dict[str, Any]:
    """The annotation of every field of a config dataclass, with its limits."""
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in fields(cls)}


def only_with(hint: Any) -> OnlyWith | None:
    """The other setting without which a field of this annotation has no effect."""
    return next((marker for marker in getattr(hint, "__metadata__", ()) if isinstance(marker, OnlyWith)), None)


def without_effect(cls: type, values: Mapping[str, Any]) -> dict[str, OnlyWith]:
    """The settings that differ from their defaults and have no effect beside the others, with what each needs."""
    defaults = {field.name: field.default for field in fields(cls)}
    values = {**defaults, **values}
    needs = {name: needed for name, hint in field_types(cls).items() if (needed := only_with(hint))}
    return {
        name: needed
        for name, needed in needs.items()
        if values[name] != defaults[name] and not needed.allows(values[needed.name])
    }


def inherit(cls: type, changes: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """The settings from before with changes, less those that lose their effect by the changes."""
    settings = {**before, **changes}
    while lost := without_effect(cls, settings).keys() - changes.keys():
        settings = {name: value for name, value in settings.items() if name not in lost}
    return settings


class Limit(NamedTuple):
    """A limit of a number, such as at least 1."""

    words: str
    compare: Callable[[Any, Any], bool]
    bound: float


def limits_of(hint: Any) -> list[Limit]:
    """The limits that an annotation declares."""
    markers = (marker for marker in getattr(hint, "__metadata__", ()) if type(marker) in COMPARISONS)
    return [Limit(*COMPARISONS[type(marker)], *astuple(marker)) for marker in markers]


def is_within(value: Any, hint: Any) -> bool:
    """Whether a value keeps the limits that an annotation declares."""
    return all(limit.compare(value, limit.bound) for limit in limits_of(hint))


def is_path(hint: Any) -> bool:
    """Whether a field of this annotation names a file or folder."""
    return any(isinstance(marker, IsPath) for marker in getattr(hint, "__metadata__", ()))


def limit_words(hint: Any) -> str:
    """The limits of a field, or of the entries of its list, in words, such as "at least 1"; "" for none."""
    if limits := limits_of(hint):
        return " and ".join(f"{limit.words} {limit.bound}" for limit in limits)
    return next((words for option in get_args(hint) if (words := limit_words(option))), "")


def parse_toml(content: bytes, path: str | Path) -> dict[str, Any]:
    """Parse the contents of a TOML file; errors name `path`, where they were read."""
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{path} is larger than {MOST_BYTES:,} bytes, the most a recipe may have; is it a recipe?")
    try:
        text = content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start + 1}), as a recipe must be") from None
    try:
        return loads(text, path)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}{_line_at_fault(text, str(error))}") from None


def _line_at_fault(text: str, message: str) -> str:
    """The line that a message of tomllib is about and, where its value is a text without quotes, how to write it."""
    match = re.search(r"at line (\d+)", message)
    if not match:
        return ""
    line = text.split("\n")[int(match[1]) - 1].strip()
    bare = UNQUOTED.fullmatch(line)
    if not bare:
        return f": {line[:SHOWN]}"
    key, value = bare["key"], bare["value"]
    wanted = f"write {key} = {value.lower()}" if value in ("True", "False") else f'text needs quotes: {key} = "{value}"'
    return f": {line[:SHOWN]}; {wanted}"


def loads(text: str, origin: str | Path) -> dict[str, Any]:
    """Parse a text; raises TOMLDecodeError where it is not TOML, ConfigError where it exceeds a limit."""
    too_long = ConfigError(f"{origin}: a number has too many digits; no setting needs more than 19")
    try:
        tables = tomllib.loads(text)
        if any(number.bit_length() > MOST_BITS for number in _whole_numbers(tables)):
            raise too_long
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise ConfigError(f"{origin}: lists or tables are nested too deeply; no setting needs more than two") from None
    except ValueError:  # Python's own limit on the digits of a whole number
        raise too_long from None
    return tables


def _whole_numbers(value: Any) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _whole_numbers(part)


def changed(config: Section, **changes: Any) -> Section:
    """The settings with changes; those that lose their effect by the changes return to their defaults.

    `dataclasses.replace` refuses these.
    """
    return type(config)(**inherit(type(config), changes, vars(config)))


def read_section(cls: type[Section], table: Mapping[str, Any], where: str) -> Section:
    """An instance of a config dataclass from the TOML table called `where`."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"[{where}] must be a section of its own, but it is the value {table!r}")
    known = field_types(cls)
    for key in table:
        if key not in known:
            raise ConfigError(f"{where}.{key} is not a setting{setting_hint(key, where) or nearest(key, known)}")
    return cls(**{key: _checked_value(value, known[key], f"{where}.{key}") for key, value in table.items()})


def check_names(tables: Mapping[str, Any], known: list[str], within: str = "") -> None:
    """Refuse unknown sections and settings outside any section; `within` ends the message about a section."""
    for name, table in tables.items():
        if name not in known and not isinstance(table, Mapping):
            raise ConfigError(f"{name} stands before the first section; put it below one{setting_hint(name)}")
        if name not in known:
            raise ConfigError(f"there is no section [{name}]{within}{section_hint(name) or nearest(name, known)}")


def with_defaults(table: Any, defaults: Mapping[str, Any]) -> Any:
    """A section with defaults for the settings it leaves out; a value that is no section stays for `read_section`."""
    return {**defaults, **table} if isinstance(table, Mapping) else table


def write_section(section: Any, where: str) -> str:
    """The TOML of a config dataclass: every setting, including those at their defaults."""
    lines = [f"[{where}]"]
    for field in fields(section):
        value = getattr(section, field.name)
        if value is not None:
            lines.append(f"{field.name} = {to_toml(value)}")
    return "\n".join(lines) + "\n"


def nearest(key: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the closest known one, or all of them if none is close."""
    close = difflib.get_close_matches(key, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"


def _checked_value(value: Any, hint: Any, place: str) -> Any:
    """The value as its field's type, or a ConfigError that names the place, the value and what it must be."""
    origin, options = get_origin(hint), get_args(hint)
    if origin is Annotated:
        value = _checked_value(value, options[0], place)
        if not is_within(value, hint):
            raise ConfigError(f"{place} = {value!r} must be {limit_words(hint)}")
        return value
    if origin is Literal:
        if value not in options:
            known = ", ".join(map(repr, options))
            raise ConfigError(f"{place} = {value!r} is not one of {known}{value_hint(value, options)}")
        return value
    if origin in (Union, types.UnionType):
        return _first_that_fits(value, options, place)
    if origin is tuple:
        return _checked_tuple(value, options, place)
    if isinstance(hint, type) and issubclass(hint, Settings):
        return value if isinstance(value, hint) else read_section(hint, value, place)
    return _checked_scalar(value, hint, place)


def _checked_scalar(value: Any, kind: type, place: str) -> Any:
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if kind in (int, float) and is_whole and abs(int(value)) > LARGEST:
        raise ConfigError(f"{place} = {value} is too large; the largest whole number is {LARGEST}")
    if kind is float and isinstance(value, Real) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise ConfigError(f"{place} = {value} must be a finite number")
        return float(value)
    if kind is int and is_whole:
        return int(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"{place} = {value!r} must be {_type_words(kind)}")
    return value


def _first_that_fits(value: Any, options: tuple[Any, ...], place: str) -> Any:
    if value is None and type(None) in options:
        return None
    options = tuple(option for option in options if option is not type(None))
    if len(options) == 1:
        return _checked_value(value, options[0], place)
    for option in options:
        with suppress(ConfigError):
            return _checked_value(value, option, place)
    raise ConfigError(f"{place} = {value!r} must be {' or '.join(map(_type_words, options))}")


def _checked_tuple(value: Any, options: tuple[Any, ...], place: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{place} = {value!r} must be a list{_list_hint(value, options, place)}")
    if options[-1] is Ellipsis:
        options = (options[0],) * len(value)
    if len(value) != len(options):
        raise ConfigError(f"{place} = {list(value)!r} must have {len(options)} entries, but it has {len(value)}")
    pairs = enumerate(zip(value, options, strict=True))
    return tuple(_checked_value(item, hint, f"{place}[{number}]") for number, (item, hint) in pairs)


def _list_hint(value: Any, options: tuple[Any, ...], place: str) -> str:
    """The end of a message about a text or number in place of a list: how to write the list."""
    if not isinstance(value, str | int) or isinstance(value, bool) or len(str(value)) > SHOWN:
        return ""
    parts = [part.strip(" '\"") for part in str(value).strip("[] ").split(",")]
    if options[-1] is not Ellipsis:
        parts += ["…"] * (len(options) - len(parts))
    shown = to_toml(tuple(int(part) if part.isdecimal() else part for part in parts))
    is_setting = re.fullmatch(r"\w+\.\w+", place)  # not an entry of a list, such as data.mix[0].columns
    return f"; write {shown}" + (f", on the command line --set {quote(f'{place}={shown}')}" if is_setting else "")


def _type_words(hint: Any) -> str:
    options = get_args(hint)
    if get_origin(hint) is Annotated:
        return f"{_type_words(options[0])} {limit_words(hint)}"
    if get_origin(hint) is Literal:
        return ("one of " if len(options) > 1 else "") + ", ".join(map(repr, options))
    if get_origin(hint) is tuple:
        return f"a list of {len(options)}, each {_type_words(options[0])}"
    words = {int: "a whole number", float: "a number", str: "a text in quotes", bool: "true or false"}
    return words.get(hint, str(hint))


def to_toml(value: Any) -> str:
    """A value of a setting in TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON leaves the delete character as it is; TOML wants it escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Settings):
        items = ((field.name, getattr(value, field.name)) for field in fields(value))  # type: ignore[arg-type]
        return f"{{{', '.join(f'{name} = {to_toml(part)}' for name, part in items if part is not None)}}}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(to_toml, value))}]"
    return repr(value)
