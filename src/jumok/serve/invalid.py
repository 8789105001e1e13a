"""A body that is not what a path takes: which field is wrong, the value seen, and what it must be."""

import json
from collections.abc import Collection, Sequence
from typing import Any

from jumok.sections import nearest

WANTED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "greater_than_equal": "at least {ge}",
    "literal_error": "{expected}",
    "model_attributes_type": "an object, {{...}}",
}
"""What pydantic finds wrong, as what there should be."""

LONGEST = 60


def said_of(errors: Sequence[Any], fields: Collection[str]) -> str:
    """What is wrong first, of all that pydantic found; `fields` are those that the path knows."""
    unknown = next((error for error in errors if error["type"] == "extra_forbidden"), None)
    if unknown is not None:
        name = str(unknown["loc"][-1])
        return f"there is no field {_shown(name)}{nearest(name, fields)}"
    first = errors[0]
    place = max((_place(error) for error in errors if error["loc"][:2] == first["loc"][:2]), key=len)
    (error, *others) = [error for error in errors if _place(error) == place]
    field = ".".join(place) or "the body"
    if error["type"] == "missing":
        return f"{field} is missing"
    if any(other["type"] not in WANTED for other in (error, *others)):
        return f"{field}: {error['msg'].removeprefix('Value error, ')[:200]}"
    wanted = " or ".join(WANTED[one["type"]].format(**one.get("ctx", {})) for one in (error, *others))
    return f"{field} must be {wanted}, but it is {_shown(error['input'])}"


def said_of_body(error: BaseException | None) -> str:
    """Why bytes cannot be read as JSON."""
    if isinstance(error, UnicodeDecodeError):
        return f"the body is not UTF-8, as JSON is: byte {error.start + 1} is 0x{error.object[error.start]:02x}"
    return f"the body is not JSON that can be read: {str(error).partition(';')[0]}"


def _place(error: Any) -> tuple[str, ...]:
    """Where in the body: names and numbers, without those that pydantic gives to the kinds a field may have."""
    parts = [str(part) for part in error["loc"][1:]]
    return tuple(part for part in parts if part.isdecimal() or (part.isidentifier() and part not in ("str", "int")))


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
