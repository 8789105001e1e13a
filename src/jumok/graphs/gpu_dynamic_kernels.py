"""Fused graph attention in Triton, GATv2, which scores an edge by vector · LeakyReLU(values_j + target_i + W f).

As in GAT (gpu_kernels.py) a program has a node and a head. The backward pass goes over the edges twice: out of each node
for what its values are due, and into each node for what it is due as one that looks. The gradients of the edges'
features f and their projection W take a third pass, edge by edge.

`carried` is what is mixed if that is not what is scored: values of which dropout has taken a part.
"""

import triton
import triton.language as tl

from jumok.attention.triton_launch import kernel
from jumok.graphs.gpu_kernels import edges_of, kept, neighbours_of, two_numbers


@triton.jit
def hidden_of(hidden, edge, visible, features, projection, head, dims, DIM: tl.constexpr, EDGE_WIDTH: tl.constexpr):
    """The hidden layer of some edges, with W f added; W is [head, edge_width, dim]."""
    for k in tl.static_range(EDGE_WIDTH):
        feature = tl.load(features + edge.to(tl.int64) * EDGE_WIDTH + k, mask=visible, other=0.0).to(tl.float32)
        along = tl.load(projection + (head * EDGE_WIDTH + k) * DIM + dims, mask=dims < DIM, other=0.0).to(tl.float32)
        hidden += feature[:, None] * along[None, :]
    return hidden


@kernel
def forward_kernel(
    values, carried, target, vector, features, projection, starts, others, edges, long, seed, out, rows,
    nodes, edge_count, HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr,
    LOOPS: tl.constexpr, CARRIED: tl.constexpr, EDGE_WIDTH: tl.constexpr, LONGEST: tl.constexpr, LONG: tl.constexpr,
    BLOCK_DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The values of a node's neighbours, mixed by the softmax of their scores: of one node, or of those LONG ones."""
    if LONG:
        for number in range(tl.program_id(0), tl.load(long), tl.num_programs(0)):
            mix(
                tl.load(long + 1 + number), values, carried, target, vector, features, projection, starts, others,
                edges, seed, out, rows, nodes, edge_count,
                HEADS, DIM, SLOPE, DROPOUT, LOOPS, CARRIED, EDGE_WIDTH, BLOCK_DIM, BLOCK,
            )  # fmt: skip
    else:
        node = tl.program_id(0)
        if tl.load(starts + node + 1) - tl.load(starts + node) <= LONGEST:
            mix(
                node, values, carried, target, vector, features, projection, starts, others,
                edges, seed, out, rows, nodes, edge_count,
                HEADS, DIM, SLOPE, DROPOUT, LOOPS, CARRIED, EDGE_WIDTH, BLOCK_DIM, BLOCK,
            )  # fmt: skip


@triton.jit
def mix(
    node, values, carried, target, vector, features, projection, starts, others, edges, seed, out, rows,
    nodes, edge_count, HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr,
    LOOPS: tl.constexpr, CARRIED: tl.constexpr, EDGE_WIDTH: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One node's answer; `rows` keeps its log-sum-exp."""
    head = tl.program_id(1)
    dims = tl.arange(0, BLOCK_DIM)
    dims_in = dims < DIM
    row = (node.to(tl.int64) * HEADS + head) * DIM + dims
    own = tl.load(target + row, mask=dims_in, other=0.0).to(tl.float32)
    direction = tl.load(vector + head * DIM + dims, mask=dims_in, other=0.0).to(tl.float32)
    highest, looped = float("-inf"), 0
    total, mixed = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK, BLOCK_DIM], tl.float32)
    first, end, last = edges_of(node, starts, LOOPS)
    for start in range(first, last, BLOCK):
        other, edge, visible, looped = neighbours_of(
            node, start + tl.arange(0, BLOCK), end, others, edges, edge_count, looped, LOOPS,
            EDGE_WIDTH > 0 or DROPOUT > 0,
        )  # fmt: skip
        tile = visible[:, None] & dims_in[None, :]
        at = ((other.to(tl.int64) * HEADS + head) * DIM)[:, None] + dims[None, :]
        seen = tl.load(values + at, mask=tile, other=0.0).to(tl.float32)
        hidden = hidden_of(seen + own[None, :], edge, visible, features, projection, head, dims, DIM, EDGE_WIDTH)
        score = tl.sum(hidden * tl.where(hidden > 0, 1.0, SLOPE) * direction[None, :], 1)
        score = tl.where(visible, score, float("-inf"))
        higher = tl.maximum(highest, tl.max(score, 0))
        level = tl.where(higher == float("-inf"), 0.0, higher)
        old, weights = tl.exp(highest - level), tl.exp(score - level)
        highest, total = higher, total * old + weights
        if DROPOUT > 0:
            weights *= kept(seed, head, edge, DROPOUT)
        if CARRIED:
            seen = tl.load(carried + at, mask=tile, other=0.0).to(tl.float32)
        mixed = mixed * old + weights[:, None] * seen
    whole = tl.sum(total, 0)
    divisor = tl.where(whole == 0, 1.0, whole)
    tl.store(out + row, (tl.sum(mixed, 0) / divisor).to(out.dtype.element_ty), mask=dims_in)
    # Of a node that sees nothing the weights, exp(score − lse), are 0.
    lse = tl.where(whole == 0, float("inf"), highest + tl.log(divisor))
    tl.store(rows + 2 * (head.to(tl.int64) * nodes + node), lse)


