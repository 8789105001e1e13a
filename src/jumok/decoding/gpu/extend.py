"""The choice of hypotheses on a GPU. Importing this module imports Triton."""

import torch
import triton
from jaxtyping import Float
from torch import Tensor

from jumok.decoding.beam_tensors import Beams, Rules
from jumok.decoding.gpu.extend_kernels import extend_kernel, peaks_kernel

WIDEST = 16
"""Widest beam whose hypotheses one program holds."""
CHUNKS = 512
"""Chunks of the vocabulary."""
LEAST = 64
"""Tokens of a chunk for which the kernel is compiled at least, so that vocabularies up to 32,768 share one."""
ROUND = 8
"""Tokens of a chunk that are read together."""


def can_extend(beams: Beams, logits: Float[Tensor, "sentence beam vocabulary"]) -> bool:
    """Whether the kernels can take a beam, and totals of its precision."""
    return beams.tokens.shape[1] <= WIDEST and beams.totals.dtype == torch.float32 and logits.dtype != torch.float64


def extend(beams: Beams, logits: Float[Tensor, "sentence beam vocabulary"], rules: Rules) -> None:
    """What `decoding.extend.extend` does."""
    sentences, beam, vocabulary = logits.shape
    rows, logits = sentences * beam, logits.contiguous()
    items = triton.cdiv(vocabulary, CHUNKS)
    peaks, log_sums = torch.empty(rows, CHUNKS, device=logits.device), torch.empty(rows, device=logits.device)
    words = rules.min_length, rules.specials.pad, rules.specials.bos, rules.specials.eos
    peaks_kernel(
        (rows,), logits, peaks, log_sums, beams.lengths, beams.longest, vocabulary, triton.cdiv(items, ROUND), *words,
        BEAM=beam, LANES=CHUNKS, ROUND=ROUND, warps=2,
    )  # fmt: skip
    block = triton.next_power_of_2(beam)
    extend_kernel(
        (sentences,), logits, peaks, log_sums, beams.tokens, beams.parents, beams.totals, beams.pool, beams.longest,
        beams.lengths, beams.steps, beams.broken.view(torch.int8), beams.divisors, beams.past_parents,
        beams.past_tokens, beams.past_totals, sentences, vocabulary, beams.past_tokens.shape[0], rules.n_best, *words,
        BEAM=beam, BEAMS=block, KEPT=2 * block, LANES=CHUNKS, ITEMS=max(LEAST, triton.next_power_of_2(items)),
        REWARDS_LENGTH=rules.length_penalty > 0, warps=4,
    )  # fmt: skip
