"""The choice of hypotheses on a GPU. Importing this module imports Triton."""

import torch
import triton
from jaxtyping import Float
from torch import Tensor

from jumok.decoding.extend import Beams, Rules
from jumok.decoding.gpu.extend_kernels import extend_kernel, peaks_kernel

WIDEST = 16
"""Widest beam whose hypotheses one program holds."""
CHUNKS = 512
"""Chunks of the vocabulary."""
ROUND = 8
"""Tokens of a chunk that are read together."""
MANY = 256
"""Rows from which on one program has a whole vocabulary; fewer share it among four."""


def can_extend(beams: Beams, logits: Float[Tensor, "sentence beam vocabulary"]) -> bool:
    """Whether the kernels can take a beam, and totals of its precision."""
    return beams.tokens.shape[1] <= WIDEST and beams.totals.dtype == torch.float32 and logits.dtype != torch.float64


def extend(beams: Beams, logits: Float[Tensor, "sentence beam vocabulary"], rules: Rules) -> None:
    """What `decoding.extend.extend` does."""
    sentences, beam, vocabulary = logits.shape
    rows, logits = sentences * beam, logits.contiguous()
    parts = 1 if rows >= MANY else 4
    lanes, span = CHUNKS // parts, triton.cdiv(vocabulary, parts)
    items = triton.cdiv(span, lanes)
    peaks = torch.empty(rows, CHUNKS, device=logits.device)
    tops, sums = torch.empty(2, rows, parts, device=logits.device)
    words = {
        "MIN_LENGTH": rules.min_length,
        "PAD": rules.specials.pad,
        "BOS": rules.specials.bos,
        "EOS": rules.specials.eos,
    }
    peaks_kernel(
        (rows, parts), logits, peaks, tops, sums, beams.lengths, beams.longest, vocabulary, span,
        triton.cdiv(items, ROUND), BEAM=beam, PARTS=parts, LANES=lanes, ROUND=ROUND, **words, warps=2,
    )  # fmt: skip
    beams_block = triton.next_power_of_2(beam)
    extend_kernel(
        (sentences,), logits, peaks, tops, sums, beams.tokens, beams.parents, beams.totals, beams.pool, beams.longest,
        beams.lengths, beams.steps, beams.broken.view(torch.int8), beams.divisors, beams.past_parents,
        beams.past_tokens, beams.past_totals, sentences, vocabulary, span, beams.past_tokens.shape[0], BEAM=beam,
        BEAMS=beams_block, KEPT=2 * beams_block, PARTS=parts, LANES=lanes, ITEMS=triton.next_power_of_2(items),
        N_BEST=rules.n_best, REWARDS_LENGTH=rules.length_penalty > 0, **words, warps=4,
    )  # fmt: skip
