"""Fused graph attention in Triton, GAT: one program for a node and a head, its neighbours some at a time.

Forward, a program goes over the edges into a node with a running softmax, and keeps the logarithm of its sum. Backward,
a program goes over the edges out of a node, recomputes their weights from that logarithm, and sums the gradients of the
node's own values and score. Nothing of the size edge × head × dim is ever in memory, and every sum has one order.

GAT scores an edge by one number of each end, LeakyReLU(source_j + target_i + edge), with source = a · values. Both
gradients of the scores follow from sums of vectors, without a product for every edge:

    d target_i = (1 − slope) (dO_i · P_i − δ_i π_i),   P_i = Σ α value_j and π_i = Σ α over its edges with a positive
    score,
    d source_j = value_j · Σ slope_e α dO_i − Σ slope_e α δ_i,   the slope of an edge being 1 or that of the LeakyReLU.

The first uses that the gradients of a softmax add up to zero; the forward pass keeps P and π.

A node that has no edge to itself may be given one: the place after its last edge. Nodes with very many edges are left
to a second launch, whose programs are larger (see `Adjacency.long`).
"""

import triton
import triton.language as tl

from jumok.attention.triton_launch import kernel
from jumok.graphs.gpu_tiles import (
    add_rows,
    kept,
    last_level,
    last_of,
    leaky,
    load_row,
    load_rows,
    neighbours_of,
    next_level,
    no_level,
    no_rows,
    scaled,
    store_row,
    sum_of_rows,
    two_numbers,
)


@kernel
def scores_kernel(
    values, vectors, scores, nodes, HEADS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr
):
    """The scores of some nodes, [source and target, head, node], from their values."""
    node, head, dims = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1), tl.arange(0, WIDTH)
    own = load_rows(values, (node.to(tl.int64) * HEADS + head) * DIM, node < nodes, dims, DIM)
    for side in tl.static_range(2):
        vector = load_row(vectors + (side * HEADS + head) * DIM, dims, DIM)
        place = (side * HEADS + head).to(tl.int64) * nodes + node
        tl.store(scores + place, tl.sum(own * vector[None, :], 1), mask=node < nodes)


