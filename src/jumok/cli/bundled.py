"""Which model a command means when none is named: the tiny one that comes with jumok."""

from pathlib import Path

from jumok.cli.output import say

HELP = "Folder written by `jumok train`; without one, the tiny English-Korean model that comes with jumok."


def named_or_bundled(model: Path | None) -> Path:
    """The model named, or the bundled one, which is said."""
    from jumok.model_folder import BUNDLED

    if model is not None:
        return model
    say("no model is named: using the tiny one that comes with jumok (English dates, amounts and names into Korean)")
    return BUNDLED
