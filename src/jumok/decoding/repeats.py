"""Which next tokens would repeat a run of tokens that an output already has."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def repeats_a_run(
    ids: Int[Tensor, "sentence beam length"], run: int, vocabulary: int
) -> Bool[Tensor, "sentence beam {vocabulary}"]:
    """True for every token that would end a run of `run` tokens that occurred before (Paulus et al. 2018)."""
    sentences, beam, length = ids.shape
    banned = torch.zeros(sentences, beam, vocabulary, dtype=torch.bool, device=ids.device)
    if length < run:
        return banned
    runs = ids.unfold(-1, run, 1)  # sentence beam start run
    ending = ids[:, :, length - run + 1 :]
    same = (runs[..., :-1] == ending[:, :, None, :]).all(-1)
    # A token is banned if any run that begins like our ending ends in it; others must not overwrite that.
    return banned.int().scatter_add(-1, runs[..., -1], same.int()) > 0
