"""Kernels that choose the hypotheses of a beam from logits, of which each is read once.

The vocabulary is divided into chunks. The best 2 · beam candidates of a sentence lie in the 2 · beam chunks with the
highest peaks: `peaks_kernel` finds the peak of every chunk, and `extend_kernel` looks into those few only.
"""

import triton
import triton.language as tl

from jumok.attention.triton_launch import kernel


@triton.jit
def allowed(token, length, shortest, longest, pad, bos, eos):
    """Whether a token may come next: an output of the greatest length can only end."""
    usual = (token != pad) & (token != bos) & (token != eos) & (length < longest)
    return usual | ((token == eos) & (length >= shortest))


@kernel(any_number=("rounds", "shortest", "pad", "bos", "eos"))
def peaks_kernel(
    logits, peaks, log_sums, lengths, longest, vocabulary, rounds, shortest, pad, bos, eos, BEAM: tl.constexpr,
    LANES: tl.constexpr, ROUND: tl.constexpr,
):  # fmt: skip
    """One hypothesis: the peak of each chunk, and log Σ e^logit.

    A chunk is every so many tokens, so that its peak needs no exchange between threads.
    """
    row = tl.program_id(0).to(tl.int64)
    length, end = tl.load(lengths + row // BEAM), tl.load(longest + row // BEAM)
    lane, turn = tl.arange(0, LANES), tl.arange(0, ROUND)
    peak = tl.full((LANES,), float("-inf"), tl.float32)
    top = tl.full((LANES,), float("-inf"), tl.float32)
    total = tl.zeros((LANES,), tl.float32)
    for number in range(0, rounds):
        token = (number * ROUND + turn)[:, None] * LANES + lane[None]
        logit = tl.load(logits + row * vocabulary + token, mask=token < vocabulary, other=float("-inf")).to(tl.float32)
        free = allowed(token, length, shortest, end, pad, bos, eos)
        peak = tl.maximum(peak, tl.max(tl.where(free, logit, float("-inf")), 0))
        higher = tl.maximum(top, tl.max(logit, 0))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(top - base) + tl.sum(tl.exp(logit - base[None]), 0)
        top = higher
    tl.store(peaks + row * LANES + lane, peak)
    most = tl.max(top, 0)
    base = tl.where(most == float("-inf"), 0.0, most)
    tl.store(log_sums + row, base + tl.log(tl.sum(total * tl.exp(top - base), 0)))


@triton.jit
def sortable(value, place):
    """A whole number that is greater for a greater value, and for the same value at a lower place."""
    bits = value.to(tl.int32, bitcast=True)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered.to(tl.int64) << 32) | (0x7FFFFFFF - place).to(tl.int64)


