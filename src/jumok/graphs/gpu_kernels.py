"""Fused graph attention in Triton: one program for a node and a head, its neighbours some at a time.

Forward, a program goes over the edges into a node with a running softmax, and keeps the logarithm of its sum. Backward,
a program goes over the edges out of a node, makes their weights again from that logarithm, and sums up what the node's
own values and score are due. Nothing of the size edge × head × dim is ever in memory, and every sum has one order.

GAT scores an edge by one number of each end, LeakyReLU(source_j + target_i + edge). Its softmax's gradients add up to
zero over a node's edges, so the gradient of target_i needs no pass of its own: it is (1 − slope) times the sum over the
edges with a positive score alone, for which the forward pass keeps their share of the answer.

GATv2 scores an edge by vector · LeakyReLU(values_j + target_i), and takes a second backward pass, over the edges into
each node.

A node that has no edge to itself may be given one: the place after its last edge.
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
def leaky(x, slope):
    """LeakyReLU."""
    return tl.where(x > 0, x, slope * x)


@kernel
def forward_kernel(
    values, source, target, vector, edge_scores, starts, others, edges, seed, out, rows, positive, share,
    nodes, edge_count, HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr,
    LOOPS: tl.constexpr, DYNAMIC: tl.constexpr, SCORED: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The values of a node's neighbours, mixed by the softmax of their scores."""
    node, head = tl.program_id(0), tl.program_id(1)
    dims = tl.arange(0, BLOCK_DIM)
    dims_in = dims < DIM
    row = (node.to(tl.int64) * HEADS + head) * DIM + dims
    if DYNAMIC:
        own = tl.load(target + row, mask=dims_in, other=0.0).to(tl.float32)
        direction = tl.load(vector + head * DIM + dims, mask=dims_in, other=0.0).to(tl.float32)
    else:
        own_score = tl.load(target + head * nodes + node)
    highest, total, positive_total, looped = float("-inf"), 0.0, 0.0, 0
    mixed, positive_mixed = tl.zeros([BLOCK_DIM], tl.float32), tl.zeros([BLOCK_DIM], tl.float32)
    end = tl.load(starts + node + 1)
    for start in range(tl.load(starts + node), end + LOOPS, BLOCK):
        slots = start + tl.arange(0, BLOCK)
        other, edge, visible, looped = neighbours_of(
            node, slots, end, others, edges, edge_count, looped, LOOPS, SCORED or DROPOUT > 0
        )
        if not DYNAMIC:
            score = own_score + tl.load(source + head * nodes + other, mask=visible, other=0.0)
            if SCORED:
                score += tl.load(edge_scores + edge.to(tl.int64) * HEADS + head, mask=visible, other=0.0)
                visible = visible & (score != float("-inf"))
        at = (other.to(tl.int64) * HEADS + head) * DIM
        seen = tl.load(values + at[:, None] + dims[None, :], mask=visible[:, None] & dims_in[None, :], other=0.0)
        seen = seen.to(tl.float32)
        if DYNAMIC:
            activated = tl.sum(leaky(seen + own[None, :], SLOPE) * direction[None, :], 1)
        else:
            activated = leaky(score, SLOPE)
        activated = tl.where(visible, activated, float("-inf"))
        higher = tl.maximum(highest, tl.max(activated, 0))
        level = tl.where(higher == float("-inf"), 0.0, higher)
        old, weights = tl.exp(highest - level), tl.exp(activated - level)
        highest, total = higher, total * old + tl.sum(weights, 0)
        used = weights
        if DROPOUT > 0:
            used = weights * kept(seed, head, edge, DROPOUT)
        mixed = mixed * old + tl.sum(used[:, None] * seen, 0)
        if not DYNAMIC:
            positive_total = positive_total * old + tl.sum(tl.where(score > 0, weights, 0.0), 0)
            positive_mixed = positive_mixed * old + tl.sum(tl.where(score > 0, used, 0.0)[:, None] * seen, 0)
    divisor = tl.where(total == 0, 1.0, total)
    tl.store(out + row, (mixed / divisor).to(out.dtype.element_ty), mask=dims_in)
    # Of a node that sees nothing the weights, exp(score − lse), are 0.
    lse = tl.where(total == 0, float("inf"), highest + tl.log(divisor))
    place = (head * nodes + node).to(tl.int64)
    tl.store(rows + 4 * place, lse)
    if not DYNAMIC:
        tl.store(rows + 4 * place + 1, own_score)
        tl.store(share + place, positive_total / divisor)
        tl.store(positive + row, positive_mixed / divisor, mask=dims_in)


