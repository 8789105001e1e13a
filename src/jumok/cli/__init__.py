"""The command line: one file per command; each parses, calls and prints."""

import os
import sys
from io import TextIOWrapper
from textwrap import indent
from typing import Annotated

import typer

from jumok.cli.align import align
from jumok.cli.average import average
from jumok.cli.caption import caption
from jumok.cli.compare import compare
from jumok.cli.demo import demo
from jumok.cli.evaluate import evaluate
from jumok.cli.inspect import inspect
from jumok.cli.look import look
from jumok.cli.serve import serve
from jumok.cli.train import train
from jumok.cli.translate import translate
from jumok.errors import JumokError

INTERRUPTED = 130
"""What a program ends with after Ctrl-C, by the custom of shells; typer keeps to it."""

STDERR = 2
"""The number of standard error among the open files of a process."""

app = typer.Typer(
    name="jumok",
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
app.add_typer(compare, no_args_is_help=True)


def _is_about_memory(error: Exception) -> bool:
    """PyTorch says so in words only."""
    said = ("out of memory", "allocate memory", "alloc_cpu")
    return isinstance(error, MemoryError) or any(words in str(error) for words in said)


def _open_streams() -> None:
    """Give messages that nobody reads a place to go; refuse where results have none."""
    if sys.stderr is None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, STDERR)  # so that no file gets its number, at which libraries write
        sys.stderr = os.fdopen(STDERR, "w", encoding="utf-8", closefd=False)
    if sys.stdout is None:
        print(
            "jumok: standard output is closed, and results go there; open it, or give it a file: > output.txt",
            file=sys.stderr,
        )
        sys.exit(1)


def _forget_odd_columns() -> None:
    """A width of the terminal that is none, such as 0, would leave tables and help without a letter."""
    width = os.environ.get("COLUMNS", "1")
    if not (width.isdecimal() and int(width) > 0):
        del os.environ["COLUMNS"]


def main() -> None:
    """Run a command; what the caller can mend is one line on standard error and exit code 1."""
    _open_streams()
    _forget_odd_columns()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show 주목 shows ?? and goes on
    try:
        app(prog_name="jumok")
    except SystemExit as end:
        if end.code == INTERRUPTED:
            print("jumok: interrupted", file=sys.stderr)
        raise
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
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        print(f"jumok: {error.strerror or error}{f': {error.filename}' if error.filename else ''}", file=sys.stderr)
        sys.exit(1)
