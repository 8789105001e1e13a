"""Token embeddings, initialised at random or from pretrained word vectors."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from jumok.attention.checks import check_optional_sizes, check_sizes
from jumok.errors import ArgumentError


class TokenEmbedding(nn.Module):
    """table[id], multiplied by √width if `scale` (Vaswani et al. 2017).

    `vectors` [vocabulary, vector_width] are pretrained; a row of NaN is an unknown word, and is drawn at random with
    the mean and standard deviation of the others. If vector_width differs from `width`, a linear map without bias is
    added. `freeze` keeps the whole table fixed, including the random rows; the linear map is still trained.
    The row of `padding` is zero and stays zero.
    """

    def __init__(
        self,
        *,
        vocabulary: int,
        width: int,
        padding: int | None = None,
        vectors: Float[Tensor, "vocabulary vector_width"] | None = None,
        freeze: bool = False,
        scale: bool = False,
    ) -> None:
        super().__init__()
        vocabulary, width = check_sizes(vocabulary=vocabulary, width=width)
        (padding,) = check_optional_sizes(padding=padding, least=0)
        if padding is not None and padding >= vocabulary:
            raise ArgumentError(f"padding = {padding} is not an id of a vocabulary of {vocabulary}")
        if freeze and vectors is None:
            raise ArgumentError("freeze = True needs vectors; otherwise the random embeddings would never be trained")
        if vectors is None:
            # Scaled rows then have the unit variance that the positions added to them assume.
            table = torch.randn(vocabulary, width) * (width**-0.5 if scale else 1.0)
        else:
            _check_vectors(vectors, vocabulary)
            table = _fill_unknown(vectors)
        if padding is not None:
            table[padding] = 0
        self.table = nn.Parameter(table, requires_grad=not freeze)
        self.project = None if table.shape[1] == width else nn.Linear(table.shape[1], width, bias=False)
        self.width, self.padding, self.factor = width, padding, width**0.5 if scale else 1.0

    @torch.no_grad()
    def initialise_from(self, vectors: Float[Tensor, "vocabulary width"]) -> None:
        """Copy pretrained vectors, rescaled by one factor, into a table that is still random.

        The factor gives them the standard deviation of the random rows, so that the rest of the model sees numbers of
        the size it was initialised for; cosines between words are kept. Rows of NaN in `vectors` stay random.
        """
        _check_vectors(vectors, len(self.table))
        if vectors.shape != self.table.shape:
            raise ArgumentError(f"vectors are {vectors.shape[1]} wide, but the table is {self.table.shape[1]} wide")
        known = ~vectors.isnan().any(-1)
        spread = vectors[known].std(correction=0)
        factor = self.table.std(correction=0) / spread if known.any() and spread > 0 else 1.0
        self.table[known] = (vectors[known] * factor).to(self.table)

    def forward(self, ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape width"]:
        """The vector of every id."""
        vectors = self.unscaled(ids)
        return vectors if self.factor == 1.0 else vectors * self.factor

    def unscaled(self, ids: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape width"]:
        """The vector of every id before it is multiplied by `factor`."""
        vectors = F.embedding(ids, self.table, self.padding)
        return vectors if self.project is None else self.project(vectors)


def _fill_unknown(vectors: Tensor) -> Tensor:
    table = vectors.detach().clone()
    unknown = table.isnan().all(-1)
    known = table[~unknown]
    mean, spread = (known.mean(), known.std(correction=0)) if known.numel() else (0.0, 1.0)
    table[unknown] = torch.randn_like(table[unknown]) * spread + mean
    return table


def _check_vectors(vectors: Tensor, vocabulary: int) -> None:
    if vectors.ndim != 2 or len(vectors) != vocabulary or not vectors.is_floating_point():
        raise ArgumentError(
            f"vectors is {list(vectors.shape)} of {vectors.dtype}; it must be floats [vocabulary, vector_width] "
            f"with vocabulary = {vocabulary}"
        )
    broken = ~vectors.isfinite().all(-1) & ~vectors.isnan().all(-1)
    if broken.any():
        raise ArgumentError(
            f"vectors[{int(broken.nonzero()[0])}] holds NaN or infinity; a row must be finite numbers, or all NaN "
            "for a word without a vector"
        )
