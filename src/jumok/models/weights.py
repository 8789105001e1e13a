"""The weights of a model as a safetensors file, checked against its recipe before the model is built.

The header of the file says how many numbers there are. A recipe that needs more, a billion layers say, is refused by
counting the weights of a model of a few layers on the meta device; only then are all shapes compared, still there.
"""

import json
import math
import os
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from jumok.errors import DataError
from jumok.files import open_plain, read_plain
from jumok.models.memory_check import Build, memory_of, size_of

FOREIGN = (
    "it belongs to another model; use the recipe that was saved beside it, and if it was trained with --task, give the "
    "same file"
)
REMEDY = "copy it again or train again"
MOST_HEADER = 16 * 2**20
"""Bytes of JSON, enough for 100,000 tensors."""
MOST_AXES = 64
METADATA = {"tied": "scaled"}
"""Of a file whose model multiplies embeddings by √width where their table is the output layer as well."""
PLAIN = (Tensor, nn.Parameter)
BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64,
}  # fmt: skip


class WeightsHeader(NamedTuple):
    """The shapes in a safetensors file, which agree with its size."""

    shapes: dict[str, list[int]]
    bytes: int
    """The size of the file."""

    @property
    def numbers(self) -> int:
        """How many numbers all tensors hold together."""
        return sum(math.prod(shape) for shape in self.shapes.values())


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name; a tensor shared under several names comes once, under the first."""
    first_names: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        first_names.setdefault(id(tensor), (name, tensor.detach()))
    return dict(first_names.values())


def to_bytes(tensors: dict[str, Tensor], metadata: dict[str, str] = METADATA) -> bytes:
    """The contents of a safetensors file."""
    return bytes(save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, metadata))


def from_bytes(content: bytes, path: str | Path, *, remedy: str = REMEDY) -> dict[str, Tensor]:
    """The tensors of a safetensors file that was read from `path`; `remedy` is what to do if it is damaged."""
    try:
        tensors: dict[str, Tensor] = load(content)
    except SafetensorError as error:
        raise _not_whole(path, error, remedy) from None
    metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__") or {}
    if not METADATA.items() <= metadata.items() and _ties_recurrent(tensors):
        raise DataError(
            f"{path} was written before the first release of jumok, when recurrent models with a tied output scaled "
            "the output and not the embeddings; train the model anew"
        )
    return tensors


def _ties_recurrent(names: Container[str]) -> bool:
    """Whether these are weights of a model whose output layer is the table of a recurrent encoder or decoder."""
    ties = "decoder.output.bias" in names and "decoder.output.weight" not in names
    of_encoder = "encoder.embedding.table" in names and "decoder.tokens.embedding.table" not in names
    return ties and ("decoder.embedding.table" in names or of_encoder)


def read_tensors(path: str | Path, *, remedy: str = REMEDY) -> dict[str, Tensor]:
    """The tensors of a safetensors file; `remedy` is what to do if it is damaged."""
    return from_bytes(read_plain(path, most=read_header(path, remedy=remedy).bytes), path, remedy=remedy)


def read_header(path: str | Path, *, within: Path | None = None, remedy: str = REMEDY) -> WeightsHeader:
    """The names and shapes in a safetensors file; a DataError unless they add up to the file's size."""
    with open_plain(path, within=within) as file:
        size, length = os.fstat(file.fileno()).st_size, int.from_bytes(file.read(8), "little")
        text = file.read(length) if length <= min(MOST_HEADER, size) else b""
    try:
        entries = json.loads(text)
        entries.pop("__metadata__", None)
        shapes = {name: _shape(entry) for name, entry in entries.items()}
        end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise _not_whole(path, "its header cannot be read", remedy) from None
    if 8 + length + end != size:
        raise _not_whole(path, f"its header asks for {8 + length + end:,} bytes, but it has {size:,}", remedy)
    return WeightsHeader(shapes, size)


def _shape(entry: dict[str, Any]) -> list[int]:
    """The shape of a tensor, if its numbers fill the bytes it is given."""
    shape, (begin, end) = entry["shape"], entry["data_offsets"]
    if len(shape) > MOST_AXES or any(type(size) is not int or not 0 <= size < 2**63 for size in [*shape, begin, end]):
        raise ValueError("a shape that PyTorch cannot have")
    if math.prod(shape) * BITS[entry["dtype"]] != 8 * (end - begin):
        raise ValueError("a tensor larger or smaller than its bytes")
    return list(shape)


