"""One step of beam search on preallocated tensors, and reading its outputs.

Every step writes down which hypotheses continue and which end, each with its parent and its token.
Nothing else is kept of an output while the search goes on; at the end each is read from its last token to its first.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.attention.backends import why_no_triton
from jumok.decoding.beam_tensors import Beams, History, Rules
from jumok.decoding.hypotheses import Hypothesis


def extend(beams: Beams, logits: Float[Tensor, "sentence beam vocabulary"], rules: Rules) -> None:
    """Extend every hypothesis by every token: the best that end are finished, the best of the others grow on."""
    if not rules.no_repeat and why_no_triton(logits.device, logits.dtype) is None:
        from jumok.decoding.gpu import extend as gpu  # imports Triton

        if gpu.can_extend(beams, logits):
            gpu.extend(beams, logits, rules)
            return
    _extend(beams, logits, rules)


def _extend(beams: Beams, logits: Float[Tensor, "sentence beam vocabulary"], rules: Rules) -> None:
    beam, vocabulary, length = rules.beam, logits.shape[-1], beams.lengths[:, None]
    log_probs = logits.log_softmax(-1, dtype=beams.totals.dtype)
    unusable = ~log_probs.amax(-1).isfinite() & (beams.totals > -torch.inf)
    beams.broken.logical_or_(unusable.any(-1) & (beams.steps == 0))
    forbidden = _forbidden(beams, rules, log_probs)
    candidates = (beams.totals[:, :, None] + log_probs.masked_fill(forbidden, -torch.inf)).flatten(1)
    totals, best = candidates.topk(2 * beam, dim=1)
    parents, tokens = best // vocabulary, best % vocabulary
    ends = tokens == rules.specials.eos
    growing, order = totals.masked_fill(ends, -torch.inf).topk(beam, dim=1)
    ended = totals[:, :beam].masked_fill(~ends[:, :beam], -torch.inf)
    beams.parents.copy_(parents.gather(1, order))
    beams.tokens.copy_(tokens.gather(1, order))
    beams.totals.copy_(growing)
    newest = beams.lengths, torch.arange(len(beams.lengths), device=logits.device)
    for past, grow, end in (
        (beams.past_parents, beams.parents, parents[:, :beam]),
        (beams.past_tokens, beams.tokens, tokens[:, :beam]),
        (beams.past_totals, growing, ended),
    ):
        past[newest] = torch.cat([grow, end], 1).to(past.dtype)
    scores = ended / beams.divisors[length]
    beams.pool.copy_(torch.cat([beams.pool, scores], 1).topk(beam, dim=1).values)
    beams.lengths.add_(1)
    done = _finished(beams, rules) & (beams.steps == 0)
    beams.steps.copy_(torch.where(done, beams.lengths, beams.steps))
    beams.lengths.clamp_(max=len(beams.past_tokens) - 1)


def _forbidden(
    beams: Beams, rules: Rules, log_probs: Float[Tensor, "sentence beam vocabulary"]
) -> Bool[Tensor, "sentence beam vocabulary"]:
    """Every token that must not come next."""
    forbidden = torch.zeros_like(log_probs, dtype=torch.bool)
    length, specials = beams.lengths[:, None], rules.specials
    if rules.no_repeat:
        forbidden |= _repeats(beams, rules, log_probs.shape[-1])
    forbidden |= (length >= beams.longest[:, None])[:, :, None]  # an output of the greatest length can only end
    forbidden[:, :, specials.eos] = length < rules.min_length
    forbidden[:, :, specials.pad] = True
    forbidden[:, :, specials.bos] = True
    return forbidden


def _repeats(beams: Beams, rules: Rules, vocabulary: int) -> Bool[Tensor, "sentence beam {vocabulary}"]:
    """True for every token that would complete an n-gram that occurred before (Paulus et al. 2018)."""
    ids, length, size = _outputs(beams, rules), beams.lengths[:, None, None], rules.no_repeat
    banned = torch.zeros(*ids.shape[:2], vocabulary, dtype=torch.int32, device=ids.device)
    if ids.shape[-1] < size:
        return banned > 0
    ngrams = ids.unfold(-1, size, 1)  # sentence beam start ngram
    places = length - size + 1 + torch.arange(size - 1, device=ids.device)
    ending = ids.gather(-1, places.clamp(min=0).expand(*ids.shape[:2], -1))
    complete = torch.arange(ngrams.shape[2], device=ids.device) + size <= length
    same = (ngrams[..., :-1] == ending[:, :, None, :]).all(-1) & complete
    return banned.scatter_add(-1, ngrams[..., -1], same.int()) > 0


def _outputs(beams: Beams, rules: Rules) -> Int[Tensor, "sentence beam step"]:
    """The tokens of every growing hypothesis, with 0 for steps to come."""
    capacity = beams.past_tokens.shape[0]
    ids = torch.zeros(*beams.tokens.shape, capacity, dtype=torch.long, device=beams.tokens.device)
    newest = beams.lengths[:, None] - 1
    ancestors = torch.arange(rules.beam, device=ids.device).expand_as(beams.tokens)
    for step in range(capacity - 1, -1, -1):
        is_written = newest >= step
        ids[..., step] = torch.where(is_written, beams.past_tokens[step].long().gather(1, ancestors), 0)
        ancestors = torch.where(is_written, beams.past_parents[step].long().gather(1, ancestors), ancestors)
    return ids


def _finished(beams: Beams, rules: Rules) -> Bool[Tensor, " sentence"]:
    """Sentences at their greatest length, or of whose growing hypotheses none can be among the `n_best` any more."""
    over = beams.lengths > beams.longest
    if rules.beam == 1:  # greedy search ends with the first output that ends
        return over | (beams.pool[:, 0] > -torch.inf)
    reach = beams.longest.clamp(min=0) if rules.length_penalty > 0 else beams.lengths
    best_to_come = beams.totals.amax(1) / beams.divisors[reach.clamp(max=len(beams.divisors) - 1)]
    return over | (beams.pool[:, rules.n_best - 1] >= best_to_come)


def outputs_of(history: History, rules: Rules, divisors: Float[Tensor, " length"]) -> list[list[Hypothesis]]:
    """The best finished hypotheses of every sentence, best first."""
    steps, broken = history.steps.cpu().numpy(), history.broken.cpu().tolist()
    beam, rows, taken = rules.beam, len(steps), steps.max()
    parents, tokens, totals = (past[:taken].cpu().numpy() for past in history[:3])
    scores = totals[:, :, beam:] / divisors[:taken].cpu().numpy()[:, None, None]
    scores[np.arange(taken)[:, None] >= steps[None]] = -np.inf  # of steps after the search had ended
    scores[np.isnan(scores)] = -np.inf
    ranked = scores.transpose(1, 0, 2).reshape(rows, -1)
    best = np.argsort(-ranked, axis=1, kind="stable")[:, : rules.n_best]
    best_scores = np.take_along_axis(ranked, best, 1)
    lengths, row = best // beam, np.arange(rows)[:, None]
    ancestors = parents[lengths, row, beam + best % beam]
    ids = np.zeros((*best.shape, taken), dtype=np.int64)
    for step in range(taken - 1, -1, -1):
        is_written = step < lengths
        ids[..., step] = np.where(is_written, tokens[step, row, ancestors], 0)
        ancestors = np.where(is_written, parents[step, row, ancestors], ancestors)
    return [
        []
        if broken[number]
        else [
            Hypothesis(words[:length].tolist(), score)
            for words, length, score in zip(ids[number], lengths[number], best_scores[number].tolist(), strict=True)
            if score > -np.inf
        ]
        for number in range(rows)
    ]
