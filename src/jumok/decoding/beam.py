"""Beam search over any decoder, and the tree of hypotheses that it keeps.

score of y₁ … yₙ = log p(y₁ … yₙ, end) / (n + 1) ^ length_penalty        (Wu et al. 2016)
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from math import inf
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from jumok.decoding.config import SearchConfig
from jumok.decoding.hypotheses import Hypothesis, Observer, Specials, Survivors
from jumok.decoding.static_search import NotRecordedError, static_search
from jumok.layers.recorded import is_recorded
from jumok.models.encoder_decoder import Decoder, Encoding, State


def repeats_ngram(
    ids: Int[Tensor, "sentence beam length"], size: int, vocabulary: int
) -> Bool[Tensor, "sentence beam {vocabulary}"]:
    """True for every token that would complete an n-gram of this size that occurred before (Paulus et al. 2018)."""
    sentences, beam, length = ids.shape
    banned = torch.zeros(sentences, beam, vocabulary, dtype=torch.bool, device=ids.device)
    if length < size:
        return banned
    ngrams = ids.unfold(-1, size, 1)  # sentence beam start ngram
    ending = ids[:, :, length - size + 1 :]
    same = (ngrams[..., :-1] == ending[:, :, None, :]).all(-1)
    # A token is banned if any n-gram that begins like our ending ends in it; others must not overwrite that.
    return banned.int().scatter_add(-1, ngrams[..., -1], same.int()) > 0


@dataclass(frozen=True, eq=False)
class SearchState:
    """The sentences still being searched, each with `beam` growing hypotheses and up to `beam` finished ones."""

    state: State
    sentences: Int[Tensor, " sentence"]
    """Which sentences of the batch these are."""
    longest: Int[Tensor, " sentence"]
    """The most tokens an output may have."""
    ids: Int[Tensor, "sentence growing length"]
    totals: Float[Tensor, "sentence growing"]
    """Log-probability of each growing hypothesis; -inf where there is none."""
    pool_ids: Int[Tensor, "sentence beam length"]
    pool_scores: Float[Tensor, "sentence beam"]
    """Scores of the finished ones, best first; -inf where there is none."""

    def keep(self, going_on: Bool[Tensor, " sentence"]) -> Any:
        """Only these sentences are searched on; a search of the same class."""
        rows = going_on.nonzero().flatten()
        tensors = {field.name: getattr(self, field.name)[rows] for field in fields(self) if field.name != "state"}
        return replace(self, state=self.state.keep(rows), **tensors)


@torch.no_grad()
def beam_search(
    decoder: Decoder,
    encoding: Encoding,
    specials: Specials,
    config: SearchConfig,
    observe: Observer | None = None,
    *,
    n_best: int | None = None,
    check: Callable[[], None] | None = None,
    rows: int | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses for every sentence of the batch, best first: up to `n_best` of them, all different.

    `n_best` defaults to `config.beam`. A search for fewer ends sooner, because it ends when no better one can come.
    `observe` is called with the hypotheses that every step keeps; it changes nothing. `check` is called while the
    search goes on, and stops it by raising an error. `rows` limits how many sentences are searched at once, if there is
    no observer: on a GPU the next ones take the rows of those that have finished.

    On a GPU the steps of a decoder with a static state run without the host, see `static_search`.
    """
    n_best = config.beam if n_best is None else n_best
    longest = longest_outputs(decoder, encoding, config)
    if _is_static(decoder, encoding):
        with suppress(NotRecordedError):
            options: dict[str, Any] = {"n_best": n_best, "observe": observe, "check": check, "rows": rows}
            return static_search(decoder, encoding, specials, config, longest, **options)
    sentences = len(longest)
    most = sentences if rows is None or observe is not None else rows
    outputs: list[list[Hypothesis]] = []
    for start in range(0, sentences, max(most, 1)):
        part, end = encoding.range(start, start + most), start + most
        search = begin(decoder, part, specials, config, longest[start:end])
        outputs += _step_by_step(decoder, search, specials, config, observe, n_best, check)
    return outputs


def _step_by_step(
    decoder: Decoder,
    search: SearchState,
    specials: Specials,
    config: SearchConfig,
    observe: Observer | None,
    n_best: int,
    check: Callable[[], None] | None,
) -> list[list[Hypothesis]]:
    """The outputs of a search that has begun; the host waits for every step."""
    outputs: list[list[Hypothesis]] = [[] for _ in search.sentences]
    length = 0
    while len(search.sentences):
        log_probs, state = decoder.step(search.state, search.ids[:, :, -1])
        log_probs = allowed_tokens(log_probs, search, length, specials, config)
        search = _extend(replace(search, state=state), log_probs, length, specials, config, observe)
        length += 1
        if check is not None:
            check()
        done = finished_sentences(search, length, config, n_best)
        if done.any():
            for row in done.nonzero().flatten().tolist():
                outputs[int(search.sentences[row])] = finished_hypotheses(search, row, specials)[:n_best]
            search = search.keep(~done)
    return outputs