@kernel
def delta_kernel(
    d_out, out, positive, share, rows, d_target, nodes, HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr,
    DYNAMIC: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """δ = dO · O of some nodes, and for GAT what their own scores are due."""
    node, head = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1)
    dims = tl.arange(0, BLOCK_DIM)
    inside = (node < nodes)[:, None] & (dims < DIM)[None, :]
    at = ((node.to(tl.int64) * HEADS + head) * DIM)[:, None] + dims[None, :]
    given = tl.load(d_out + at, mask=inside, other=0.0).to(tl.float32)
    delta = tl.sum(given * tl.load(out + at, mask=inside, other=0.0).to(tl.float32), 1)
    place, there = (head * nodes + node).to(tl.int64), node < nodes
    tl.store(rows + 4 * place + 2, delta, mask=there)
    if not DYNAMIC:
        among = tl.sum(given * tl.load(positive + at, mask=inside, other=0.0), 1)
        due = among - delta * tl.load(share + place, mask=there, other=0.0)
        tl.store(d_target + place, (1.0 - SLOPE) * due, mask=there)


@triton.jit
def column(tile, columns, NUMBER: tl.constexpr):
    """One column of a tile."""
    return tl.sum(tl.where(columns[None, :] == NUMBER, tile, tl.zeros_like(tile)), 1)


