"""Fused graph attention in Triton, GAT: one program for a node and a head, its neighbours some at a time.

Forward, a program goes over the edges into a node with a running softmax, and keeps the logarithm of its sum. Backward,
a program goes over the edges out of a node, makes their weights again from that logarithm, and sums up what the node's
own values and score are due. Nothing of the size edge × head × dim is ever in memory, and every sum has one order.

GAT scores an edge by one number of each end, LeakyReLU(source_j + target_i + edge). Both gradients of the scores follow
from sums of vectors, without a product for every edge:

    d target_i = (1 − slope) (dO_i · P_i − δ_i π_i),   P_i = Σ α value_j and π_i = Σ α over its edges with a positive score,
    d source_j = value_j · Σ slope_e α dO_i − Σ slope_e α δ_i,   the slope of an edge being 1 or that of the LeakyReLU.

The first uses that the gradients of a softmax add up to zero; the forward pass keeps P and π.

A node that has no edge to itself may be given one: the place after its last edge. Nodes with very many edges are left
to a second launch, whose programs are larger (see `Adjacency.long`).
"""

import triton
import triton.language as tl

from jumok.attention.triton_launch import kernel


@triton.jit
def kept(seed, head, edge, DROPOUT: tl.constexpr):
    """The factor of an edge's weight: 0 where it is dropped. It depends on the edge alone, the same in every pass.

    The number drawn is MurmurHash3's finaliser of edge, head and seed: tl.rand took as long as all else in a pass.
    """
    drawn = edge.to(tl.uint32) * 0x9E3779B1 + (tl.load(seed).to(tl.uint32) + head.to(tl.uint32) * 0x7FEB352D)
    drawn = (drawn ^ (drawn >> 16)) * 0x85EBCA6B
    drawn = (drawn ^ (drawn >> 13)) * 0xC2B2AE35
    uniform = ((drawn ^ (drawn >> 16)) >> 8).to(tl.float32) * (1.0 / (1 << 24))
    return tl.where(uniform >= DROPOUT, 1.0 / (1.0 - DROPOUT), 0.0)


@triton.jit
def edges_of(node, starts, LOOPS: tl.constexpr):
    """The first edge of a node, the place after its last, and that after the edge to itself which it may be given."""
    end = tl.load(starts + node + 1)
    return tl.load(starts + node), end, end + LOOPS


@triton.jit
def neighbours_of(node, slots, end, others, edges, edge_count, looped, LOOPS: tl.constexpr, EDGES: tl.constexpr):
    """The other ends of some edges, the edges' numbers, which of them there are, and whether one was a loop."""
    inside = slots < end
    other = tl.load(others + slots, mask=inside, other=0)
    edge = slots
    if EDGES:
        edge = tl.load(edges + slots, mask=inside, other=0)
    if LOOPS:
        looped = tl.maximum(looped, tl.max((inside & (other == node)).to(tl.int32), 0))
        own = (slots == end) & (looped == 0)
        other = tl.where(inside, other, node)
        edge = tl.where(inside, edge, edge_count + node)
        inside = inside | own
    return other, edge, inside, looped


@triton.jit
def two_numbers(packed):
    """Two numbers of single precision that stand together, read as one of 64 bits."""
    first = (packed & 0xFFFFFFFF).to(tl.int32).to(tl.float32, bitcast=True)
    return first, (packed >> 32).to(tl.int32).to(tl.float32, bitcast=True)


@triton.jit
def leaky(x, slope):
    """LeakyReLU."""
    return tl.where(x > 0, x, slope * x)