def _is_static(decoder: Decoder, encoding: Encoding) -> bool:
    """Whether the search runs on a GPU, with a decoder that has a static state and is not recorded."""
    if not encoding.states.is_cuda or not len(encoding.states) or torch.is_autocast_enabled("cuda"):
        return False
    return decoder.has_static_state() and not is_recorded(decoder)


def longest_outputs(decoder: Decoder, encoding: Encoding, config: SearchConfig) -> Int[Tensor, " sentence"]:
    """The most tokens of every output, on the CPU."""
    lengths = encoding.visible.sum(-1).tolist()
    longest = torch.tensor([config.longest(length) for length in lengths], dtype=torch.long)
    if decoder.limit is not None:  # the last step only ends the output
        longest = longest.clamp(max=decoder.limit - 1)
    return longest


def begin(
    decoder: Decoder, encoding: Encoding, specials: Specials, config: SearchConfig, longest: Tensor
) -> SearchState:
    """The search before its first step: one empty hypothesis for each sentence."""
    count, device = len(encoding.states), encoding.states.device
    longest = longest.to(device)
    state = decoder.start(encoding, capacity=int(longest.max()) + 1 if count else 1)
    first = torch.full((count, 1, 1), specials.bos, dtype=torch.long, device=device)
    # Scores add up over many steps: in float32 whatever the model computes in.
    dtype = torch.promote_types(encoding.states.dtype, torch.float32)
    nothing = torch.full((count, config.beam), -torch.inf, dtype=dtype, device=device)
    empty = torch.full((count, config.beam, 1), specials.pad, dtype=torch.long, device=device)
    sentences = torch.arange(count, device=device)
    return SearchState(state, sentences, longest, first, nothing.new_zeros(count, 1), empty, nothing)


def allowed_tokens(
    log_probs: Float[Tensor, "sentence beam vocabulary"],
    search: SearchState,
    length: int,
    specials: Specials,
    config: SearchConfig,
) -> Float[Tensor, "sentence beam vocabulary"]:
    """The log-probabilities, with -inf for every token that must not come next, and 0 for one that must."""
    if specials.first is not None and length == 0:
        log_probs = torch.full_like(log_probs, -torch.inf)
        log_probs[:, :, specials.first] = 0
        return log_probs
    forbidden = torch.zeros_like(log_probs, dtype=torch.bool)
    if config.no_repeat:
        forbidden |= repeats_ngram(search.ids[:, :, 1:], config.no_repeat, log_probs.shape[-1])
    # An output of the greatest length can only end.
    forbidden |= (length >= search.longest)[:, None, None]
    forbidden[:, :, specials.eos] = length < config.min_length
    forbidden[:, :, [specials.pad, specials.bos]] = True
    return log_probs.masked_fill(forbidden, -torch.inf)


def _extend(
    search: SearchState,
    log_probs: Tensor,
    length: int,
    specials: Specials,
    config: SearchConfig,
    observe: Observer | None,
) -> SearchState:
    """Extend every hypothesis by every token: the best that end go to the pool, the best of the others grow on."""
    vocabulary, beam = log_probs.shape[-1], config.beam
    candidates = (search.totals[:, :, None] + log_probs).flatten(1)
    # At most `beam` of the 2 · beam best candidates end here, so `beam` are left to grow.
    totals, best = candidates.topk(min(2 * beam, candidates.shape[1]), dim=1)
    parents, tokens = best // vocabulary, best % vocabulary
    ids = torch.cat([pick_rows(search.ids, parents), tokens[:, :, None]], -1)
    ends = tokens == specials.eos
    growing, order = totals.masked_fill(ends, -torch.inf).topk(min(beam, totals.shape[1]), dim=1)
    ended = totals[:, :beam].masked_fill(~ends[:, :beam], -torch.inf)
    pool_ids, pool_scores = best_finished(search, ids[:, :beam], ended / (length + 1) ** config.length_penalty)
    grown_from = parents.gather(1, order)
    if observe is not None:
        kept = ((grown_from, parents), (tokens.gather(1, order), tokens), (growing, ended))
        observe(Survivors(search.sentences, *(torch.cat([grow, end[:, :beam]], 1) for grow, end in kept)))
    return replace(
        search,
        state=search.state.reorder(grown_from),
        ids=pick_rows(ids, order),
        totals=growing,
        pool_ids=pool_ids,
        pool_scores=pool_scores,
    )


