"""Beam search for outputs that begin with a text or contain given terms, by dynamic beam allocation.

Hypotheses are grouped into banks by the number of tokens that their terms still need (Post & Vilar 2018). Every bank
keeps its share of the beam, so that a hypothesis that writes an unlikely term survives beside likelier ones without it.
An output ends only where all terms are met; if it cannot be longer, the one that misses least is taken.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from jumok.decoding.beam import (
    SearchState,
    allowed_tokens,
    begin,
    best_finished,
    finished_hypotheses,
    finished_sentences,
    longest_outputs,
    pick_rows,
)
from jumok.decoding.config import SearchConfig
from jumok.decoding.hypotheses import Hypothesis, Observer, Specials, Survivors
from jumok.decoding.patterns import FORBIDDEN, Constraints
from jumok.models.encoder_decoder import Decoder, Encoding

FULL_BANKS = 4
"""Up to this many banks have a whole beam each; more of them share as many beams."""
SHARE = 1e6
"""Added to the log-probability of a hypothesis that is within the share of its bank."""


@dataclass(frozen=True, eq=False)
class _ConstrainedSearch(SearchState):
    """A search whose growing hypotheses also have a state in every pattern of their sentence."""

    states: Int[Tensor, "sentence growing pattern"]
    banks: Int[Tensor, " sentence"]
    """One for every number of tokens that the terms can still need, from 0."""
    widths: Int[Tensor, " sentence"]
    """How many hypotheses grow, in all banks together."""


@torch.no_grad()
def constrained_search(
    decoder: Decoder,
    encoding: Encoding,
    specials: Specials,
    config: SearchConfig,
    constraints: Constraints,
    observe: Observer | None = None,
    *,
    n_best: int | None = None,
    check: Callable[[], None] | None = None,
) -> list[list[Hypothesis]]:
    """As `beam_search`, for outputs that keep to the constraints of their sentences."""
    n_best = config.beam if n_best is None else n_best
    plain = begin(decoder, encoding, specials, config, longest_outputs(decoder, encoding, config))
    banks = constraints.most + 1
    widths = torch.maximum(config.beam * banks.clamp(max=FULL_BANKS), banks)
    search = _ConstrainedSearch(**vars(plain), states=constraints.start[:, None], banks=banks, widths=widths)
    outputs: list[list[Hypothesis]] = [[] for _ in range(len(encoding.states))]
    length = 0
    while len(search.sentences):
        log_probs, state = decoder.step(search.state, search.ids[:, :, -1])
        log_probs = allowed_tokens(log_probs, search, length, specials, config)
        search = _extend(replace(search, state=state), log_probs, length, specials, config, constraints, observe)
        length += 1
        if check is not None:
            check()
        done = finished_sentences(search, length, config, n_best)
        done |= search.totals.amax(1) == -torch.inf  # no hypothesis is left
        if done.any():
            for row in done.nonzero().flatten().tolist():
                outputs[int(search.sentences[row])] = finished_hypotheses(search, row, specials)[:n_best]
            search = search.keep(~done)
    return outputs


def _extend(
    search: _ConstrainedSearch,
    log_probs: Float[Tensor, "sentence growing vocabulary"],
    length: int,
    specials: Specials,
    config: SearchConfig,
    constraints: Constraints,
    observe: Observer | None,
) -> _ConstrainedSearch:
    """Extend every hypothesis by every token: the best that end go to the pool, the best of every bank grow on."""
    vocabulary, eos = log_probs.shape[-1], specials.eos
    left = constraints.left_after(search.states)
    candidates = (search.totals[:, :, None] + log_probs).masked_fill(left >= FORBIDDEN, -torch.inf)
    candidates[:, :, eos] = candidates[:, :, eos].masked_fill(
        ~_may_end(search, candidates, left, length, eos), -torch.inf
    )
    left[:, :, eos] = 0
    whole = candidates.masked_fill(left != 0, -torch.inf).flatten(1)
    totals, best = whole.topk(min(config.beam, whole.shape[1]), dim=1)
    ended = totals.masked_fill(best % vocabulary != eos, -torch.inf)
    candidates[:, :, eos] = -torch.inf
    growing, grown = _best_of_banks(search, candidates.flatten(1), left.flatten(1))
    parents, tokens = (torch.cat(pair, 1) for pair in _both(grown, best, vocabulary))
    ids = torch.cat([pick_rows(search.ids, parents), tokens[:, :, None]], -1)
    count = growing.shape[1]
    scores = ended / (length + 1) ** config.length_penalty
    pool_ids, pool_scores = best_finished(search, ids[:, count:], scores)
    if observe is not None:
        observe(Survivors(search.sentences, parents, tokens, torch.cat([growing, ended], 1)))
    grown_from, appended = parents[:, :count], tokens[:, :count]
    return replace(
        search,
        state=search.state.reorder(grown_from),
        states=constraints.advance(pick_rows(search.states, grown_from), appended),
        ids=ids[:, :count],
        totals=growing,
        pool_ids=pool_ids,
        pool_scores=pool_scores,
    )


def _both(grown: Tensor, ended: Tensor, vocabulary: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The parents and the tokens of candidates that grow, and of those that end."""
    return (grown // vocabulary, ended // vocabulary), (grown % vocabulary, ended % vocabulary)


def _may_end(search: _ConstrainedSearch, candidates: Tensor, left: Tensor, length: int, eos: int) -> Tensor:
    """Which hypotheses may end: those that meet all terms; of outputs that must end without one, those next to it."""
    missing = left[:, :, eos].masked_fill(candidates[:, :, eos] == -torch.inf, FORBIDDEN)
    last = (length >= search.longest) & (search.pool_scores[:, 0] == -torch.inf)
    return missing <= torch.where(last, missing.amin(1), 0)[:, None]


def _best_of_banks(
    search: _ConstrainedSearch,
    candidates: Float[Tensor, "sentence candidate"],
    left: Int[Tensor, "sentence candidate"],
) -> tuple[Float[Tensor, "sentence growing"], Int[Tensor, "sentence growing"]]:
    """The log-probabilities of the hypotheses that grow on, best first, and their places among the candidates.

    Every bank has the same share of the beam, and the one without missing terms has the rest; what a bank does not fill
    goes to the likeliest of the others.
    """
    width, banks = int(search.widths.max()), int(search.banks.max())
    size = min(width, candidates.shape[1])
    totals, places, shares = [], [], []
    for bank in range(banks):
        best, indices = candidates.masked_fill(left != bank, -torch.inf).topk(size, dim=1)
        share = search.widths // search.banks + (search.widths % search.banks if bank == 0 else 0)
        totals.append(best)
        places.append(indices)
        shares.append(torch.arange(size, device=best.device) < share[:, None])
    total, place, share = torch.cat(totals, 1), torch.cat(places, 1), torch.cat(shares, 1)
    order = (total + SHARE * share).topk(size, dim=1).indices
    beyond = torch.arange(size, device=order.device) >= search.widths[:, None]
    kept, sorting = total.gather(1, order).masked_fill(beyond, -torch.inf).sort(1, descending=True)
    return kept, place.gather(1, order.gather(1, sorting))
