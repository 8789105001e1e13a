"""How much memory is free, so that a small file that promises a large one is refused before it is decoded."""

import math
import re
from contextlib import suppress
from pathlib import Path

MEMORY = Path("/proc/meminfo")
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where Linux tells a container how much of the machine's memory it may use."""


def free_memory() -> float:
    """Bytes that can be had without swapping, and no more than a container may use; infinite if nothing says."""
    free = math.inf
    with suppress(OSError):  # only Linux has the file
        available = re.search(r"MemAvailable:\s*(\d+) kB", MEMORY.read_text(encoding="ascii"))
        free = 1024 * int(available[1]) if available else free
    for path in LIMITS:
        with suppress(OSError, ValueError):  # "max" is no number
            free = min(free, int(Path(path).read_text(encoding="ascii")))
    return free


def megabytes(size: float) -> str:
    """A number of bytes as messages give it."""
    return f"{size / 1e6:,.0f} MB"