@triton.jit
def value_of(key):
    """The value that `sortable` was given."""
    ordered = (key >> 32).to(tl.int32)
    return (ordered ^ ((ordered >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def place_of(key):
    """The place that `sortable` was given."""
    return 0x7FFFFFFF - (key & 0x7FFFFFFF).to(tl.int32)


@triton.jit
def picked(table, number):
    """table[number], both short vectors."""
    indices = tl.arange(0, table.shape[0])
    return tl.sum(tl.where(indices[None] == number[:, None], table[None], tl.zeros_like(table)[None]), 1)


@kernel(any_number=("sentences", "vocabulary", "capacity", "shortest", "n_best", "pad", "bos", "eos"))
def extend_kernel(
    logits, peaks, log_sums, tokens, parents, totals, pool, longest, lengths, steps, broken, divisors, past_parents,
    past_tokens, past_totals, sentences, vocabulary, capacity, n_best, shortest, pad, bos, eos, BEAM: tl.constexpr,
    BEAMS: tl.constexpr, KEPT: tl.constexpr, LANES: tl.constexpr, ITEMS: tl.constexpr, REWARDS_LENGTH: tl.constexpr,
):  # fmt: skip
    """One sentence: what `decoding.extend` describes. BEAMS and KEPT are powers of two, from BEAM and 2 · BEAM on."""
    sentence = tl.program_id(0).to(tl.int64)
    length, end = tl.load(lengths + sentence), tl.load(longest + sentence)
    took = tl.load(steps + sentence)
    hypothesis, kept = tl.arange(0, BEAMS), tl.arange(0, KEPT)
    real = hypothesis < BEAM
    row = sentence * BEAM + hypothesis
    log_sum = tl.load(log_sums + row, mask=real, other=0.0)
    total = tl.load(totals + row, mask=real, other=float("-inf"))
    exists = real & (total > float("-inf"))
    usable = exists & (tl.abs(log_sum) < float("inf"))
    unusable = tl.max((exists & (usable == 0)).to(tl.int32), 0)
    tl.store(broken + sentence, 1, mask=(unusable == 1) & (took == 0))
    total = tl.where(usable, total, float("-inf"))
    log_sum = tl.where(usable, log_sum, 0.0)
    # the chunks with the highest peaks
    chunk = hypothesis[:, None] * LANES + tl.arange(0, LANES)[None]
    peak = tl.load(peaks + sentence * (BEAM * LANES) + chunk, mask=real[:, None], other=float("-inf"))
    peak = tl.where(usable[:, None], total[:, None] + (peak - log_sum[:, None]), float("-inf"))
    keys = sortable(peak, chunk)
    chunks = tl.zeros((KEPT,), tl.int32)
    heights = tl.full((KEPT,), float("-inf"), tl.float32)
    for number in range(0, 2 * BEAM):
        best = tl.max(tl.max(keys, 1), 0)
        chunks = tl.where(kept == number, place_of(best), chunks)
        heights = tl.where(kept == number, value_of(best), heights)
        keys = tl.where(keys == best, -0x7FFFFFFFFFFFFFFF, keys)
    # the best tokens in them
    has_token = heights > float("-inf")
    parent = tl.where(has_token, chunks // LANES, 0)
    first, item = chunks % LANES, tl.arange(0, ITEMS)
    token = first[:, None] + item[None] * LANES
    inside = has_token[:, None] & (token < vocabulary)
    logit = tl.load(logits + (sentence * BEAM + parent)[:, None] * vocabulary + token, mask=inside, other=float("-inf"))
    free = inside & allowed(token, length, shortest, end, pad, bos, eos)
    value = picked(total, parent)[:, None] + (logit.to(tl.float32) - picked(log_sum, parent)[:, None])
    value = tl.where(free, value, float("-inf"))
    keys = sortable(value, kept[:, None] * ITEMS + item[None])
    scores = tl.full((KEPT,), float("-inf"), tl.float32)
    places = tl.zeros((KEPT,), tl.int32)
    for number in range(0, 2 * BEAM):
        best = tl.max(tl.max(keys, 1), 0)
        places = tl.where(kept == number, place_of(best), places)
        scores = tl.where(kept == number, value_of(best), scores)
        keys = tl.where(keys == best, -0x7FFFFFFFFFFFFFFF, keys)
    there = scores > float("-inf")
    source = tl.where(there, places // ITEMS, 0)
    chosen = tl.where(there, picked(first, source) + places % ITEMS * LANES, pad)
    origin = tl.where(there, picked(parent, source), 0)
    # those that grow on, best first, and those that end
    ends = chosen == eos
    grows = (kept < 2 * BEAM) & (ends == 0)
    rank = tl.cumsum(grows.to(tl.int32), 0) - 1
    grows = grows & (rank < BEAM)
    tl.store(tokens + sentence * BEAM + rank, chosen.to(tl.int64), mask=grows)
    tl.store(parents + sentence * BEAM + rank, origin.to(tl.int64), mask=grows)
    tl.store(totals + sentence * BEAM + rank, scores, mask=grows)
    past = (length * sentences + sentence) * (2 * BEAM)
    tl.store(past_tokens + past + rank, chosen, mask=grows)
    tl.store(past_parents + past + rank, origin, mask=grows)
    tl.store(past_totals + past + rank, scores, mask=grows)
    ended = tl.where(ends & (kept < BEAM), scores, float("-inf"))
    tl.store(past_tokens + past + BEAM + kept, chosen, mask=kept < BEAM)
    tl.store(past_parents + past + BEAM + kept, origin, mask=kept < BEAM)
    tl.store(past_totals + past + BEAM + kept, ended, mask=kept < BEAM)
    # the scores of the finished ones
    before = tl.load(pool + sentence * BEAM + hypothesis, mask=real, other=float("-inf"))
    older = sortable(before, hypothesis)
    newer = sortable(ended / tl.load(divisors + length), BEAMS + kept)
    after = tl.full((BEAMS,), float("-inf"), tl.float32)
    for number in range(0, BEAM):
        best = tl.maximum(tl.max(older, 0), tl.max(newer, 0))
        after = tl.where(hypothesis == number, value_of(best), after)
        older = tl.where(older == best, -0x7FFFFFFFFFFFFFFF, older)
        newer = tl.where(newer == best, -0x7FFFFFFFFFFFFFFF, newer)
    tl.store(pool + sentence * BEAM + hypothesis, after, mask=real)
    # whether a better one can come
    length += 1
    nth = tl.max(tl.where(hypothesis == n_best - 1, after, float("-inf")), 0)
    if BEAM == 1:
        done = (length > end) | (nth > float("-inf"))
    else:
        reach = tl.maximum(end, 0) if REWARDS_LENGTH else length
        highest = tl.max(tl.where(grows, scores, float("-inf")), 0)
        done = (length > end) | (nth >= highest / tl.load(divisors + tl.minimum(reach, capacity)))
    tl.store(steps + sentence, length, mask=done & (took == 0))
    tl.store(lengths + sentence, tl.minimum(length, capacity - 1))