@kernel
def forward_kernel(
    values, scores, edge_scores, starts, ends, others, edges, long, seed, out, rows, positive, share,
    nodes, edge_count, places,
    HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr, LOOPS: tl.constexpr,
    SCORED: tl.constexpr, LONG: tl.constexpr, APART: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The values of a node's neighbours, mixed by the softmax of their scores: one node, or the LONG ones."""
    if LONG:
        for number in range(tl.program_id(0), tl.load(long), tl.num_programs(0)):
            node = tl.load(long + 1 + number)
            mix(
                node, tl.load(starts + node), tl.load(starts + node + 1), tl.load(starts + node + 1) + LOOPS, values,
                scores, edge_scores,
                others, edges, seed, out, rows, positive, share, nodes, edge_count, places,
                HEADS, DIM, SLOPE, DROPOUT, LOOPS, SCORED, True, WIDTH, BLOCK,
            )  # fmt: skip
    else:
        # Of long ones this has no edges; they come later.
        node = tl.program_id(0)
        mix(
            node, tl.load(starts + node), tl.load(ends + node), last_of(node, starts, ends, LOOPS), values, scores,
            edge_scores,
            others, edges, seed, out, rows, positive, share, nodes, edge_count, places,
            HEADS, DIM, SLOPE, DROPOUT, LOOPS, SCORED, APART, WIDTH, BLOCK,
        )  # fmt: skip


@triton.jit
def mix(
    node, first, end, last, values, scores, edge_scores, others, edges, seed, out, rows, positive, share,
    nodes, edge_count, places,
    HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr, LOOPS: tl.constexpr,
    SCORED: tl.constexpr, APART: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The output of one node. `rows` keeps its log-sum-exp and its score; `positive` and `share` P and π."""
    head, dims = tl.program_id(1), tl.arange(0, WIDTH)
    row, line = (node.to(tl.int64) * HEADS + head) * DIM, head.to(tl.int64) * nodes
    own_score = tl.load(scores + tl.cast(HEADS, tl.int64) * nodes + line + node)
    level, looped = no_level(BLOCK, APART), 0
    total, positive_total = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    mixed, positive_mixed = no_rows(BLOCK, WIDTH, APART), no_rows(BLOCK, WIDTH, APART)
    for start in range(first, last, BLOCK):
        other, edge, place, visible, looped = neighbours_of(
            node, start + tl.arange(0, BLOCK), end, others, edges, edge_count, looped, LOOPS, DROPOUT > 0
        )
        score = own_score + tl.load(scores + line + other, mask=visible, other=0.0)
        if SCORED:
            score += tl.load(edge_scores + head.to(tl.int64) * places + place, mask=visible, other=0.0)
            visible = visible & (score != float("-inf"))
        seen = load_rows(values, (other.to(tl.int64) * HEADS + head) * DIM, visible, dims, DIM)
        activated = tl.where(visible, leaky(score, SLOPE), float("-inf"))
        level, old = next_level(level, activated, APART)
        weights = tl.exp(activated - tl.where(level == float("-inf"), 0.0, level))
        positive_weights = tl.where(score > 0, weights, 0.0)
        total, positive_total = total * old + weights, positive_total * old + positive_weights
        if DROPOUT > 0:
            keeps = kept(seed, head, edge, DROPOUT)
            weights, positive_weights = weights * keeps, positive_weights * keeps
        mixed = add_rows(scaled(mixed, old, APART), weights[:, None] * seen, APART)
        positive_mixed = add_rows(scaled(positive_mixed, old, APART), positive_weights[:, None] * seen, APART)
    level, old = last_level(level, APART)
    whole = tl.sum(total * old, 0)
    divisor = tl.where(whole == 0, 1.0, whole)
    store_row(out + row, sum_of_rows(scaled(mixed, old, APART), APART) / divisor, dims, DIM)
    store_row(positive + row, sum_of_rows(scaled(positive_mixed, old, APART), APART) / divisor, dims, DIM)
    tl.store(share + line + node, tl.sum(positive_total * old, 0) / divisor)
    # Of a node that sees nothing the weights, exp(score − lse), are 0.
    tl.store(rows + 4 * (line + node), tl.where(whole == 0, float("inf"), level + tl.log(divisor)))
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
    offsets = ((node.to(tl.int64) * HEADS + head) * DIM)[:, None] + dims[None, :]
    given = tl.load(d_out + offsets, mask=inside, other=0.0).to(tl.float32)
    delta = tl.sum(given * tl.load(out + offsets, mask=inside, other=0.0).to(tl.float32), 1)
    place, there = head.to(tl.int64) * nodes + node, node < nodes
    tl.store(rows + COLUMNS * place + COLUMNS // 2, delta, mask=there)
    if not DYNAMIC:
        among = tl.sum(given * tl.load(positive + offsets, mask=inside, other=0.0), 1)
        due = among - delta * tl.load(share + place, mask=there, other=0.0)
        tl.store(d_target + place, (1.0 - SLOPE) * due, mask=there)


@kernel
def source_kernel(
    d_out, values, vectors, scores, edge_scores, starts, ends, others, edges, long, seed, rows, d_values, d_scores,
    d_edge_scores,
    nodes, edge_count, places,
    HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr, LOOPS: tl.constexpr,
    SCORED: tl.constexpr, VECTORS: tl.constexpr, LONG: tl.constexpr, APART: tl.constexpr, WIDTH: tl.constexpr, BLOCK:
    tl.constexpr,
):  # fmt: skip
    """The gradients of a node's values and score, from all targets that attended to it: one node, or the LONG ones."""
    if LONG:
        for number in range(tl.program_id(0), tl.load(long), tl.num_programs(0)):
            node = tl.load(long + 1 + number)
            source_gradients(
                node, tl.load(starts + node), tl.load(starts + node + 1), tl.load(starts + node + 1) + LOOPS, d_out,
                values, vectors, scores, edge_scores,
                others, edges, seed, rows, d_values, d_scores, d_edge_scores, nodes, edge_count, places,
                HEADS, DIM, SLOPE, DROPOUT, LOOPS, SCORED, VECTORS, True, WIDTH, BLOCK,
            )  # fmt: skip
    else:
        # Of long ones this has no edges; they come later.
        node = tl.program_id(0)
        source_gradients(
            node, tl.load(starts + node), tl.load(ends + node), last_of(node, starts, ends, LOOPS), d_out, values,
            vectors, scores, edge_scores,
            others, edges, seed, rows, d_values, d_scores, d_edge_scores, nodes, edge_count, places,
            HEADS, DIM, SLOPE, DROPOUT, LOOPS, SCORED, VECTORS, APART, WIDTH, BLOCK,
        )  # fmt: skip


@triton.jit
def source_gradients(
    node, first, end, last, d_out, values, vectors, scores, edge_scores, others, edges, seed, rows, d_values, d_scores,
    d_edge_scores,
    nodes, edge_count, places,
    HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr, LOOPS: tl.constexpr,
    SCORED: tl.constexpr, VECTORS: tl.constexpr, APART: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradients of one node; with VECTORS, its scores are products of its values and add to their gradient."""
    head, dims = tl.program_id(1), tl.arange(0, WIDTH)
    row, line = (node.to(tl.int64) * HEADS + head) * DIM, head.to(tl.int64) * nodes
    own = load_row(values + row, dims, DIM)
    own_score = tl.load(scores + line + node)
    mixed, positive_mixed = no_rows(BLOCK, WIDTH, APART), no_rows(BLOCK, WIDTH, APART)
    less, looped = tl.zeros([BLOCK], tl.float32), 0
    for start in range(first, last, BLOCK):
        other, edge, place, visible, looped = neighbours_of(
            node, start + tl.arange(0, BLOCK), end, others, edges, edge_count, looped, LOOPS, DROPOUT > 0
        )
        lse, score = two_numbers(tl.load(rows + 2 * (line + other), mask=visible, other=0))
        delta, _ = two_numbers(tl.load(rows + 2 * (line + other) + 1, mask=visible, other=0))
        score += own_score
        if SCORED:
            score += tl.load(edge_scores + head.to(tl.int64) * places + place, mask=visible, other=0.0)
            visible = visible & (score != float("-inf"))
        given = load_rows(d_out, (other.to(tl.int64) * HEADS + head) * DIM, visible, dims, DIM)
        weights = tl.where(visible, tl.exp(leaky(score, SLOPE) - lse), 0.0)
        slope = tl.where(score > 0, 1.0, SLOPE)
        owed = tl.where(visible, slope * weights * delta, 0.0)
        if DROPOUT > 0:
            weights *= kept(seed, head, edge, DROPOUT)
        mixed = add_rows(mixed, weights[:, None] * given, APART)
        positive_mixed = add_rows(positive_mixed, tl.where(score > 0, weights, 0.0)[:, None] * given, APART)
        less += owed
        if SCORED:
            # A hidden edge passes nothing on, whatever stands at its ends.
            matched = tl.where(visible, tl.sum(given * own[None, :], 1), 0.0)
            due = slope * weights * matched - owed
            tl.store(d_edge_scores + head.to(tl.int64) * places + place, due, mask=visible)
    d_own = sum_of_rows(mixed, APART)
    sloped = SLOPE * d_own + (1.0 - SLOPE) * sum_of_rows(positive_mixed, APART)
    # Where nobody saw the node, its values do not matter, whatever they are.
    d_score = tl.sum(tl.where(sloped != 0, own * sloped, 0.0), 0) - tl.sum(less, 0)
    if VECTORS:
        d_target = tl.load(d_scores + tl.cast(HEADS, tl.int64) * nodes + line + node)
        d_own += d_score * load_row(vectors + head * DIM, dims, DIM)
        d_own += d_target * load_row(vectors + (HEADS + head) * DIM, dims, DIM)
    store_row(d_values + row, d_own, dims, DIM)
    tl.store(d_scores + line + node, d_score)


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
        offsets = ((node.to(tl.int64) * HEADS + head) * DIM)[:, None] + dims[None, :]
        own = tl.load(values + offsets, mask=(node < nodes)[:, None] & (dims < DIM)[None, :], other=0.0).to(tl.float32)
        source = head.to(tl.int64) * nodes + node
        target = tl.cast(HEADS, tl.int64) * nodes + source
        of_source += times(tl.load(d_scores + source, mask=node < nodes, other=0.0), own)
        of_target += times(tl.load(d_scores + target, mask=node < nodes, other=0.0), own)
    pointers = d_vectors + ((tl.program_id(0) * 2) * HEADS + head) * DIM + dims
    tl.store(pointers, tl.sum(of_source, 0), mask=dims < DIM)
    tl.store(pointers + HEADS * DIM, tl.sum(of_target, 0), mask=dims < DIM)
