"""Fused graph attention in Triton, GAT: one program for a node and a head, its neighbours some at a time.

Forward, a program goes over the edges into a node with a running softmax, and keeps the logarithm of its sum. Backward,
a program goes over the edges out of a node, makes their weights again from that logarithm, and sums up what the node's
own values and score are due. Nothing of the size edge × head × dim is ever in memory, and every sum has one order.

GAT scores an edge by one number of each end, LeakyReLU(source_j + target_i + edge), with source = a · values. Both
gradients of the scores follow from sums of vectors, without a product for every edge:

    d target_i = (1 − slope) (dO_i · P_i − δ_i π_i),   P_i = Σ α value_j and π_i = Σ α over its edges with a positive score,
    d source_j = value_j · Σ slope_e α dO_i − Σ slope_e α δ_i,   the slope of an edge being 1 or that of the LeakyReLU.

The first uses that the gradients of a softmax add up to zero; the forward pass keeps P and π.

A node that has no edge to itself may be given one: the place after its last edge. Nodes with very many edges are left
to a second launch, whose programs are larger (see `Adjacency.long`).
"""

import triton
import triton.language as tl

from jumok.attention.triton_launch import kernel
from jumok.graphs.gpu_tiles import (
    SLACK,
    add_weighted,
    combine,
    dot,
    dots,
    edges_of,
    is_short,
    kept,
    leaky,
    load_row,
    load_rows,
    neighbours_of,
    scaled,
    store_row,
    sum_rows,
    two_numbers,
    zeros,
)


