"""Words taken over from the source: a pointer beside the vocabulary (See et al. 2017)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from jumok.models.seq2seq import Copied


class Copying(nn.Module):
    """p_gen = σ(w · [c; s; y] + b), and the weights of attention as the distribution of what is copied."""

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.to_generate = nn.Linear(width, 1)

    def forward(
        self,
        known: Float[Tensor, "batch place width"],
        weights: Float[Tensor, "batch place source"],
        tokens: Int[Tensor, "batch source"],
    ) -> Copied:
        """`known` is what p_gen is read from: context, state and the word before."""
        generate = self.to_generate(known).squeeze(-1)
        everywhere = tokens[:, None].expand(-1, weights.shape[1], -1)
        return Copied(everywhere, merged(weights, tokens), generate)


def merged(
    weights: Float[Tensor, "batch place source"], tokens: Int[Tensor, "batch source"]
) -> Float[Tensor, "batch place source"]:
    """The weights of the same token added up where it stands first, and zero elsewhere."""
    same = tokens[:, :, None] == tokens[:, None, :]
    first = same.to(torch.uint8).argmax(-1)  # the first of equal maxima
    return weights @ F.one_hot(first, tokens.shape[1]).to(weights.dtype)


def log_mixture(logits: Float[Tensor, "*place vocabulary"], copied: Copied) -> Float[Tensor, "*place vocabulary"]:
    """log(p_gen · softmax(logits) + (1 − p_gen) · copies), for every token (equation 9).

    Weights that sum to less than 1, as those of a Gaussian window do, leave the rest to the vocabulary.
    """
    tiny = torch.finfo(logits.dtype).tiny
    log_copy = F.logsigmoid(-copied.generate)
    rest = (1 - copied.weights.sum(-1)).clamp(min=tiny).log()
    log_own = torch.logaddexp(F.logsigmoid(copied.generate), log_copy + rest)
    own = logits.log_softmax(-1) + log_own[..., None]
    copies = copied.weights.clamp(min=tiny).log() + log_copy[..., None]
    # Only the tokens of the source change: each by log(own + copy) − log(own).
    there = own.gather(-1, copied.tokens)
    return own.scatter_add(-1, copied.tokens, torch.logaddexp(there, copies) - there)
