"""All commands as one program, and what it says and ends with when one fails."""

import os
import sys
from textwrap import indent
from typing import Annotated

import typer

from jumok.cli import INTERRUPTED
from jumok.cli.align import align
from jumok.cli.average import average
from jumok.cli.caption import caption
from jumok.cli.compare import compare
from jumok.cli.demo import demo
from jumok.cli.evaluate import evaluate
from jumok.cli.inspect import inspect
from jumok.cli.look import look
from jumok.cli.serve import serve
from jumok.cli.streams import PIPE_CLOSED, is_of_stdout, open_streams
from jumok.cli.train import train
from jumok.cli.translate import translate
from jumok.cli.usage import Commands, UsageError, is_help, usage_line
from jumok.errors import JumokError
from jumok.screen import to_screen

app = typer.Typer(
    name="jumok",
    cls=Commands,
    help="Attention you can read: sequence-to-sequence models, and what they look at.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> bool:
    if asked:
        import jumok

        print(f"jumok {jumok.__version__}")
        raise typer.Exit
    return asked


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Attention you can read: sequence-to-sequence models, and what they look at."""


for command in (train, translate, caption, look, evaluate, align, serve, inspect, average, demo):
    app.command()(command)
app.add_typer(compare, cls=Commands, no_args_is_help=True)


def _is_about_memory(error: Exception) -> bool:
    """PyTorch says so in words only."""
    said = ("out of memory", "allocate memory", "alloc_cpu")
    return isinstance(error, MemoryError) or any(words in str(error) for words in said)


def _forget_odd_columns() -> None:
    """A width of the terminal that is none, such as 0, would leave tables and help without a letter."""
    width = os.environ.get("COLUMNS", "1")
    if not (width.isdecimal() and int(width) > 0):
        del os.environ["COLUMNS"]


def run() -> None:
    """Run a command; what the caller can mend is one line on standard error and exit code 1, or 2 for usage."""
    open_streams()
    _forget_odd_columns()
    try:
        code = app(prog_name="jumok", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code or 0)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # so typer and rich end
            sys.exit(_failed(end.__context__))
        if end.code == INTERRUPTED:
            print("jumok: interrupted", file=sys.stderr)
        raise
    except UsageError as error:
        if not is_help(error):
            print(f"jumok: {usage_line(error)}", file=sys.stderr)
        sys.exit(2)
    except JumokError as error:
        print(indent(f"jumok: {error}", 7 * " ").strip(), file=sys.stderr)
        sys.exit(1)
    except (MemoryError, RuntimeError) as error:
        if not _is_about_memory(error):
            raise
        print(
            "jumok: there is not enough memory; make the model smaller (encoder.width, decoder.width, tokenizer.size) "
            "or its batches (batch.tokens)",
            file=sys.stderr,
        )
        sys.exit(1)
    except OSError as error:
        sys.exit(_failed(error))


def _failed(error: OSError) -> int:
    """Say what could not be read or written; gives the exit code."""
    what = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
    if is_of_stdout(error):
        if isinstance(error, BrokenPipeError):  # whoever read the output has seen enough
            return PIPE_CLOSED
        what = f"cannot write to standard output: {error.strerror}"
    to_screen(f"jumok: {what}")
    return 1
