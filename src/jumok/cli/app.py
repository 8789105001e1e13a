"""The program `jumok`: its commands, each loaded when it is run, and its messages and exit codes when one fails."""

import os
import signal
import sys
import time
from textwrap import indent
from typing import Annotated, Any

import typer
from typer.main import get_command

from jumok import __version__
from jumok.cli.loading import INTERRUPTED, load
from jumok.cli.streams import PIPE_CLOSED, is_from_stdout, open_streams
from jumok.cli.usage import Command, CommandGroup, UsageError, is_help, usage_line, with_options
from jumok.errors import ArgumentError, JumokError
from jumok.screen import to_screen
from jumok.torchrun import is_launched, prints_messages

COMMANDS = {
    "train": "Train a model from a recipe; Ctrl-C saves it, and --resume continues from there.",
    "recipes": "List the recipes that come with jumok, or print one as a starting point for your own.",
    "translate": "Translate one text per line; line n of the output belongs to line n of the input.",
    "caption": "Caption images: one line per image, with its file name and its caption.",
    "look": "Show what a model attends to in a translation, a caption or a graph.",
    "evaluate": "Evaluate a model on test data; for translations: BLEU, chrF and TER with 95% intervals.",
    "compare": "Compare models: quality, gradient or speed against length, as a table and a picture.",
    "align": "Print word alignments of sentence pairs: 0-0 1-2 links words 0 and 0, and words 1 and 2.",
    "backtranslate": "Make synthetic training pairs from monolingual text, with a model of the opposite direction.",
    "serve": "Serve a web page that translates text, describes images or classifies nodes, and a REST API.",
    "inspect": "Show what a model consists of, and check all of its files.",
    "shortlist": "Build a shortlist of target words from your own text, to speed up --precision int8.",
    "average": "Average the weights of several models into a new one; everything else comes from the first.",
    "import": "Convert a model of another toolkit, such as OPUS-MT, into a model folder.",
    "export": "Export a translation model for another engine, such as CTranslate2.",
    "bench": "Time jumok on this machine, side by side with PyTorch and the libraries that are installed.",
    "demo": "Show kernel regression, a soft database, and two translators: with a fixed context and with attention.",
}
"""The first line of each command's help, which is also its docstring: listing the commands imports none of them."""

MODULES = {"import": "import_model"}
"""The module of a command, and the function in it, where the name of the command is a word of Python."""

OUT_OF_MEMORY = ("out of memory", "allocate memory", "alloc_cpu")
"""Words by which PyTorch reports that memory ran out."""

HEAD_START = 2.0
"""Seconds by which the other processes that torchrun started end later than the first, which prints the message."""


class LazyCommands(CommandGroup):
    """A group that imports the module of a command when the command is run or its help is asked for."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names, and the words behind it."""
        name, _, arguments = super().resolve_command(ctx, args)
        if name != "train":
            _check_alone(name)
        return name, load_command(name), arguments


def _check_alone(command: str) -> None:
    """Refuse a command that torchrun starts in several processes, each of which would do all of its work."""
    if not is_launched() or os.environ["WORLD_SIZE"] == "1":
        return
    if not prints_messages():
        time.sleep(HEAD_START)  # as soon as one process fails, torchrun ends the others
        sys.exit(1)
    raise ArgumentError(
        f"`jumok {command}` runs in one process; start it without torchrun: jumok {command} ... (only "
        "`jumok train` uses torchrun)"
    )


def load_command(name: str) -> Any:
    """The command called `name`: the function or the group of that name in its own module."""
    function = MODULES.get(name, name)
    load(f"jumok.cli.{function}")
    command = getattr(sys.modules[f"jumok.cli.{function}"], function)
    if isinstance(command, typer.Typer):
        return get_command(command)
    single = typer.Typer(add_completion=False)
    single.command(name, cls=Command)(command)
    return get_command(single)


app = typer.Typer(
    name="jumok",
    cls=LazyCommands,
    help="Attention you can read: sequence-to-sequence models, and what they attend to.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> bool:
    if wanted:
        print(f"jumok {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Attention you can read: sequence-to-sequence models, and what they attend to."""


def _listed() -> None:
    """Stands for a command in the list of commands."""


for name, line in COMMANDS.items():
    app.command(name, help=line)(_listed)


def run() -> None:
    """Run a command; an error that users can correct is one line on standard error and exit code 1, or 2 for usage."""
    open_streams()
    _drop_invalid_columns()
    try:
        code = app(prog_name="jumok", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code or 0)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # typer and rich end the program this way
            sys.exit(_report_os_error(end.__context__))
        if end.code == INTERRUPTED:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # another Ctrl-C must not break off the exit
            print("jumok: interrupted", file=sys.stderr)
        raise
    except UsageError as error:
        if prints_messages() and not is_help(error):
            print(f"jumok: {usage_line(error)}", file=sys.stderr)
        sys.exit(2)
    except JumokError as error:
        print(indent(f"jumok: {with_options(str(error))}", 7 * " ").strip(), file=sys.stderr)
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in OUT_OF_MEMORY):
            raise
        print(
            "jumok: there is not enough memory; use a smaller model (such as encoder.width, decoder.width, "
            "network.width, tokenizer.size) or smaller batches (such as batch.tokens)",
            file=sys.stderr,
        )
        sys.exit(1)
    except OSError as error:
        sys.exit(_report_os_error(error))


def _drop_invalid_columns() -> None:
    """Ignore a terminal width such as 0, which would leave tables and help empty."""
    width = os.environ.get("COLUMNS", "1")
    if not (width.isdecimal() and int(width) > 0):
        del os.environ["COLUMNS"]


def _report_os_error(error: OSError) -> int:
    """Say what could not be read or written, and return the exit code."""
    if not is_from_stdout(error):
        to_screen(f"jumok: {error.strerror or error}{f': {error.filename}' if error.filename else ''}")
        return 1
    if isinstance(error, BrokenPipeError):  # the reader of the output has closed it
        return PIPE_CLOSED
    to_screen(f"jumok: cannot write to standard output: {error.strerror}")
    return 1
