"""The mean of several checkpoints: a model that is often better than each of them."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from jumok.data.files import atomic_write
from jumok.errors import ArgumentError, DataError
from jumok.models.weights import check_fit, read_tensors, to_bytes
from jumok.training.checkpoint import is_checkpoint
from jumok.training.snapshot import read_snapshot


def average_files(paths: Sequence[str | Path], out: str | Path) -> None:
    """Write the mean of some safetensors files, tensor by tensor, to `out`."""
    content = to_bytes(average_tensors(paths))
    with atomic_write(out) as file:
        file.write(content)


def average_tensors(paths: Sequence[str | Path]) -> dict[str, Tensor]:
    """The mean of every tensor over some files with the same names and shapes; only one file is in memory at a time.

    Of a checkpoint's folder it is the weights that were validated, the moving average where there is one. Sums are in
    float64. What is not a real number, such as an index, must be the same in all files.
    """
    if not paths:
        raise ArgumentError("no files to average; name at least one")
    first = _weights(paths[0])
    sums = {name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in first.items()}
    for path in paths[1:]:
        tensors = _weights(path)
        check_fit(first, tensors, path)
        for name, tensor in tensors.items():
            if tensor.is_floating_point():
                sums[name] += tensor
            elif not torch.equal(sums[name], tensor):
                raise DataError(f"{path} and {paths[0]} differ in {name}, which holds {tensor.dtype} and has no mean")
    return {
        name: (total / len(paths)).to(first[name].dtype) if total.is_floating_point() else total
        for name, total in sums.items()
    }


def _weights(path: str | Path) -> dict[str, Tensor]:
    return read_snapshot(Path(path)).judged if is_checkpoint(Path(path)) else read_tensors(path)
