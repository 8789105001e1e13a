"""Whether a model fits into memory, found from the shapes of its weights before any of them is made.

numbers to train N parameters = 4 N        the weight, its gradient and Adam's two means, each a float32
"""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from jumok.errors import ConfigError

FEW = 2
"""Layers of a model after which every further one is like the one before; a first one and a last one may differ."""
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
"""Where Linux tells a container how much of the machine's memory it may use."""

Build = Callable[..., nn.Module]
"""Makes a model of its settings."""


class Size(NamedTuple):
    """How large a model is; infinite where it is too large to be counted."""

    parameters: float
    bytes: float
    """To train it; a weight that learns nothing needs no gradient."""


def check_memory(build: Build, *configs: Any, device: torch.device) -> None:
    """Raise a ConfigError if `build(*configs)` would be too large to be trained on the device."""
    there, asked = memory_of(device), size_of(build, *configs)
    if there is None or asked.bytes <= there:
        return
    many = f"{asked.parameters:,}" if asked.parameters < math.inf else "more than 9,000,000,000,000,000,000"
    takes = f", {asked.bytes / 2**30:,.1f} GiB with gradients and Adam's means" if asked.bytes < math.inf else ""
    raise ConfigError(
        f"the model would have {many} parameters{takes}, but there are {there / 2**30:,.1f} GiB of memory; "
        f"make {_at_fault(build, configs)} smaller"
    )


def size_of(build: Build, *configs: Any) -> Size:
    """The size of `build(*configs)`, of which no more than a few layers are looked at, however many there are."""
    shallow = [_with_few_layers(config) for config in configs]
    first = _counted(build, shallow)
    if first.bytes == math.inf:
        return first
    parameters, size = first
    for at, config in enumerate(configs):
        for times, deeper in _one_layer_more(config, shallow[at]):
            found = _counted(build, [*shallow[:at], deeper, *shallow[at + 1 :]])
            parameters += times * (found.parameters - first.parameters)
            size += times * (found.bytes - first.bytes)
    return Size(parameters, size)


def memory_of(device: torch.device) -> int | None:
    """Bytes that a device has, as far as this process may use them; None where the system does not say."""
    if device.type == "cuda":
        total: int = torch.cuda.get_device_properties(device).total_memory
        return total
    try:
        found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    except (AttributeError, ValueError, OSError):  # not on Windows
        return None
    for path in LIMITS:
        with suppress(OSError, ValueError):  # "max" is no number
            found.append(int(Path(path).read_text(encoding="ascii")))
    return min(found)


def _counted(build: Build, configs: list[Any]) -> Size:
    try:
        with torch.device("meta"):  # shapes without contents
            weights = list(build(*configs).parameters())
    except (RuntimeError, OverflowError, TypeError) as error:  # a shape that no number of 64 bits can count
        if isinstance(error, TypeError) and "Overflow" not in str(error):
            raise
        return Size(math.inf, math.inf)
    return Size(
        sum(weight.numel() for weight in weights),
        sum(weight.nbytes * (4 if weight.requires_grad else 1) for weight in weights),
    )


def _with_few_layers(config: Any) -> Any:
    changes: dict[str, Any] = {}
    if hasattr(config, "layers"):
        changes["layers"] = min(config.layers, FEW)
    if hasattr(config, "blocks"):
        changes["blocks"] = tuple(min(count, FEW) for count in config.blocks)
    return replace(config, **changes)


def _one_layer_more(config: Any, shallow: Any) -> Iterator[tuple[int, Any]]:
    """How many layers of a kind were left out, and the shallow settings with one of them."""
    if hasattr(config, "layers") and config.layers > FEW:
        yield config.layers - FEW, replace(shallow, layers=FEW + 1)
    for stage, count in enumerate(getattr(config, "blocks", ())):
        if count > FEW:
            blocks = (*shallow.blocks[:stage], FEW + 1, *shallow.blocks[stage + 1 :])
            yield count - FEW, replace(shallow, blocks=blocks)


def _at_fault(build: Build, configs: tuple[Any, ...]) -> str:
    """The setting whose usual value would leave the smallest model; all of them where that helps nothing."""
    sizes = {"its layers, widths or vocabulary": size_of(build, *configs)}
    for at, config in enumerate(configs):
        for field in fields(config):
            value = getattr(config, field.name)
            if type(value) in (int, tuple) and value != field.default:
                with suppress(ConfigError):  # it does not go with the others
                    usual = replace(config, **{field.name: field.default})
                    size = size_of(build, *configs[:at], usual, *configs[at + 1 :])
                    shown = list(value) if isinstance(value, tuple) else value
                    sizes[f"{config.section}.{field.name} = {shown}"] = size
    return min(sizes, key=lambda name: sizes[name].bytes)
