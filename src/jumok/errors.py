"""Errors that a user can correct. Each message says what is wrong, where, which value was given, and what to do."""

LONGEST = 1000
"""Maximum length of a message, in characters; messages repeat parts of inputs, which may be of any length."""


class JumokError(Exception):
    """Base class of all errors that a user can correct. The message is one line, which the command line prints."""

    def __str__(self) -> str:
        message = " ".join(super().__str__().splitlines())
        if len(message) <= LONGEST:
            return message
        return f"{message[: LONGEST - 301]} … {message[-298:]}"


class ArgumentError(JumokError, ValueError):
    """An argument has the wrong shape, type, device or range; the message names it, its value and what was expected."""


class NoOutputError(ArgumentError):
    """The model gives no output a finite score, because its weights are too large or not finite."""


class ConfigError(JumokError, ValueError):
    """A recipe, a setting or a combination of settings is not valid."""


class DataError(JumokError, ValueError):
    """A file cannot be read or written; the message names the file, the line or byte, and what to do."""


class ModelError(JumokError, RuntimeError):
    """A model folder or checkpoint is incomplete or damaged, or its weights do not fit its recipe."""


class BackendError(JumokError, RuntimeError):
    """The backend that the caller named cannot run this call; the message says why."""


class MissingExtraError(JumokError, ImportError):
    """An optional package is not installed; the message says which extra of jumok installs it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs {package}, which is not installed; run in the folder of jumok: pip install '.[{extra}]'"
        )


class FontError(JumokError, RuntimeError):
    """No installed font can draw a text; the message shows the missing letters and says what to install."""


class CheckpointError(JumokError, RuntimeError):
    """A checkpoint cannot be written or read; the message names the file and what to do."""


class TrainingError(JumokError, RuntimeError):
    """Training cannot continue; the message says why and what to change."""


def error_text(error: BaseException) -> str:
    """The message of another library's error on one line, to quote in one of ours; its class if it is empty."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def first_line(error: BaseException) -> str:
    """The first line of another library's error, to quote in one of ours; its class if it is empty."""
    return (str(error).splitlines() or [type(error).__name__])[0]