@kernel
def source_kernel(
    d_out, values, carried, target, vector, features, projection, starts, others, edges, long, seed, rows,
    d_values, d_carried, nodes, edge_count,
    HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr,
    LOOPS: tl.constexpr, CARRIED: tl.constexpr, EDGE_WIDTH: tl.constexpr, LONGEST: tl.constexpr, LONG: tl.constexpr,
    BLOCK_DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What a node's values are due, from all that saw it: of one node, or of those LONG ones."""
    if LONG:
        for number in range(tl.program_id(0), tl.load(long), tl.num_programs(0)):
            source_gradients(
                tl.load(long + 1 + number), d_out, values, carried, target, vector, features, projection, starts,
                others, edges, seed, rows, d_values, d_carried, nodes, edge_count,
                HEADS, DIM, SLOPE, DROPOUT, LOOPS, CARRIED, EDGE_WIDTH, BLOCK_DIM, BLOCK,
            )  # fmt: skip
    else:
        node = tl.program_id(0)
        if tl.load(starts + node + 1) - tl.load(starts + node) <= LONGEST:
            source_gradients(
                node, d_out, values, carried, target, vector, features, projection, starts,
                others, edges, seed, rows, d_values, d_carried, nodes, edge_count,
                HEADS, DIM, SLOPE, DROPOUT, LOOPS, CARRIED, EDGE_WIDTH, BLOCK_DIM, BLOCK,
            )  # fmt: skip


@triton.jit
def source_gradients(
    node, d_out, values, carried, target, vector, features, projection, starts, others, edges, seed, rows,
    d_values, d_carried, nodes, edge_count,
    HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr,
    LOOPS: tl.constexpr, CARRIED: tl.constexpr, EDGE_WIDTH: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One node's gradients."""
    head = tl.program_id(1)
    dims = tl.arange(0, BLOCK_DIM)
    dims_in = dims < DIM
    row = (node.to(tl.int64) * HEADS + head) * DIM + dims
    rows += head.to(tl.int64) * nodes
    own = tl.load(values + row, mask=dims_in, other=0.0).to(tl.float32)
    own_carried = own
    if CARRIED:
        own_carried = tl.load(carried + row, mask=dims_in, other=0.0).to(tl.float32)
    direction = tl.load(vector + head * DIM + dims, mask=dims_in, other=0.0).to(tl.float32)
    mixed, risen, looped = tl.zeros([BLOCK, BLOCK_DIM], tl.float32), tl.zeros([BLOCK, BLOCK_DIM], tl.float32), 0
    first, end, last = edges_of(node, starts, LOOPS)
    for start in range(first, last, BLOCK):
        other, edge, visible, looped = neighbours_of(
            node, start + tl.arange(0, BLOCK), end, others, edges, edge_count, looped, LOOPS,
            EDGE_WIDTH > 0 or DROPOUT > 0,
        )  # fmt: skip
        tile = visible[:, None] & dims_in[None, :]
        at = ((other.to(tl.int64) * HEADS + head) * DIM)[:, None] + dims[None, :]
        seen = tl.load(target + at, mask=tile, other=0.0).to(tl.float32)
        given = tl.load(d_out + at, mask=tile, other=0.0).to(tl.float32)
        lse, delta = two_numbers(tl.load(rows + other, mask=visible, other=0))
        hidden = hidden_of(seen + own[None, :], edge, visible, features, projection, head, dims, DIM, EDGE_WIDTH)
        rise = tl.where(hidden > 0, 1.0, SLOPE)
        score = tl.sum(hidden * rise * direction[None, :], 1)
        matched = tl.sum(given * own_carried[None, :], 1)
        weights = tl.where(visible, tl.exp(score - lse), 0.0)
        used = weights
        if DROPOUT > 0:
            used = weights * kept(seed, head, edge, DROPOUT)
        due = tl.where(visible, used * matched - weights * delta, 0.0)
        mixed += used[:, None] * given
        risen += due[:, None] * rise
    d_own, d_scored = tl.sum(mixed, 0), tl.sum(risen, 0) * direction
    if CARRIED:
        tl.store(d_carried + row, d_own.to(d_carried.dtype.element_ty), mask=dims_in)
        tl.store(d_values + row, d_scored.to(d_values.dtype.element_ty), mask=dims_in)
    else:
        tl.store(d_values + row, (d_own + d_scored).to(d_values.dtype.element_ty), mask=dims_in)


@kernel
def target_kernel(
    d_out, values, carried, target, vector, features, projection, starts, others, edges, long, seed, rows,
    d_target, d_vector, nodes, edge_count,
    HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr,
    LOOPS: tl.constexpr, CARRIED: tl.constexpr, EDGE_WIDTH: tl.constexpr, LONGEST: tl.constexpr, LONG: tl.constexpr,
    BLOCK_DIM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """What a node is due as one that looks, and its share in the vector's gradient: one node, or those LONG ones."""
    if LONG:
        for number in range(tl.program_id(0), tl.load(long), tl.num_programs(0)):
            target_gradients(
                tl.load(long + 1 + number), d_out, values, carried, target, vector, features, projection, starts,
                others, edges, seed, rows, d_target, d_vector, nodes, edge_count,
                HEADS, DIM, SLOPE, DROPOUT, LOOPS, CARRIED, EDGE_WIDTH, BLOCK_DIM, BLOCK,
            )  # fmt: skip
    else:
        node = tl.program_id(0)
        if tl.load(starts + node + 1) - tl.load(starts + node) <= LONGEST:
            target_gradients(
                node, d_out, values, carried, target, vector, features, projection, starts,
                others, edges, seed, rows, d_target, d_vector, nodes, edge_count,
                HEADS, DIM, SLOPE, DROPOUT, LOOPS, CARRIED, EDGE_WIDTH, BLOCK_DIM, BLOCK,
            )  # fmt: skip


@triton.jit
def target_gradients(
    node, d_out, values, carried, target, vector, features, projection, starts, others, edges, seed, rows,
    d_target, d_vector, nodes, edge_count,
    HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr,
    LOOPS: tl.constexpr, CARRIED: tl.constexpr, EDGE_WIDTH: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One node's gradients."""
    head = tl.program_id(1)
    dims = tl.arange(0, BLOCK_DIM)
    dims_in = dims < DIM
    row = (node.to(tl.int64) * HEADS + head) * DIM + dims
    own = tl.load(target + row, mask=dims_in, other=0.0).to(tl.float32)
    given = tl.load(d_out + row, mask=dims_in, other=0.0).to(tl.float32)
    direction = tl.load(vector + head * DIM + dims, mask=dims_in, other=0.0).to(tl.float32)
    lse, delta = two_numbers(tl.load(rows + head.to(tl.int64) * nodes + node))
    along, risen, looped = tl.zeros([BLOCK, BLOCK_DIM], tl.float32), tl.zeros([BLOCK, BLOCK_DIM], tl.float32), 0
    first, end, last = edges_of(node, starts, LOOPS)
    for start in range(first, last, BLOCK):
        other, edge, visible, looped = neighbours_of(
            node, start + tl.arange(0, BLOCK), end, others, edges, edge_count, looped, LOOPS,
            EDGE_WIDTH > 0 or DROPOUT > 0,
        )  # fmt: skip
        tile = visible[:, None] & dims_in[None, :]
        at = ((other.to(tl.int64) * HEADS + head) * DIM)[:, None] + dims[None, :]
        seen = tl.load(values + at, mask=tile, other=0.0).to(tl.float32)
        hidden = hidden_of(seen + own[None, :], edge, visible, features, projection, head, dims, DIM, EDGE_WIDTH)
        rise = tl.where(hidden > 0, 1.0, SLOPE)
        activated = hidden * rise
        if CARRIED:
            seen = tl.load(carried + at, mask=tile, other=0.0).to(tl.float32)
        weights = tl.exp(tl.sum(activated * direction[None, :], 1) - lse)
        used = weights
        if DROPOUT > 0:
            used = weights * kept(seed, head, edge, DROPOUT)
        due = tl.where(visible, used * tl.sum(seen * given[None, :], 1) - weights * delta, 0.0)
        along += due[:, None] * activated
        risen += due[:, None] * rise
    tl.store(d_target + row, (tl.sum(risen, 0) * direction).to(d_target.dtype.element_ty), mask=dims_in)
    tl.store(d_vector + row, tl.sum(along, 0), mask=dims_in)


@kernel
def edge_kernel(
    d_out, values, carried, target, vector, features, projection, sources, targets, hidden_loops, seed, rows,
    d_features, d_projection, nodes, edge_count, count, each,
    HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr, LOOPS: tl.constexpr,
    CARRIED: tl.constexpr, EDGE_WIDTH: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """What the features of `each` edges are due, from all heads, and their share in the projection's gradient."""
    dims, widths = tl.arange(0, BLOCK_DIM), tl.arange(0, BLOCK_WIDTH)
    dims_in, widths_in = dims < DIM, widths < EDGE_WIDTH
    begin = tl.program_id(0) * each
    for head in range(HEADS):
        direction = tl.load(vector + head * DIM + dims, mask=dims_in, other=0.0).to(tl.float32)
        both_in = dims_in[:, None] & widths_in[None, :]
        along = (head * EDGE_WIDTH + widths)[None, :] * DIM + dims[:, None]
        weight = tl.load(projection + along, mask=both_in, other=0.0).to(tl.float32)
        d_weight = tl.zeros([BLOCK_DIM, BLOCK_WIDTH], tl.float32)
        for start in range(begin, tl.minimum(begin + each, count), BLOCK):
            edge = start + tl.arange(0, BLOCK)
            given_edge, there = edge < edge_count, edge < count
            source = tl.load(sources + edge, mask=given_edge, other=0)
            looks = tl.load(targets + edge, mask=given_edge, other=0)
            visible = given_edge
            if LOOPS:
                loop = edge - edge_count
                added = there & (edge >= edge_count)
                source, looks = tl.where(added, loop, source), tl.where(added, loop, looks)
                visible = visible | (added & (tl.load(hidden_loops + loop, mask=added, other=1) == 0))
            tile = visible[:, None] & dims_in[None, :]
            from_ = ((source.to(tl.int64) * HEADS + head) * DIM)[:, None] + dims[None, :]
            to = ((looks.to(tl.int64) * HEADS + head) * DIM)[:, None] + dims[None, :]
            seen = tl.load(values + from_, mask=tile, other=0.0).to(tl.float32)
            own = tl.load(target + to, mask=tile, other=0.0).to(tl.float32)
            given = tl.load(d_out + to, mask=tile, other=0.0).to(tl.float32)
            lse, delta = two_numbers(tl.load(rows + head * nodes + looks, mask=visible, other=0))
            hidden = hidden_of(seen + own, edge, visible, features, projection, head, dims, DIM, EDGE_WIDTH)
            rise = tl.where(hidden > 0, 1.0, SLOPE)
            if CARRIED:
                seen = tl.load(carried + from_, mask=tile, other=0.0).to(tl.float32)
            weights = tl.exp(tl.sum(hidden * rise * direction[None, :], 1) - lse)
            used = weights
            if DROPOUT > 0:
                used = weights * kept(seed, head, edge, DROPOUT)
            due = tl.where(visible, used * tl.sum(seen * given, 1) - weights * delta, 0.0)
            d_hidden = tl.where(visible[:, None], due[:, None] * rise * direction[None, :], 0.0)
            at = edge.to(tl.int64)[:, None] * EDGE_WIDTH + widths[None, :]
            inside = visible[:, None] & widths_in[None, :]
            feature = tl.load(features + at, mask=inside, other=0.0).to(tl.float32)
            d_weight = tl.dot(tl.trans(d_hidden), feature, d_weight, input_precision="ieee")
            d_feature = tl.dot(d_hidden, weight, input_precision="ieee")
            kept_so_far = tl.load(d_features + at, mask=inside & (head > 0), other=0.0)
            tl.store(d_features + at, d_feature + kept_so_far, mask=there[:, None] & widths_in[None, :])
        tl.debug_barrier()  # the next head adds to what other threads have written
        out = d_projection + tl.program_id(0).to(tl.int64) * (HEADS * EDGE_WIDTH * DIM) + along
        tl.store(out, d_weight, mask=both_in)
