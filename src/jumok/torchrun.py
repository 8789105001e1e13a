"""Whether torchrun started this process, and whether it is the first of those started together."""

import os

LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun puts into the environment of every process it starts."""


def is_launched() -> bool:
    """Whether torchrun, or something like it, started this process."""
    return all(name in os.environ for name in LAUNCHED)


def prints_messages() -> bool:
    """Whether this process prints messages: it was started alone, or is the first of those started together."""
    return not is_launched() or os.environ["RANK"] == "0"