def best_finished(search: SearchState, ids: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """The best of the finished hypotheses of each sentence, old and new."""
    older = torch.nn.functional.pad(search.pool_ids, (0, 1))
    scores, order = torch.cat([search.pool_scores, scores], 1).topk(search.pool_scores.shape[1], dim=1)
    return pick_rows(torch.cat([older, ids], 1), order), scores


def finished_sentences(
    search: SearchState, length: int, config: SearchConfig, n_best: int
) -> Bool[Tensor, " sentence"]:
    """Sentences at their greatest length, or of whose growing hypotheses none can be among the `n_best` any more.

    Greedy search, with a beam of 1, ends with the first output that ends.
    """
    if config.beam == 1:
        return (length > search.longest) | (search.pool_scores[:, 0] > -torch.inf)
    # A total only falls; its divisor may still grow until the greatest length.
    reach = search.longest if config.length_penalty > 0 else torch.full_like(search.longest, length)
    best_to_come = search.totals.amax(1) / (reach + 1.0) ** config.length_penalty
    return (length > search.longest) | (search.pool_scores[:, n_best - 1] >= best_to_come)


def finished_hypotheses(search: SearchState, row: int, specials: Specials) -> list[Hypothesis]:
    """The finished hypotheses of a sentence, best first."""
    pool = zip(search.pool_ids[row].tolist(), search.pool_scores[row].tolist(), strict=True)
    return [Hypothesis(_words(ids, specials), score) for ids, score in pool if score > -torch.inf]


def _words(ids: list[int], specials: Specials) -> list[int]:
    words = ids[1:]
    return words[: words.index(specials.eos)] if specials.eos in words else words


def pick_rows(table: Int[Tensor, "sentence row length"], rows: Int[Tensor, "sentence pick"]) -> Tensor:
    """These rows of each sentence."""
    return table.gather(1, rows[:, :, None].expand(-1, -1, table.shape[-1]))


class Node(NamedTuple):
    """A hypothesis that a step kept: its parent and the token it appends."""

    parent: int
    """The node of the step before that it extends; 0 in the first step, where all extend the empty output."""
    token: int
    total: float
    """The log-probability of the whole hypothesis."""


def nodes_of(survivors: Survivors) -> Iterator[tuple[int, list[Node]]]:
    """For each sentence still searched, its number in the batch and the hypotheses this step kept."""
    # Growing hypotheses come first, best first, so leaving out those with -inf does not change what parents count.
    for sentence, *row in zip(*(field.tolist() for field in survivors), strict=True):
        yield sentence, [Node(*node) for node in zip(*row, strict=True) if node[-1] > -inf]


class BeamTree:
    """The hypotheses kept by every step of a search, each with the one it extends."""

    def __init__(self, eos: int) -> None:
        self.eos = eos
        self.steps: list[list[Node]] = []

    def grow(self, nodes: list[Node]) -> None:
        """Add a step of the search."""
        self.steps.append(nodes)

    def path(self, step: int, index: int) -> list[int]:
        """The indices, from the first step to this one, of the hypotheses that led to a node."""
        indices = [index]
        for later in range(step, 0, -1):
            indices.append(self.steps[later][indices[-1]].parent)
        return indices[::-1]

    def ids(self, step: int, index: int) -> list[int]:
        """The output of a node, without the end of the sentence."""
        tokens = [nodes[place].token for nodes, place in zip(self.steps, self.path(step, index), strict=False)]
        return tokens[:-1] if tokens[-1] == self.eos else tokens

    def best(self, length_penalty: float) -> tuple[list[int], float]:
        """The best output so far, finished or not, and its score."""
        ended = [
            (step, i) for step, nodes in enumerate(self.steps) for i, node in enumerate(nodes) if self.is_end(node)
        ]
        growing = [(len(self.steps) - 1, i) for i, node in enumerate(self.steps[-1]) if not self.is_end(node)]
        step, index = max(ended + growing, key=lambda node: self.score(node[0], node[1], length_penalty))
        return self.ids(step, index), self.score(step, index, length_penalty)

    def score(self, step: int, index: int, length_penalty: float) -> float:
        """Log-probability / length ^ length_penalty, by which hypotheses are compared."""
        return float(self.steps[step][index].total / (step + 1) ** length_penalty)

    def is_end(self, node: Node) -> bool:
        """Whether the hypothesis ends here."""
        return node.token == self.eos
