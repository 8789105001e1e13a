"""TOML within bounds: a small file can nest so deeply, or write numbers so long, that reading it never ends."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jumok.errors import ConfigError

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
