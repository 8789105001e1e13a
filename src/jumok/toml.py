"""TOML within bounds, and its tables as frozen dataclasses and back; every error names its place."""

import difflib
import json
import re
import tomllib
import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, Field, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from jumok.errors import ConfigError
from jumok.setting_hints import section_hint, setting_hint, value_hint

MOST_BYTES = 2**18
"""Of a recipe; those of jumok have one or two thousand."""
MOST_PARTS = 20
"""Of a dotted key: tomllib takes time that grows with the square of their number."""
MOST_BITS = 4096
"""Of a whole number; Python refuses to write longer ones out."""

_TOKEN = re.compile(
    r"""
    \"\"\" (?: [^"\\] | \\. | "(?!"") )*+ (?:\"\"\")?  # strings, also those that never end: each is read once
    | ''' (?: [^'] | '(?!'') )*+ (?:''')?
    | " (?: [^"\\\n] | \\. )*+ "?
    | ' [^'\n]*+ '?
    | \# [^\n]*+
    | [.=,\[\]{}\n]
    """,
    re.DOTALL | re.VERBOSE,
)
"""Strings and comments, whose dots join nothing; dots; and what ends a key."""


def parse_toml(content: bytes, path: str | Path) -> dict[str, Any]:
    """The tables in the contents of a TOML file that was read from `path`; a ConfigError if they are not TOML."""
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{path} is larger than {MOST_BYTES:,} bytes, the most a recipe may have; is it a recipe?")
    try:
        return loads(content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n"), path)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start + 1}), as a recipe must be") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def loads(text: str, origin: str | Path) -> dict[str, Any]:
    """The tables of a text; a TOMLDecodeError where it is not TOML, a ConfigError where it exceeds a bound."""
    if _most_dots(text) >= MOST_PARTS:
        raise ConfigError(f"{origin}: a key has more than {MOST_PARTS} parts joined by dots; a setting has two")
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise ConfigError(f"{origin}: lists or tables are nested too deeply; no setting needs more than two") from None
    except ValueError:  # Python's own bound on the digits of a whole number
        raise ConfigError(f"{origin}: a number has too many digits; no setting needs more than 19") from None
    if any(number.bit_length() > MOST_BITS for number in _whole_numbers(tables)):
        raise ConfigError(f"{origin}: a number has too many digits; no setting needs more than 19")
    return tables


def _whole_numbers(value: Any) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _whole_numbers(part)


def _most_dots(text: str) -> int:
    """The most dots between two signs that end a key, outside of strings: no key has more than these."""
    most = dots = 0
    for token in _TOKEN.finditer(text):
        dots = dots + 1 if token[0] == "." else 0 if token[0] in "=,[]{}\n" else dots
        most = max(most, dots)
    return most


Section = TypeVar("Section")

LARGEST = 2**63 - 1
"""What PyTorch, and TOML itself, can hold; beyond it a typing mistake would end deep inside a library, or never."""


def read_section(cls: type[Section], table: Mapping[str, Any], where: str) -> Section:
    """An instance of a config dataclass from a TOML table called `where`."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"[{where}] must be a section of its own, but it is the value {table!r}")
    hints = get_type_hints(cls)
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            raise ConfigError(f"{where}.{key} is not a setting{setting_hint(key, where) or nearest(key, known)}")
    missing = [name for name, field in known.items() if name not in table and _is_required(field)]
    if missing:
        raise ConfigError(f"{where}.{missing[0]} is missing; it has no default")
    return cls(**{key: _value(value, hints[key], f"{where}.{key}") for key, value in table.items()})


def check_names(tables: Mapping[str, Any], known: list[str], within: str = "") -> None:
    """Refuse what is no section of a recipe, or stands in none; `within` says of which recipe."""
    for name, table in tables.items():
        if name not in known and not isinstance(table, Mapping):
            raise ConfigError(f"{name} stands before the first section; put it below one{setting_hint(name)}")
        if name not in known:
            raise ConfigError(f"there is no section [{name}]{within}{section_hint(name) or nearest(name, known)}")


def with_defaults(table: Any, defaults: Mapping[str, Any]) -> Any:
    """A section with what it leaves out; what is no section stays as it is, for `read_section` to refuse."""
    return {**defaults, **table} if isinstance(table, Mapping) else table


def write_section(section: Any, where: str) -> str:
    """The TOML of a config dataclass: every setting, as it is now."""
    lines = [f"[{where}]"]
    for field in fields(section):
        value = getattr(section, field.name)
        if value is not None:
            lines.append(f"{field.name} = {_toml(value)}")
    return "\n".join(lines) + "\n"


def nearest(key: str, known: Iterable[str]) -> str:
    """What to say after a wrong name: the closest right one, or all of them if none is close."""
    close = difflib.get_close_matches(key, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}"


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _value(value: Any, hint: Any, where: str) -> Any:
    """The value as the type the field has, or an error naming the place, the value and the type."""
    origin, options = get_origin(hint), get_args(hint)
    if origin is Literal:
        if value not in options:
            raise ConfigError(
                f"{where} = {value!r} is not one of {', '.join(map(repr, options))}{value_hint(value, options)}"
            )
        return value
    if origin in (Union, types.UnionType):
        return _first_that_fits(value, options, where)
    if origin is tuple:
        return _tuple(value, options, where)
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    if hint in (int, float) and is_whole and abs(int(value)) > LARGEST:
        raise ConfigError(f"{where} = {value} is too large; the largest whole number is {LARGEST}")
    if hint is float and isinstance(value, Real) and not isinstance(value, bool):
        return float(value)
    if hint is int and is_whole:
        value = int(value)  # numpy's are none of Python's
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ConfigError(f"{where} = {value!r} must be {_name(hint)}")
    return value


def _first_that_fits(value: Any, options: tuple[Any, ...], where: str) -> Any:
    options = tuple(option for option in options if option is not type(None))
    if len(options) == 1:
        return _value(value, options[0], where)
    for option in options:
        with suppress(ConfigError):
            return _value(value, option, where)
    raise ConfigError(f"{where} = {value!r} must be {' or '.join(map(_name, options))}")


def _tuple(value: Any, options: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{where} = {value!r} must be a list")
    if options[-1] is Ellipsis:
        options = (options[0],) * len(value)
    if len(value) != len(options):
        raise ConfigError(f"{where} = {list(value)!r} must have {len(options)} entries, but it has {len(value)}")
    return tuple(
        _value(item, hint, f"{where}[{at}]") for at, (item, hint) in enumerate(zip(value, options, strict=True))
    )


def _name(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return ("one of " if len(get_args(hint)) > 1 else "") + ", ".join(map(repr, get_args(hint)))
    if get_origin(hint) is tuple:
        return f"a list of {len(get_args(hint))}, each {_name(get_args(hint)[0])}"
    return {int: "a whole number", float: "a number", str: "a text in quotes", bool: "true or false"}.get(
        hint, str(hint)
    )


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON leaves the delete character as it is; TOML wants it escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple | list):
        return f"[{', '.join(_toml(item) for item in value)}]"
    return repr(int(value) if isinstance(value, Integral) else float(value) if isinstance(value, Real) else value)
