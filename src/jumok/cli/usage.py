"""Messages of the command line: usage errors as one line, and the names of options in errors of the library."""

import json
import re
import sys
from difflib import get_close_matches
from functools import partial
from typing import Any, get_args

from typer import BadParameter
from typer.core import TyperCommand, TyperGroup

from jumok.setting_hints import option_hint
from jumok.settings import nearest

UsageError: type[Exception] = BadParameter.__bases__[0]
"""The base class of all usage errors; typer exports only one subclass of it."""

NUMBERS = {int: "a whole number", float: "a number"}
LONGEST_VALUE = 60
OPTION_NAMES = {
    "model": "MODEL",
    "languages": "--from or --to",
    "samples": "--sample",
    "dev": "--dev-source",
    "queue": "--max-queue",
    "texts": "--max-texts",
    "tokens=False": "--words",
}
"""Options and arguments that are not called like those of Python that they stand for."""


class _PlainHelp:
    """Commands whose help shows no type after flags, because they take no value, and plain types after options."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The arguments and options."""
        return _plain_types(super().get_params(ctx), ctx)  # type: ignore[misc]


class Command(_PlainHelp, TyperCommand):
    """A command whose usage line names arguments in capitals."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words of the usage line: [OPTIONS], then MODEL if it is required and [MODEL] if not."""
        arguments = [param for param in self.get_params(ctx) if param.param_type_name == "argument"]
        shown = [
            param.metavar if param.required or "[" in param.metavar else f"[{param.metavar}]" for param in arguments
        ]
        return ["[OPTIONS]", *shown]


class CommandGroup(_PlainHelp, TyperGroup):
    """A group of commands that suggests the nearest name for an unknown one."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names, and the words behind it."""
        if args[0] not in self.commands:
            ctx.fail(f"there is no command {_quoted(args[0])}{nearest(args[0], self.commands)}")
        return super().resolve_command(ctx, args)


def _plain_types(params: list[Any], context: Any) -> list[Any]:
    """The same arguments and options in plainer help: <str>, not <list[str]>; <int> [1 to 9]; MODEL..., not models."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
        elif param.metavar is None and param.param_type_name == "argument":
            param.metavar = param.name.upper() if param.nargs == 1 else f"{param.name.upper().removesuffix('S')}..."
        if (describe := getattr(param, "display_type_rich", None)) is not None:
            shown = re.sub(r"^<list\[(\w+)\]>$", r"<\1>", describe(context) or "").replace("<Path>", "<path>")
            shown = shown.replace(" range>", ">")
            param.display_type_rich = lambda ctx, shown=shown: shown
            param._get_number_range_help_str = partial(_bounds, param)
    return params


def _bounds(param: Any) -> str:
    """The limits of a number as help shows them: 1 to 1000, at least 1, or at most 1; "" without limits."""
    least, most = getattr(param, "min", None), getattr(param, "max", None)
    if least is not None and most is not None:
        return f"{least} to {most}"
    return f"at least {least}" if least is not None else f"at most {most}" if most is not None else ""


def usage_line(error: Any) -> str:
    """The message for a command that typer refuses."""
    problem = " ".join(_problem(error).split())
    return f"{problem}{'' if problem.endswith('?') else ';'} see {_command(error)} --help"


def with_options(message: str) -> str:
    """A message of the library with arguments such as `kind=decoder` as options: --kind decoder."""

    def option(match: re.Match[str]) -> str:
        name, value = match.groups()
        if known := OPTION_NAMES.get(f"{name}={value}"):
            return known
        return f"{OPTION_NAMES.get(name) or '--' + name.replace('_', '-')} {value}".rstrip()

    return re.sub("`([a-z_]+)=([^`]*)`", option, message)


def is_help(error: Any) -> bool:
    """Whether no arguments were given, so that typer has printed the help."""
    return type(error).__name__ == "NoArgsIsHelpError"  # typer does not export it


def _problem(error: Any) -> str:
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
        return f"there are too many arguments: {extra[1]}"
    return message[:1].lower() + message[1:]


def _bad_value(error: Any, param: Any) -> str:
    """The valid values and the value given; typer's own words where it does not provide them."""
    errors = error.__cause__.errors() if hasattr(error.__cause__, "errors") else ()
    valid = _valid_values(param)
    if errors and valid:
        return f"{_name(param)} must be {valid}, but it is {_quoted(errors[0]['input'])}"
    message = error.message.rstrip(".")
    return f"{_name(param)}{' ' if message.startswith('must be ') else ': '}{message}"


def _valid_values(param: Any) -> str | None:
    descriptor = getattr(param, "type_descriptor", None)
    if descriptor is None:
        return None
    if descriptor.choices:
        return " or ".join(map(str, descriptor.choices))
    kind = next(iter(get_args(descriptor.annotation)), descriptor.annotation)  # of a list, the type of its items
    least, most = descriptor.parameter_info.min, descriptor.parameter_info.max
    if kind not in NUMBERS:
        return None
    if least is not None and most is not None:
        return f"{NUMBERS[kind]} from {least} to {most}"
    if least is not None:
        return f"{NUMBERS[kind]} of at least {least}"
    return NUMBERS[kind]


def _name(param: Any) -> str:
    if param.param_type_name == "argument":
        return f"the argument {(param.metavar or param.name).rstrip('.')}"
    return str(next((name for name in param.opts if name.startswith("--")), param.opts[0]))


def _nearest_option(option: str, context: Any) -> str:
    params = context.command.params if context is not None else []
    known = [name for param in params for name in (*param.opts, *param.secondary_opts)]
    plain = {name.lstrip("-"): name for name in known}  # all begin with hyphens, which make none of them close
    close = get_close_matches(option.lstrip("-"), plain, n=1, cutoff=0.7)
    return option_hint(option, known) or (f"; did you mean {plain[close[0]]}?" if close else "")


def _command(error: Any) -> str:
    if error.ctx is not None:
        return str(error.ctx.command_path)
    return " ".join(["jumok", *(word for word in sys.argv[1:2] if not word.startswith("-"))])


def _quoted(value: Any) -> str:
    text = str(value)
    return json.dumps(text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]} ...", ensure_ascii=False)
