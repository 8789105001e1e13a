"""A command that was not understood, in one line: what was wrong, the value seen, and where the right ones stand."""

import json
import re
import sys
from difflib import get_close_matches
from typing import Any, get_args

from typer import BadParameter
from typer.core import TyperGroup

from jumok.setting_hints import option_hint
from jumok.settings import nearest

UsageError: type[Exception] = BadParameter.__bases__[0]
"""The base of all that can be wrong with a command; typer shows one kind of it only."""

NUMBERS = {int: "a whole number", float: "a number"}
LONGEST = 60


class Commands(TyperGroup):
    """Commands of which an unknown one is told the nearest."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names."""
        if args[0] not in self.commands:
            ctx.fail(f"there is no command {_shown(args[0])}{nearest(args[0], self.commands)}")
        return super().resolve_command(ctx, args)


def usage_line(error: Any) -> str:
    """What to say of a command that typer refuses."""
    said = " ".join(_said(error).split())
    return f"{said}{'' if said.endswith('?') else ';'} see {_command(error)} --help"


def is_help(error: Any) -> bool:
    """Whether nothing was asked, and help was printed for an answer."""
    return type(error).__name__ == "NoArgsIsHelpError"  # newer ones only have it


def _said(error: Any) -> str:
    param, option = getattr(error, "param", None), getattr(error, "option_name", "")
    if type(error).__name__ == "MissingParameter":
        return f"{_name(param)} is missing"
    if isinstance(error, BadParameter) and param is not None:
        return _bad_value(error, param)
    if hasattr(error, "possibilities"):
        return f"there is no option {option}{_nearest_option(option, error.ctx)}"
    if option:
        return f"{option} {'takes no value' if 'does not take' in error.message else 'needs a value'}"
    message = str(error.format_message()).rstrip(".")
    if extra := re.search(r"unexpected extra argument\S* \((.*)\)", message, re.DOTALL):
        return f"there are more arguments than it takes: {extra[1]}"
    return message[:1].lower() + message[1:]


def _bad_value(error: Any, param: Any) -> str:
    """What a value must be and what it is; where typer does not tell, its own words."""
    seen = error.__cause__.errors() if hasattr(error.__cause__, "errors") else ()
    wanted = _wanted(param)
    if seen and wanted:
        return f"{_name(param)} must be {wanted}, but it is {_shown(seen[0]['input'])}"
    return f"{_name(param)}: {error.message.rstrip('.')}"


def _wanted(param: Any) -> str | None:
    described = getattr(param, "type_descriptor", None)
    if described is None:
        return None
    if described.choices:
        return " or ".join(map(str, described.choices))
    kind = next(iter(get_args(described.annotation)), described.annotation)  # of a list, that of its items
    least, most = described.parameter_info.min, described.parameter_info.max
    if kind not in NUMBERS:
        return None
    if least is not None and most is not None:
        return f"{NUMBERS[kind]} from {least} to {most}"
    if least is not None:
        return f"{NUMBERS[kind]} of at least {least}"
    return NUMBERS[kind]


def _name(param: Any) -> str:
    if param.param_type_name == "argument":
        return f"the argument {param.name}"
    return str(next((name for name in param.opts if name.startswith("--")), param.opts[0]))


def _nearest_option(option: str, context: Any) -> str:
    params = context.command.params if context is not None else []
    known = [name for param in params for name in (*param.opts, *param.secondary_opts)]
    close = get_close_matches(option, known, n=1)
    return option_hint(option, known) or (f"; did you mean {close[0]}?" if close else "")


def _command(error: Any) -> str:
    if error.ctx is not None:
        return str(error.ctx.command_path)
    return " ".join(["jumok", *(word for word in sys.argv[1:2] if not word.startswith("-"))])


def _shown(value: Any) -> str:
    text = str(value)
    return json.dumps(text if len(text) <= LONGEST else f"{text[:LONGEST]} ...", ensure_ascii=False)