@kernel
def forward_kernel(
    values, vectors, scores, edge_scores, starts, others, edges, long, seed, out, rows, positive, share,
    nodes, edge_count, places, HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr,
    LOOPS: tl.constexpr, SCORED: tl.constexpr, VECTORS: tl.constexpr, LONGEST: tl.constexpr, LONG: tl.constexpr,
    WIDTH: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The values of a node's neighbours, mixed by the softmax of their scores: of one node, or of those LONG ones."""
    if LONG:
        for number in range(tl.program_id(0), tl.load(long), tl.num_programs(0)):
            mix(
                tl.load(long + 1 + number), values, vectors, scores, edge_scores, starts, others, edges, seed, out, rows,
                positive, share, nodes, edge_count, places, HEADS, DIM, SLOPE, DROPOUT, LOOPS, SCORED, VECTORS,
                WIDTH, PARTS, BLOCK,
            )  # fmt: skip
    elif is_short(tl.program_id(0), starts, LONGEST):
        mix(
            tl.program_id(0), values, vectors, scores, edge_scores, starts, others, edges, seed, out, rows,
            positive, share, nodes, edge_count, places, HEADS, DIM, SLOPE, DROPOUT, LOOPS, SCORED, VECTORS,
            WIDTH, PARTS, BLOCK,
        )  # fmt: skip


@triton.jit
def mix(
    node, values, vectors, scores, edge_scores, starts, others, edges, seed, out, rows, positive, share,
    nodes, edge_count, places, HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr,
    LOOPS: tl.constexpr, SCORED: tl.constexpr, VECTORS: tl.constexpr,
    WIDTH: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One node's answer. `rows` keeps its log-sum-exp and its score; `positive` and `share` P and π.

    With VECTORS the scores of neighbours are made from their values, which are read in any case.
    """
    head = tl.program_id(1)
    row = (node.to(tl.int64) * HEADS + head) * DIM
    line = head.to(tl.int64) * nodes
    if VECTORS:
        vector = load_row(vectors + head * DIM, DIM, WIDTH, PARTS)
        looks = load_row(vectors + (HEADS + head) * DIM, DIM, WIDTH, PARTS)
        own_score = dot(load_row(values + row, DIM, WIDTH, PARTS), looks, PARTS)
    else:
        own_score = tl.load(scores + tl.cast(HEADS, tl.int64) * nodes + line + node)
    level, looped = float("-inf"), 0
    total, positive_total = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    mixed, positive_mixed = zeros(BLOCK, WIDTH, PARTS), zeros(BLOCK, WIDTH, PARTS)
    first, end, last = edges_of(node, starts, LOOPS)
    for start in range(first, last, BLOCK):
        other, edge, place, visible, looped = neighbours_of(
            node, start + tl.arange(0, BLOCK), end, others, edges, edge_count, looped, LOOPS, DROPOUT > 0
        )
        score = tl.zeros([BLOCK], tl.float32) + own_score
        if SCORED:
            score += tl.load(edge_scores + head.to(tl.int64) * places + place, mask=visible, other=0.0)
            visible = visible & (score != float("-inf"))
        if not VECTORS:
            score += tl.load(scores + line + other, mask=visible, other=0.0)
            visible = visible & (score != float("-inf"))
        seen = load_rows(values + (other.to(tl.int64) * HEADS + head) * DIM, visible, DIM, WIDTH, PARTS)
        if VECTORS:
            score += dots(seen, vector, PARTS)
        activated = tl.where(visible, leaky(score, SLOPE), float("-inf"))
        most = tl.max(activated, 0)
        if most > level + SLACK:
            old = tl.exp(level - most)
            level, total = most, total * old
            positive_total *= old
            mixed, positive_mixed = scaled(mixed, old, PARTS), scaled(positive_mixed, old, PARTS)
        weights = tl.exp(activated - tl.where(level == float("-inf"), 0.0, level))
        total += weights
        positive_total += tl.where(score > 0, weights, 0.0)
        if DROPOUT > 0:
            weights *= kept(seed, head, edge, DROPOUT)
        mixed = add_weighted(mixed, weights, seen, PARTS)
        positive_mixed = add_weighted(positive_mixed, tl.where(score > 0, weights, 0.0), seen, PARTS)
    whole = tl.sum(total, 0)
    share_of = 1.0 / tl.where(whole == 0, 1.0, whole)
    answer, of_positive = sum_rows(mixed, PARTS), sum_rows(positive_mixed, PARTS)
    store_row(out + row, scaled(answer, share_of, PARTS), DIM, WIDTH, PARTS)
    store_row(positive + row, scaled(of_positive, share_of, PARTS), DIM, WIDTH, PARTS)
    tl.store(share + line + node, tl.sum(positive_total, 0) * share_of)
    # Of a node that sees nothing the weights, exp(score − lse), are 0.
    lse = tl.where(whole == 0, float("inf"), level + tl.log(tl.where(whole == 0, 1.0, whole)))
    tl.store(rows + 4 * (line + node), lse)
    tl.store(rows + 4 * (line + node) + 1, own_score)


@kernel
def delta_kernel(
    d_out, out, positive, share, rows, d_target, nodes, HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr,
    COLUMNS: tl.constexpr, DYNAMIC: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """δ = dO · O of some nodes, which stands in the middle of their COLUMNS of `rows`; for GAT also d target."""
    node, head = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1)
    dims = tl.arange(0, BLOCK_DIM)
    inside = (node < nodes)[:, None] & (dims < DIM)[None, :]
    at = ((node.to(tl.int64) * HEADS + head) * DIM)[:, None] + dims[None, :]
    given = tl.load(d_out + at, mask=inside, other=0.0).to(tl.float32)
    delta = tl.sum(given * tl.load(out + at, mask=inside, other=0.0).to(tl.float32), 1)
    place, there = head.to(tl.int64) * nodes + node, node < nodes
    tl.store(rows + COLUMNS * place + COLUMNS // 2, delta, mask=there)
    if not DYNAMIC:
        among = tl.sum(given * tl.load(positive + at, mask=inside, other=0.0), 1)
        due = among - delta * tl.load(share + place, mask=there, other=0.0)
        tl.store(d_target + place, (1.0 - SLOPE) * due, mask=there)


@kernel
def source_kernel(
    d_out, values, vectors, scores, edge_scores, starts, others, edges, long, seed, rows,
    d_values, d_scores, d_edge_scores, nodes, edge_count, places,
    HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr, LOOPS: tl.constexpr,
    SCORED: tl.constexpr, VECTORS: tl.constexpr, LONGEST: tl.constexpr, LONG: tl.constexpr,
    WIDTH: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What a node's values and score are due, from all that saw it: of one node, or of those LONG ones."""
    if LONG:
        for number in range(tl.program_id(0), tl.load(long), tl.num_programs(0)):
            source_gradients(
                tl.load(long + 1 + number), d_out, values, vectors, scores, edge_scores, starts, others, edges, seed,
                rows, d_values, d_scores, d_edge_scores, nodes, edge_count, places,
                HEADS, DIM, SLOPE, DROPOUT, LOOPS, SCORED, VECTORS, WIDTH, PARTS, BLOCK,
            )  # fmt: skip
    elif is_short(tl.program_id(0), starts, LONGEST):
        source_gradients(
            tl.program_id(0), d_out, values, vectors, scores, edge_scores, starts, others, edges, seed,
            rows, d_values, d_scores, d_edge_scores, nodes, edge_count, places,
            HEADS, DIM, SLOPE, DROPOUT, LOOPS, SCORED, VECTORS, WIDTH, PARTS, BLOCK,
        )  # fmt: skip


@triton.jit
def source_gradients(
    node, d_out, values, vectors, scores, edge_scores, starts, others, edges, seed, rows,
    d_values, d_scores, d_edge_scores, nodes, edge_count, places,
    HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr, LOOPS: tl.constexpr,
    SCORED: tl.constexpr, VECTORS: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One node's gradients; with VECTORS its scores are products of its values, which are then due more."""
    head = tl.program_id(1)
    row = (node.to(tl.int64) * HEADS + head) * DIM
    line = head.to(tl.int64) * nodes
    own = load_row(values + row, DIM, WIDTH, PARTS)
    if VECTORS:
        vector = load_row(vectors + head * DIM, DIM, WIDTH, PARTS)
        own_score = dot(own, vector, PARTS)
    else:
        own_score = tl.load(scores + line + node)
    mixed, positive_mixed = zeros(BLOCK, WIDTH, PARTS), zeros(BLOCK, WIDTH, PARTS)
    less, looped = tl.zeros([BLOCK], tl.float32), 0
    first, end, last = edges_of(node, starts, LOOPS)
    for start in range(first, last, BLOCK):
        other, edge, place, visible, looped = neighbours_of(
            node, start + tl.arange(0, BLOCK), end, others, edges, edge_count, looped, LOOPS, DROPOUT > 0
        )
        lse, score = two_numbers(tl.load(rows + 2 * (line + other), mask=visible, other=0))
        delta, _ = two_numbers(tl.load(rows + 2 * (line + other) + 1, mask=visible, other=0))
        score += own_score
        if SCORED:
            score += tl.load(edge_scores + head.to(tl.int64) * places + place, mask=visible, other=0.0)
        if SCORED or not VECTORS:
            visible = visible & (score != float("-inf"))
        given = load_rows(d_out + (other.to(tl.int64) * HEADS + head) * DIM, visible, DIM, WIDTH, PARTS)
        weights = tl.where(visible, tl.exp(leaky(score, SLOPE) - lse), 0.0)
        slope = tl.where(score > 0, 1.0, SLOPE)
        owed = tl.where(visible, slope * weights * delta, 0.0)
        if DROPOUT > 0:
            weights *= kept(seed, head, edge, DROPOUT)
        mixed = add_weighted(mixed, weights, given, PARTS)
        positive_mixed = add_weighted(positive_mixed, tl.where(score > 0, weights, 0.0), given, PARTS)
        less += owed
        if SCORED:
            # A hidden edge passes nothing on, whatever stands at its ends.
            matched = tl.where(visible, dots(given, own, PARTS), 0.0)
            due = slope * weights * matched - owed
            tl.store(d_edge_scores + head.to(tl.int64) * places + place, due, mask=visible)
    d_own = sum_rows(mixed, PARTS)
    sloped = combine(d_own, SLOPE, sum_rows(positive_mixed, PARTS), 1.0 - SLOPE, PARTS)
    d_score = seen_dot(own, sloped, PARTS) - tl.sum(less, 0)
    if VECTORS:
        looks = load_row(vectors + (HEADS + head) * DIM, DIM, WIDTH, PARTS)
        d_target = tl.load(d_scores + tl.cast(HEADS, tl.int64) * nodes + line + node)
        d_own = combine(combine(d_own, 1.0, vector, d_score, PARTS), 1.0, looks, d_target, PARTS)
    store_row(d_values + row, d_own, DIM, WIDTH, PARTS)
    tl.store(d_scores + line + node, d_score)


@triton.jit
def seen_dot(one, other, PARTS: tl.constexpr):
    """The product of two rows, to which a 0 of the second adds 0: nobody saw what the first holds there."""
    total = tl.where(other[0] != 0, one[0] * other[0], 0.0)
    for part in tl.static_range(1, PARTS):
        total += tl.where(other[part] != 0, one[part] * other[part], 0.0)
    return tl.sum(total, 0)


@triton.jit
def times(factors, tile):
    """Each row times its factor: 0 where that is 0, whatever the row holds."""
    return tl.where((factors != 0)[:, None], factors[:, None] * tile, 0.0)


@kernel
def vector_gradients_kernel(
    values, d_scores, d_vectors, nodes, HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Σ d score · value over part of the nodes, for both vectors of a head."""
    head = tl.program_id(1)
    dims = tl.arange(0, BLOCK_DIM)
    of_source, of_target = tl.zeros([BLOCK, BLOCK_DIM], tl.float32), tl.zeros([BLOCK, BLOCK_DIM], tl.float32)
    for start in range(tl.program_id(0) * BLOCK, nodes, tl.num_programs(0) * BLOCK):
        node = start + tl.arange(0, BLOCK)
        at = ((node.to(tl.int64) * HEADS + head) * DIM)[:, None] + dims[None, :]
        own = tl.load(values + at, mask=(node < nodes)[:, None] & (dims < DIM)[None, :], other=0.0).to(tl.float32)
        source = head.to(tl.int64) * nodes + node
        target = tl.cast(HEADS, tl.int64) * nodes + source
        of_source += times(tl.load(d_scores + source, mask=node < nodes, other=0.0), own)
        of_target += times(tl.load(d_scores + target, mask=node < nodes, other=0.0), own)
    at = d_vectors + ((tl.program_id(0) * 2) * HEADS + head) * DIM + dims
    tl.store(at, tl.sum(of_source, 0), mask=dims < DIM)
    tl.store(at + HEADS * DIM, tl.sum(of_target, 0), mask=dims < DIM)