@kernel
def source_gradients_kernel(
    d_out, values, source, edge_scores, starts, others, edges, seed, rows, d_values, d_source, d_edge_scores,
    nodes, edge_count, HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr,
    LOOPS: tl.constexpr, SCORED: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """GAT: what a node's values and score are due, from all that saw it."""
    node, head = tl.program_id(0), tl.program_id(1)
    dims, columns = tl.arange(0, BLOCK_DIM), tl.arange(0, 4)
    dims_in = dims < DIM
    row = (node.to(tl.int64) * HEADS + head) * DIM + dims
    own = tl.load(values + row, mask=dims_in, other=0.0).to(tl.float32)
    own_score = tl.load(source + head * nodes + node)
    d_own, d_score, looped = tl.zeros([BLOCK_DIM], tl.float32), 0.0, 0
    end = tl.load(starts + node + 1)
    for start in range(tl.load(starts + node), end + LOOPS, BLOCK):
        slots = start + tl.arange(0, BLOCK)
        other, edge, visible, looped = neighbours_of(
            node, slots, end, others, edges, edge_count, looped, LOOPS, SCORED or DROPOUT > 0
        )
        place = (head * nodes + other).to(tl.int64)
        known = tl.load(rows + 4 * place[:, None] + columns[None, :], mask=visible[:, None], other=0.0)
        lse, score, delta = column(known, columns, 0), own_score + column(known, columns, 1), column(known, columns, 2)
        if SCORED:
            score += tl.load(edge_scores + edge.to(tl.int64) * HEADS + head, mask=visible, other=0.0)
            visible = visible & (score != float("-inf"))
        at = ((other.to(tl.int64) * HEADS + head) * DIM)[:, None] + dims[None, :]
        given = tl.load(d_out + at, mask=visible[:, None] & dims_in[None, :], other=0.0).to(tl.float32)
        weights = tl.where(visible, tl.exp(leaky(score, SLOPE) - lse), 0.0)
        used = weights
        if DROPOUT > 0:
            used = weights * kept(seed, head, edge, DROPOUT)
        # A hidden edge passes nothing on, whatever stands at its ends.
        matched = tl.where(visible, tl.sum(given * own[None, :], 1), 0.0)
        due = used * matched - weights * delta
        due = tl.where(score > 0, due, SLOPE * due)
        d_own += tl.sum(used[:, None] * given, 0)
        d_score += tl.sum(due, 0)
        if SCORED:
            tl.store(d_edge_scores + edge.to(tl.int64) * HEADS + head, due, mask=visible)
    tl.store(d_values + row, d_own.to(d_values.dtype.element_ty), mask=dims_in)
    tl.store(d_source + head * nodes + node, d_score)


@kernel
def dynamic_source_kernel(
    d_out, values, target, vector, starts, others, edges, seed, rows, d_values,
    nodes, edge_count, HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr,
    LOOPS: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """GATv2: what a node's values are due, from all that saw it."""
    node, head = tl.program_id(0), tl.program_id(1)
    dims, columns = tl.arange(0, BLOCK_DIM), tl.arange(0, 4)
    dims_in = dims < DIM
    row = (node.to(tl.int64) * HEADS + head) * DIM + dims
    own = tl.load(values + row, mask=dims_in, other=0.0).to(tl.float32)
    direction = tl.load(vector + head * DIM + dims, mask=dims_in, other=0.0).to(tl.float32)
    d_own, looped = tl.zeros([BLOCK_DIM], tl.float32), 0
    end = tl.load(starts + node + 1)
    for start in range(tl.load(starts + node), end + LOOPS, BLOCK):
        slots = start + tl.arange(0, BLOCK)
        other, edge, visible, looped = neighbours_of(
            node, slots, end, others, edges, edge_count, looped, LOOPS, DROPOUT > 0
        )
        tile = visible[:, None] & dims_in[None, :]
        at = ((other.to(tl.int64) * HEADS + head) * DIM)[:, None] + dims[None, :]
        given = tl.load(d_out + at, mask=tile, other=0.0).to(tl.float32)
        hidden = own[None, :] + tl.load(target + at, mask=tile, other=0.0).to(tl.float32)
        place = (head * nodes + other).to(tl.int64)
        known = tl.load(rows + 4 * place[:, None] + columns[None, :], mask=visible[:, None], other=0.0)
        scores = tl.sum(leaky(hidden, SLOPE) * direction[None, :], 1)
        weights = tl.where(visible, tl.exp(scores - column(known, columns, 0)), 0.0)
        used = weights
        if DROPOUT > 0:
            used = weights * kept(seed, head, edge, DROPOUT)
        due = used * tl.sum(given * own[None, :], 1) - weights * column(known, columns, 2)
        d_hidden = tl.where(hidden > 0, due[:, None], SLOPE * due[:, None]) * direction[None, :]
        d_own += tl.sum(used[:, None] * given + tl.where(tile, d_hidden, 0.0), 0)
    tl.store(d_values + row, d_own.to(d_values.dtype.element_ty), mask=dims_in)


@kernel
def dynamic_target_kernel(
    d_out, values, target, vector, starts, others, edges, seed, rows, d_target, d_vector,
    nodes, edge_count, HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr,
    LOOPS: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """GATv2: what a node is due as one that looks, and its share in the gradient of the vector."""
    node, head = tl.program_id(0), tl.program_id(1)
    dims = tl.arange(0, BLOCK_DIM)
    dims_in = dims < DIM
    row = (node.to(tl.int64) * HEADS + head) * DIM + dims
    own = tl.load(target + row, mask=dims_in, other=0.0).to(tl.float32)
    given = tl.load(d_out + row, mask=dims_in, other=0.0).to(tl.float32)
    direction = tl.load(vector + head * DIM + dims, mask=dims_in, other=0.0).to(tl.float32)
    place = 4 * (head * nodes + node).to(tl.int64)
    lse, delta = tl.load(rows + place), tl.load(rows + place + 2)
    d_own, d_direction, looped = tl.zeros([BLOCK_DIM], tl.float32), tl.zeros([BLOCK_DIM], tl.float32), 0
    end = tl.load(starts + node + 1)
    for start in range(tl.load(starts + node), end + LOOPS, BLOCK):
        slots = start + tl.arange(0, BLOCK)
        other, edge, visible, looped = neighbours_of(
            node, slots, end, others, edges, edge_count, looped, LOOPS, DROPOUT > 0
        )
        at = (other.to(tl.int64) * HEADS + head) * DIM
        seen = tl.load(values + at[:, None] + dims[None, :], mask=visible[:, None] & dims_in[None, :], other=0.0)
        seen = seen.to(tl.float32)
        hidden = seen + own[None, :]
        activated = leaky(hidden, SLOPE)
        weights = tl.where(visible, tl.exp(tl.sum(activated * direction[None, :], 1) - lse), 0.0)
        used = weights
        if DROPOUT > 0:
            used = weights * kept(seed, head, edge, DROPOUT)
        due = used * tl.sum(seen * given[None, :], 1) - weights * delta
        d_direction += tl.sum(due[:, None] * activated, 0)
        d_own += tl.sum(tl.where(hidden > 0, due[:, None], SLOPE * due[:, None]), 0)
    tl.store(d_target + row, (d_own * direction).to(d_target.dtype.element_ty), mask=dims_in)
    tl.store(d_vector + row, d_direction, mask=dims_in)
