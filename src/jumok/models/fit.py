"""Whether a recipe describes the model whose weights a file holds, found before the model is built.

The weights' header says how many numbers there are. A recipe that asks for more, a billion layers say, is refused from
a model of a few layers without contents; only then is the whole model compared, still without contents.
"""

import math
from pathlib import Path
from typing import Any

import torch

from jumok.errors import DataError
from jumok.models.room import Build, memory_of, size_of
from jumok.models.weights import FOREIGN, Header, check_shapes, weights_of


def check_model_fits(build: Build, *configs: Any, header: Header, path: Path) -> None:
    """Raise a DataError unless `build(*configs)` has the weights in the header of `path`, and memory holds them."""
    asked = size_of(build, *configs).parameters
    if asked > header.numbers:
        many = f"{asked:,}" if asked < math.inf else "more than 9,000,000,000,000,000,000"
        raise DataError(f"{path} holds {header.numbers:,} numbers, but its recipe asks for {many}; {FOREIGN}")
    with torch.device("meta"):  # shapes without contents
        check_shapes(weights_of(build(*configs)), header.shapes, path)
    there = memory_of(torch.device("cpu"))
    if there is not None and header.bytes > there:
        raise DataError(
            f"{path} holds {header.bytes / 2**30:,.1f} GiB of weights, but there are {there / 2**30:,.1f} GiB of memory"
        )
