"""Whether a model fits into memory, computed from the shapes of its weights before any is allocated.

numbers to train N parameters = 4 N        the weight, its gradient and Adam's two moments, each a float32
"""

import math
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, NamedTuple

import torch
from torch import nn

from jumok.devices import memory_limits
from jumok.errors import ConfigError

Build = Callable[..., nn.Module]
"""Builds a model from its settings."""


class Size(NamedTuple):
    """The size of a model; infinite where it is too large to be counted."""

    parameters: float
    bytes: float
    """Memory for training; a frozen weight needs no gradient and no moments."""

    @property
    def shown(self) -> str:
        """The number of parameters, for messages."""
        return f"{self.parameters:,}" if self.parameters < math.inf else "over 10¹⁸"


def check_memory(build: Build, *configs: Any, device: torch.device) -> None:
    """Raise a ConfigError if `build(*configs)` would be too large to be trained on the device."""
    memory, size = memory_of(device), size_of(build, *configs)
    if memory is None or size.bytes <= memory:
        return
    needed = f", {size.bytes / 2**30:,.1f} GiB with gradients and Adam's moments" if size.bytes < math.inf else ""
    raise ConfigError(
        f"the model would have {size.shown} parameters{needed}, but there are {memory / 2**30:,.1f} GiB of memory; "
        f"make {_setting_to_reduce(build, configs)} smaller"
    )


def size_of(build: Build, *configs: Any) -> Size:
    """The size of `build(*configs)`, counted on a model of shapes without contents."""
    try:
        with torch.device("meta"):
            weights = list(build(*configs).parameters())
    except (RuntimeError, OverflowError, TypeError) as error:  # a shape that no number of 64 bits can count
        if isinstance(error, TypeError) and "Overflow" not in str(error):
            raise
        return Size(math.inf, math.inf)
    return Size(
        sum(weight.numel() for weight in weights),
        sum(weight.nbytes * (4 if weight.requires_grad else 1) for weight in weights),
    )


def memory_of(device: torch.device) -> int | None:
    """Bytes of memory that this process may use on a device; None where the system does not tell."""
    if device.type == "cuda":
        total: int = torch.cuda.get_device_properties(device).total_memory
        return total
    try:
        installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on Windows
        return None
    return min([installed, *memory_limits()])


def _setting_to_reduce(build: Build, configs: tuple[Any, ...]) -> str:
    """The setting whose default would give the smallest model; all of them where no default helps."""
    sizes = {"its layers, widths or vocabulary": size_of(build, *configs)}
    for index, config in enumerate(configs):
        for field in fields(config):
            value = getattr(config, field.name)
            if type(value) in (int, tuple) and value != field.default:
                with suppress(ConfigError):  # the default may not fit the other settings
                    smaller = replace(config, **{field.name: field.default})
                    size = size_of(build, *configs[:index], smaller, *configs[index + 1 :])
                    shown = list(value) if isinstance(value, tuple) else value
                    sizes[f"{config.section}.{field.name} = {shown}"] = size
    return min(sizes, key=lambda name: sizes[name].bytes)
