"""Timings on this machine, side by side with other libraries that are installed: `jumok bench`.

`timing` measures works, each done by several systems in turn; the other modules hold the works of one subject each.
"""

from typing import Literal

Subject = Literal["attention", "training", "graphs", "regression", "decoding"]
Size = Literal["small", "medium", "large"]

JUMOK = "jumok"
"""The name of jumok among the systems that are timed."""