def _not_whole(path: str | Path, why: object, remedy: str) -> DataError:
    return DataError(f"{path} is not a complete safetensors file ({why}); {remedy}")


@torch.no_grad()
def load_weights(model: nn.Module, tensors: dict[str, Tensor], path: str | Path, *, hint: str = FOREIGN) -> None:
    """Copy tensors read from `path` into the model; if one does not fit, the error names it and nothing changes."""
    weights = weights_of(model)
    check_fit(weights, tensors, path, hint=hint)
    for name, weight in weights.items():
        weight.copy_(laid_out_as(weight, tensors[name]))


@torch.no_grad()
def with_new_rows(tensors: dict[str, Tensor], model: nn.Module, sizes: Mapping[int, int]) -> dict[str, Tensor]:
    """Tensors with a row for each token that was added at the end of a vocabulary; `sizes` are new ones by old ones.

    A new token begins with the embedding that the model drew at random for it, and with the lowest bias of all tokens,
    so that it is not written before that has been learned.
    """
    grown = dict(tensors)
    for name, weight in weights_of(model).items():
        old = tensors.get(name)
        if old is None or old.shape == weight.shape or not old.ndim or sizes.get(len(old)) != len(weight):
            continue
        if old.shape[1:] == weight.shape[1:]:
            new = weight[len(old) :].to(old) if old.ndim > 1 else old.min().expand(len(weight) - len(old))
            grown[name] = torch.cat([old, new])
    return grown


def laid_out_as(weight: Tensor, value: Tensor) -> Tensor:
    """A value that every process has, for a weight that they keep in parts (FSDP): this process's part of it."""
    if type(weight) in PLAIN:
        return value
    from torch.distributed.tensor import DTensor, distribute_tensor  # slow to import

    if not isinstance(weight, DTensor):
        return value
    return distribute_tensor(value.to(weight.device), weight.device_mesh, weight.placements, src_data_rank=None)


def whole(tensors: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Tensors by name; those that processes keep in parts are put together, one at a time, in all of them."""
    for name, tensor in tensors.items():
        yield name, tensor if type(tensor) in PLAIN or not hasattr(tensor, "full_tensor") else tensor.full_tensor()


def check_fit(wanted: dict[str, Tensor], tensors: dict[str, Tensor], path: str | Path, *, hint: str = FOREIGN) -> None:
    """Raise a DataError with the first of `tensors`, read from `path`, whose name or shape is not the one wanted."""
    check_shapes(wanted, {name: list(tensor.shape) for name, tensor in tensors.items()}, path, hint=hint)


def check_shapes(
    wanted: dict[str, Tensor], shapes: dict[str, list[int]], path: str | Path, *, hint: str = FOREIGN
) -> None:
    """The same for the shapes of tensors that have not been read yet."""
    for name, weight in wanted.items():
        if name not in shapes:
            raise DataError(f"{path} has no {name} {list(weight.shape)}, which this model needs; {hint}")
        if shapes[name] != list(weight.shape):
            raise DataError(f"{path} holds {name} as {shapes[name]}, but this model needs {list(weight.shape)}; {hint}")
    if extra := sorted(shapes.keys() - wanted.keys()):
        raise DataError(f"{path} holds {extra[0]}, which this model does not have; {hint}")


def check_model_fits(build: Build, *configs: Any, header: WeightsHeader, path: Path) -> None:
    """Raise a DataError unless `build(*configs)` has the weights in the header of `path`, and memory holds them."""
    needed = size_of(build, *configs)
    if needed.parameters > header.numbers:
        raise DataError(f"{path} holds {header.numbers:,} numbers, but its recipe needs {needed.shown}; {FOREIGN}")
    with torch.device("meta"):  # shapes without contents
        check_shapes(weights_of(build(*configs)), header.shapes, path)
    memory = memory_of(torch.device("cpu"))
    if memory is not None and header.bytes > memory:
        raise DataError(
            f"{path} holds {header.bytes / 2**30:,.1f} GiB of weights, but memory has {memory / 2**30:,.1f} GiB"
        )
