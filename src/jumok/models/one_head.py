"""The attention of a recurrent decoder in the form that every model's has, with an axis of heads."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from jumok.attention import Weights
from jumok.errors import ArgumentError


@dataclass(frozen=True, eq=False)
class OneHead:
    """Weights [batch, 1, target, source], built when called: of all places together, or one place after another."""

    parts: tuple[Weights | Float[Tensor, "batch some source"], ...]

    def __call__(
        self, *, heads: Sequence[int] | None = None, rows: slice | Sequence[int] | None = None
    ) -> Float[Tensor, "batch head target source"]:
        """The weights of the chosen rows; the only head is number 0."""
        for head in heads or ():
            if head not in (0, -1):
                raise ArgumentError(f"heads asks for number {head}, but there is 1")
        built = torch.cat([part if isinstance(part, Tensor) else part() for part in self.parts], 1)[:, None]
        if heads is not None:
            built = built.expand(-1, len(heads), -1, -1)
        if rows is None or isinstance(rows, slice):
            return built if rows is None else built[:, :, rows]
        size = built.shape[2]
        for row in rows:
            if not -size <= row < size:
                raise ArgumentError(f"rows asks for number {row}, but there are {size}")
        return built[:, :, list(rows)]