@kernel
def scores_kernel(
    values, vectors, scores, nodes, HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The scores of some nodes, [source and target, head, node], from their values."""
    node, head = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1)
    dims = tl.arange(0, BLOCK_DIM)
    dims_in = dims < DIM
    at = ((node.to(tl.int64) * HEADS + head) * DIM)[:, None] + dims[None, :]
    own = tl.load(values + at, mask=(node < nodes)[:, None] & dims_in[None, :], other=0.0).to(tl.float32)
    for side in tl.static_range(2):
        vector = tl.load(vectors + (side * HEADS + head) * DIM + dims, mask=dims_in, other=0.0).to(tl.float32)
        place = ((side * HEADS + head) * nodes + node).to(tl.int64)
        tl.store(scores + place, tl.sum(own * vector[None, :], 1), mask=node < nodes)


@kernel
def forward_kernel(
    values, scores, edge_scores, starts, others, edges, long, seed, out, rows, positive, share, nodes, edge_count,
    HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr, LOOPS: tl.constexpr,
    SCORED: tl.constexpr, LONGEST: tl.constexpr, LONG: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The values of a node's neighbours, mixed by the softmax of their scores: of one node, or of those LONG ones."""
    if LONG:
        for number in range(tl.program_id(0), tl.load(long), tl.num_programs(0)):
            mix(
                tl.load(long + 1 + number), values, scores, edge_scores, starts, others, edges, seed, out, rows,
                positive, share, nodes, edge_count, HEADS, DIM, SLOPE, DROPOUT, LOOPS, SCORED, BLOCK_DIM, BLOCK,
            )  # fmt: skip
    else:
        node = tl.program_id(0)
        if tl.load(starts + node + 1) - tl.load(starts + node) <= LONGEST:
            mix(
                node, values, scores, edge_scores, starts, others, edges, seed, out, rows,
                positive, share, nodes, edge_count, HEADS, DIM, SLOPE, DROPOUT, LOOPS, SCORED, BLOCK_DIM, BLOCK,
            )  # fmt: skip


@triton.jit
def mix(
    node, values, scores, edge_scores, starts, others, edges, seed, out, rows, positive, share, nodes, edge_count,
    HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr, LOOPS: tl.constexpr,
    SCORED: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One node's answer. `rows` keeps its log-sum-exp and its score; `positive` and `share` P and π."""
    head = tl.program_id(1)
    dims = tl.arange(0, BLOCK_DIM)
    dims_in = dims < DIM
    row = (node.to(tl.int64) * HEADS + head) * DIM + dims
    own_score = tl.load(scores + (HEADS + head).to(tl.int64) * nodes + node)
    scores += head.to(tl.int64) * nodes
    highest, looped = float("-inf"), 0
    total, positive_total = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    mixed, positive_mixed = tl.zeros([BLOCK, BLOCK_DIM], tl.float32), tl.zeros([BLOCK, BLOCK_DIM], tl.float32)
    first, end, last = edges_of(node, starts, LOOPS)
    for start in range(first, last, BLOCK):
        other, edge, visible, looped = neighbours_of(
            node, start + tl.arange(0, BLOCK), end, others, edges, edge_count, looped, LOOPS, SCORED or DROPOUT > 0
        )
        score = own_score + tl.load(scores + other, mask=visible, other=0.0)
        if SCORED:
            score += tl.load(edge_scores + edge.to(tl.int64) * HEADS + head, mask=visible, other=0.0)
            visible = visible & (score != float("-inf"))
        at = (other.to(tl.int64) * HEADS + head) * DIM
        seen = tl.load(values + at[:, None] + dims[None, :], mask=visible[:, None] & dims_in[None, :], other=0.0)
        seen = seen.to(tl.float32)
        activated = tl.where(visible, leaky(score, SLOPE), float("-inf"))
        higher = tl.maximum(highest, tl.max(activated, 0))
        level = tl.where(higher == float("-inf"), 0.0, higher)
        old, weights = tl.exp(highest - level), tl.exp(activated - level)
        highest, total = higher, total * old + weights
        positive_total = positive_total * old + tl.where(score > 0, weights, 0.0)
        if DROPOUT > 0:
            weights *= kept(seed, head, edge, DROPOUT)
        mixed = mixed * old + weights[:, None] * seen
        positive_mixed = positive_mixed * old + tl.where(score > 0, weights, 0.0)[:, None] * seen
    whole = tl.sum(total, 0)
    divisor = tl.where(whole == 0, 1.0, whole)
    place = (head * nodes + node).to(tl.int64)
    tl.store(out + row, (tl.sum(mixed, 0) / divisor).to(out.dtype.element_ty), mask=dims_in)
    tl.store(positive + row, tl.sum(positive_mixed, 0) / divisor, mask=dims_in)
    tl.store(share + place, tl.sum(positive_total, 0) / divisor)
    # Of a node that sees nothing the weights, exp(score − lse), are 0.
    tl.store(rows + 4 * place, tl.where(whole == 0, float("inf"), highest + tl.log(divisor)))
    tl.store(rows + 4 * place + 1, own_score)


@kernel
def delta_kernel(
    d_out, out, positive, share, rows, d_target, nodes, HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr,
    COLUMNS: tl.constexpr, DYNAMIC: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """δ = dO · O of some nodes, the last of their COLUMNS in `rows` that is used; for GAT what their scores are due."""
    node, head = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1)
    dims = tl.arange(0, BLOCK_DIM)
    inside = (node < nodes)[:, None] & (dims < DIM)[None, :]
    at = ((node.to(tl.int64) * HEADS + head) * DIM)[:, None] + dims[None, :]
    given = tl.load(d_out + at, mask=inside, other=0.0).to(tl.float32)
    delta = tl.sum(given * tl.load(out + at, mask=inside, other=0.0).to(tl.float32), 1)
    place, there = (head * nodes + node).to(tl.int64), node < nodes
    tl.store(rows + COLUMNS * place + COLUMNS // 2, delta, mask=there)
    if not DYNAMIC:
        among = tl.sum(given * tl.load(positive + at, mask=inside, other=0.0), 1)
        due = among - delta * tl.load(share + place, mask=there, other=0.0)
        tl.store(d_target + place, (1.0 - SLOPE) * due, mask=there)


@kernel
def source_gradients_kernel(
    d_out, values, scores, vectors, edge_scores, starts, others, edges, long, seed, rows,
    d_values, d_scores, d_edge_scores, nodes, edge_count,
    HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr, LOOPS: tl.constexpr,
    SCORED: tl.constexpr, VECTORS: tl.constexpr, LONGEST: tl.constexpr, LONG: tl.constexpr,
    BLOCK_DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What a node's values and score are due, from all that saw it: of one node, or of those LONG ones."""
    if LONG:
        for number in range(tl.program_id(0), tl.load(long), tl.num_programs(0)):
            source_gradients(
                tl.load(long + 1 + number), d_out, values, scores, vectors, edge_scores, starts, others, edges, seed,
                rows, d_values, d_scores, d_edge_scores, nodes, edge_count,
                HEADS, DIM, SLOPE, DROPOUT, LOOPS, SCORED, VECTORS, BLOCK_DIM, BLOCK,
            )  # fmt: skip
    else:
        node = tl.program_id(0)
        if tl.load(starts + node + 1) - tl.load(starts + node) <= LONGEST:
            source_gradients(
                node, d_out, values, scores, vectors, edge_scores, starts, others, edges, seed,
                rows, d_values, d_scores, d_edge_scores, nodes, edge_count,
                HEADS, DIM, SLOPE, DROPOUT, LOOPS, SCORED, VECTORS, BLOCK_DIM, BLOCK,
            )  # fmt: skip


@triton.jit
def source_gradients(
    node, d_out, values, scores, vectors, edge_scores, starts, others, edges, seed, rows,
    d_values, d_scores, d_edge_scores, nodes, edge_count,
    HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr, LOOPS: tl.constexpr,
    SCORED: tl.constexpr, VECTORS: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One node's gradients; with VECTORS its scores are products of its values, which are then due more."""
    head = tl.program_id(1)
    dims = tl.arange(0, BLOCK_DIM)
    dims_in = dims < DIM
    row = (node.to(tl.int64) * HEADS + head) * DIM + dims
    line = head.to(tl.int64) * nodes
    own = tl.load(values + row, mask=dims_in, other=0.0).to(tl.float32)
    own_score = tl.load(scores + line + node)
    mixed, positive_mixed = tl.zeros([BLOCK, BLOCK_DIM], tl.float32), tl.zeros([BLOCK, BLOCK_DIM], tl.float32)
    less, looped = tl.zeros([BLOCK], tl.float32), 0
    first, end, last = edges_of(node, starts, LOOPS)
    for start in range(first, last, BLOCK):
        other, edge, visible, looped = neighbours_of(
            node, start + tl.arange(0, BLOCK), end, others, edges, edge_count, looped, LOOPS, SCORED or DROPOUT > 0
        )
        lse, score = two_numbers(tl.load(rows + 2 * (line + other), mask=visible, other=0))
        delta, _ = two_numbers(tl.load(rows + 2 * (line + other) + 1, mask=visible, other=0))
        score += own_score
        if SCORED:
            score += tl.load(edge_scores + edge.to(tl.int64) * HEADS + head, mask=visible, other=0.0)
            visible = visible & (score != float("-inf"))
        at = ((other.to(tl.int64) * HEADS + head) * DIM)[:, None] + dims[None, :]
        given = tl.load(d_out + at, mask=visible[:, None] & dims_in[None, :], other=0.0).to(tl.float32)
        weights = tl.where(visible, tl.exp(leaky(score, SLOPE) - lse), 0.0)
        slope = tl.where(score > 0, 1.0, SLOPE)
        owed = tl.where(visible, slope * weights * delta, 0.0)
        if DROPOUT > 0:
            weights *= kept(seed, head, edge, DROPOUT)
        mixed += weights[:, None] * given
        positive_mixed += tl.where(score > 0, weights, 0.0)[:, None] * given
        less += owed
        if SCORED:
            # A hidden edge passes nothing on, whatever stands at its ends.
            matched = tl.where(visible, tl.sum(given * own[None, :], 1), 0.0)
            place = d_edge_scores + edge.to(tl.int64) * HEADS + head
            tl.store(place, slope * weights * matched - owed, mask=visible)
    d_own = tl.sum(mixed, 0)
    sloped = SLOPE * d_own + (1.0 - SLOPE) * tl.sum(positive_mixed, 0)
    # Nobody who sees it: nothing, whatever its values are.
    d_score = tl.sum(tl.where(sloped != 0, own * sloped, 0.0), 0) - tl.sum(less, 0)
    if VECTORS:
        d_target = tl.load(d_scores + HEADS * nodes + line + node)
        d_own += d_score * tl.load(vectors + head * DIM + dims, mask=dims_in, other=0.0).to(tl.float32)
        d_own += d_target * tl.load(vectors + (HEADS + head) * DIM + dims, mask=dims_in, other=0.0).to(tl.float32)
    tl.store(d_values + row, d_own.to(d_values.dtype.element_ty), mask=dims_in)
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
        at = ((node.to(tl.int64) * HEADS + head) * DIM)[:, None] + dims[None, :]
        own = tl.load(values + at, mask=(node < nodes)[:, None] & (dims < DIM)[None, :], other=0.0).to(tl.float32)
        place = head.to(tl.int64) * nodes + node
        of_source += times(tl.load(d_scores + place, mask=node < nodes, other=0.0), own)
        of_target += times(tl.load(d_scores + HEADS * nodes + place, mask=node < nodes, other=0.0), own)
    at = d_vectors + ((tl.program_id(0) * 2) * HEADS + head) * DIM + dims
    tl.store(at, tl.sum(of_source, 0), mask=dims < DIM)
    tl.store(at + HEADS * DIM, tl.sum(of_target, 0), mask=dims < DIM)
