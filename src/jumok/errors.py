"""Errors that a user can correct: each message says what was wrong, where, the value seen, and what to do next."""

LONGEST = 1000
"""Letters of a message: what it repeats of an input, such as a key in a file, may be of any length."""


class JumokError(Exception):
    """Base of all errors that the caller can correct; the message is one line, and the command line prints it."""

    def __str__(self) -> str:
        message = " ".join(super().__str__().splitlines())
        if len(message) <= LONGEST:
            return message
        return f"{message[: LONGEST - 301]} … {message[-298:]}"


class ArgumentError(JumokError, ValueError):
    """An argument of the wrong shape, type, device or range: its name, what was seen and what was expected."""


class NoOutputError(ArgumentError):
    """A model whose weights are too large or not finite, so that no output has a score."""


class ConfigError(JumokError, ValueError):
    """A recipe or a combination of settings that cannot work."""


class DataError(JumokError, ValueError):
    """A file that cannot be read or written as asked; the message names it, the line or byte, and what to do."""


class ModelError(JumokError, RuntimeError):
    """A model folder or checkpoint that is incomplete, damaged, or of another shape than its recipe says."""


class BackendError(JumokError, RuntimeError):
    """A backend asked for by name that cannot run this call; the message says why."""


class MissingExtraError(JumokError, ImportError):
    """An optional package is not installed; the message says which extra brings it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs {package}, which is not installed; run in the folder of jumok: pip install '.[{extra}]'"
        )


class FontError(JumokError, RuntimeError):
    """No installed font can draw a text; the message shows its letters and says what to install."""


class CheckpointError(JumokError, RuntimeError):
    """A checkpoint that cannot be written or read; the message names the file and what to do."""


class TrainingError(JumokError, RuntimeError):
    """Training that cannot go on; the message says why, and what to change."""


def error_text(error: BaseException) -> str:
    """An error of another library for a message of ours, without line breaks; its class if it says nothing."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def first_line(error: BaseException) -> str:
    """The first line of an error of another library, for a message of ours; its class if it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]
