"""Fused graph attention in Triton, GATv2, which scores an edge by vector · LeakyReLU(values_j + target_i + W f).

As in GAT (gpu_gat_kernels.py) a program has a node and a head. The backward pass goes over the edges twice: out of each
node for the gradient of its values, and into each node for its gradient as a target. The gradients of the edges'
features f and their projection W take a third pass, edge by edge.

`carried` holds the values that are mixed if they differ from those that are scored, as with dropout of values.
"""

import triton
import triton.language as tl

from jumok.attention.triton_launch import kernel
from jumok.graphs.gpu_tiles import (
    add_rows,
    kept,
    last_level,
    last_of,
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


@triton.jit
def with_features(
    hidden, place, visible, features, projection, head, dims, DIM: tl.constexpr, EDGE_WIDTH: tl.constexpr
):  # fmt: skip
    """The hidden layer of some edges, with W f added; W is [head, edge_width, dim]."""
    for k in tl.static_range(EDGE_WIDTH):
        feature = tl.load(features + place.to(tl.int64) * EDGE_WIDTH + k, mask=visible, other=0.0).to(tl.float32)
        hidden += feature[:, None] * load_row(projection + (head * EDGE_WIDTH + k) * DIM, dims, DIM)[None, :]
    return hidden


@kernel
def forward_kernel(
    values, carried, target, vector, features, projection, starts, ends, others, edges, long, seed, out, rows,
    nodes, edge_count,
    HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr, LOOPS: tl.constexpr,
    CARRIED: tl.constexpr, EDGE_WIDTH: tl.constexpr, LONG: tl.constexpr, APART: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The values of a node's neighbours, mixed by the softmax of their scores: one node, or the LONG ones."""
    if LONG:
        for number in range(tl.program_id(0), tl.load(long), tl.num_programs(0)):
            node = tl.load(long + 1 + number)
            mix(
                node, tl.load(starts + node), tl.load(starts + node + 1), tl.load(starts + node + 1) + LOOPS, values,
                carried, target, vector, features, projection,
                others, edges, seed, out, rows, nodes, edge_count,
                HEADS, DIM, SLOPE, DROPOUT, LOOPS, CARRIED, EDGE_WIDTH, True, WIDTH, BLOCK,
            )  # fmt: skip
    else:
        # Of long ones this has no edges; they come later.
        node = tl.program_id(0)
        mix(
            node, tl.load(starts + node), tl.load(ends + node), last_of(node, starts, ends, LOOPS), values, carried,
            target, vector, features, projection,
            others, edges, seed, out, rows, nodes, edge_count,
            HEADS, DIM, SLOPE, DROPOUT, LOOPS, CARRIED, EDGE_WIDTH, APART, WIDTH, BLOCK,
        )  # fmt: skip


@triton.jit
def mix(
    node, first, end, last, values, carried, target, vector, features, projection, others, edges, seed, out, rows,
    nodes, edge_count,
    HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr, LOOPS: tl.constexpr,
    CARRIED: tl.constexpr, EDGE_WIDTH: tl.constexpr, APART: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The output of one node; `rows` keeps its log-sum-exp."""
    head, dims = tl.program_id(1), tl.arange(0, WIDTH)
    row = (node.to(tl.int64) * HEADS + head) * DIM
    own, direction = load_row(target + row, dims, DIM), load_row(vector + head * DIM, dims, DIM)
    level, looped = no_level(BLOCK, APART), 0
    total, mixed = tl.zeros([BLOCK], tl.float32), no_rows(BLOCK, WIDTH, APART)
    for start in range(first, last, BLOCK):
        other, edge, place, visible, looped = neighbours_of(
            node, start + tl.arange(0, BLOCK), end, others, edges, edge_count, looped, LOOPS, DROPOUT > 0
        )
        offsets = (other.to(tl.int64) * HEADS + head) * DIM
        seen = load_rows(values, offsets, visible, dims, DIM)
        hidden = seen + own[None, :]
        hidden = with_features(hidden, place, visible, features, projection, head, dims, DIM, EDGE_WIDTH)
        slope = tl.where(hidden > 0, 1.0, SLOPE)
        score = tl.where(visible, tl.sum(hidden * slope * direction[None, :], 1), float("-inf"))
        level, old = next_level(level, score, APART)
        weights = tl.exp(score - tl.where(level == float("-inf"), 0.0, level))
        total = total * old + weights
        if DROPOUT > 0:
            weights *= kept(seed, head, edge, DROPOUT)
        if CARRIED:
            seen = load_rows(carried, offsets, visible, dims, DIM)
        mixed = add_rows(scaled(mixed, old, APART), weights[:, None] * seen, APART)
    level, old = last_level(level, APART)
    whole = tl.sum(total * old, 0)
    divisor = tl.where(whole == 0, 1.0, whole)
    store_row(out + row, sum_of_rows(scaled(mixed, old, APART), APART) / divisor, dims, DIM)
    # Of a node that sees nothing the weights, exp(score − lse), are 0.
    lse = tl.where(whole == 0, float("inf"), level + tl.log(divisor))
    tl.store(rows + 2 * (head.to(tl.int64) * nodes + node), lse)


@kernel
def source_kernel(
    d_out, values, carried, target, vector, features, projection, starts, ends, others, edges, long, seed, rows,
    d_values, d_carried,
    nodes, edge_count,
    HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr, LOOPS: tl.constexpr,
    CARRIED: tl.constexpr, EDGE_WIDTH: tl.constexpr, LONG: tl.constexpr, APART: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of a node's values, from all targets that attended to it: one node, or the LONG ones."""
    if LONG:
        for number in range(tl.program_id(0), tl.load(long), tl.num_programs(0)):
            node = tl.load(long + 1 + number)
            source_gradients(
                node, tl.load(starts + node), tl.load(starts + node + 1), tl.load(starts + node + 1) + LOOPS, d_out,
                values, carried, target, vector, features, projection,
                others, edges, seed, rows, d_values, d_carried, nodes, edge_count,
                HEADS, DIM, SLOPE, DROPOUT, LOOPS, CARRIED, EDGE_WIDTH, True, WIDTH, BLOCK,
            )  # fmt: skip
    else:
        # Of long ones this has no edges; they come later.
        node = tl.program_id(0)
        source_gradients(
            node, tl.load(starts + node), tl.load(ends + node), last_of(node, starts, ends, LOOPS), d_out, values,
            carried, target, vector, features, projection,
            others, edges, seed, rows, d_values, d_carried, nodes, edge_count,
            HEADS, DIM, SLOPE, DROPOUT, LOOPS, CARRIED, EDGE_WIDTH, APART, WIDTH, BLOCK,
        )  # fmt: skip


@triton.jit
def source_gradients(
    node, first, end, last, d_out, values, carried, target, vector, features, projection, others, edges, seed, rows,
    d_values, d_carried,
    nodes, edge_count,
    HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr, LOOPS: tl.constexpr,
    CARRIED: tl.constexpr, EDGE_WIDTH: tl.constexpr, APART: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One node's gradients."""
    head, dims = tl.program_id(1), tl.arange(0, WIDTH)
    row = (node.to(tl.int64) * HEADS + head) * DIM
    rows += head.to(tl.int64) * nodes
    own, direction = load_row(values + row, dims, DIM), load_row(vector + head * DIM, dims, DIM)
    own_carried = own
    if CARRIED:
        own_carried = load_row(carried + row, dims, DIM)
    mixed, sloped, looped = no_rows(BLOCK, WIDTH, APART), no_rows(BLOCK, WIDTH, APART), 0
    for start in range(first, last, BLOCK):
        other, edge, place, visible, looped = neighbours_of(
            node, start + tl.arange(0, BLOCK), end, others, edges, edge_count, looped, LOOPS, DROPOUT > 0
        )
        offsets = (other.to(tl.int64) * HEADS + head) * DIM
        seen, given = load_rows(target, offsets, visible, dims, DIM), load_rows(d_out, offsets, visible, dims, DIM)
        lse, delta = two_numbers(tl.load(rows + other, mask=visible, other=0))
        hidden = seen + own[None, :]
        hidden = with_features(hidden, place, visible, features, projection, head, dims, DIM, EDGE_WIDTH)
        slope = tl.where(hidden > 0, 1.0, SLOPE)
        weights = tl.where(visible, tl.exp(tl.sum(hidden * slope * direction[None, :], 1) - lse), 0.0)
        used = weights
        if DROPOUT > 0:
            used = weights * kept(seed, head, edge, DROPOUT)
        matched = tl.sum(given * own_carried[None, :], 1)
        due = tl.where(visible, used * matched - weights * delta, 0.0)
        mixed = add_rows(mixed, used[:, None] * given, APART)
        sloped = add_rows(sloped, due[:, None] * slope, APART)
    d_own, d_scored = sum_of_rows(mixed, APART), sum_of_rows(sloped, APART) * direction
    if CARRIED:
        store_row(d_carried + row, d_own, dims, DIM)
        store_row(d_values + row, d_scored, dims, DIM)
    else:
        store_row(d_values + row, d_own + d_scored, dims, DIM)


@kernel
def target_kernel(
    d_out, values, carried, target, vector, features, projection, starts, ends, others, edges, long, seed, rows,
    d_target, d_vector,
    nodes, edge_count,
    HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr, LOOPS: tl.constexpr,
    CARRIED: tl.constexpr, EDGE_WIDTH: tl.constexpr, LONG: tl.constexpr, APART: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of a node as a target, and its share of the vector's gradient: one node, or the LONG ones."""
    if LONG:
        for number in range(tl.program_id(0), tl.load(long), tl.num_programs(0)):
            node = tl.load(long + 1 + number)
            target_gradients(
                node, tl.load(starts + node), tl.load(starts + node + 1), tl.load(starts + node + 1) + LOOPS, d_out,
                values, carried, target, vector, features, projection,
                others, edges, seed, rows, d_target, d_vector, nodes, edge_count,
                HEADS, DIM, SLOPE, DROPOUT, LOOPS, CARRIED, EDGE_WIDTH, True, WIDTH, BLOCK,
            )  # fmt: skip
    else:
        # Of long ones this has no edges; they come later.
        node = tl.program_id(0)
        target_gradients(
            node, tl.load(starts + node), tl.load(ends + node), last_of(node, starts, ends, LOOPS), d_out, values,
            carried, target, vector, features, projection,
            others, edges, seed, rows, d_target, d_vector, nodes, edge_count,
            HEADS, DIM, SLOPE, DROPOUT, LOOPS, CARRIED, EDGE_WIDTH, APART, WIDTH, BLOCK,
        )  # fmt: skip


@triton.jit
def target_gradients(
    node, first, end, last, d_out, values, carried, target, vector, features, projection, others, edges, seed, rows,
    d_target, d_vector,
    nodes, edge_count,
    HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr, LOOPS: tl.constexpr,
    CARRIED: tl.constexpr, EDGE_WIDTH: tl.constexpr, APART: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One node's gradients."""
    head, dims = tl.program_id(1), tl.arange(0, WIDTH)
    row = (node.to(tl.int64) * HEADS + head) * DIM
    own, given = load_row(target + row, dims, DIM), load_row(d_out + row, dims, DIM)
    direction = load_row(vector + head * DIM, dims, DIM)
    lse, delta = two_numbers(tl.load(rows + head.to(tl.int64) * nodes + node))
    along, sloped, looped = no_rows(BLOCK, WIDTH, APART), no_rows(BLOCK, WIDTH, APART), 0
    for start in range(first, last, BLOCK):
        other, edge, place, visible, looped = neighbours_of(
            node, start + tl.arange(0, BLOCK), end, others, edges, edge_count, looped, LOOPS, DROPOUT > 0
        )
        offsets = (other.to(tl.int64) * HEADS + head) * DIM
        seen = load_rows(values, offsets, visible, dims, DIM)
        hidden = seen + own[None, :]
        hidden = with_features(hidden, place, visible, features, projection, head, dims, DIM, EDGE_WIDTH)
        slope = tl.where(hidden > 0, 1.0, SLOPE)
        activated = hidden * slope
        if CARRIED:
            seen = load_rows(carried, offsets, visible, dims, DIM)
        weights = tl.exp(tl.sum(activated * direction[None, :], 1) - lse)
        used = weights
        if DROPOUT > 0:
            used = weights * kept(seed, head, edge, DROPOUT)
        due = tl.where(visible, used * tl.sum(seen * given[None, :], 1) - weights * delta, 0.0)
        along = add_rows(along, due[:, None] * activated, APART)
        sloped = add_rows(sloped, due[:, None] * slope, APART)
    store_row(d_target + row, sum_of_rows(sloped, APART) * direction, dims, DIM)
    store_row(d_vector + row, sum_of_rows(along, APART), dims, DIM)


@kernel
def edge_kernel(
    d_out, values, carried, target, vector, features, projection, sources, targets, hidden_loops, seed, rows,
    d_features, d_projection, nodes, edge_count, count, each,
    HEADS: tl.constexpr, DIM: tl.constexpr, SLOPE: tl.constexpr, DROPOUT: tl.constexpr, LOOPS: tl.constexpr,
    CARRIED: tl.constexpr, EDGE_WIDTH: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK_WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of the features of `each` edges, over all heads, and their share of the projection's gradient."""
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
            hidden = with_features(seen + own, edge, visible, features, projection, head, dims, DIM, EDGE_WIDTH)
            rise = tl.where(hidden > 0, 1.0, SLOPE)
            if CARRIED:
                seen = tl.load(carried + from_, mask=tile, other=0.0).to(tl.float32)
            weights = tl.exp(tl.sum(hidden * rise * direction[None, :], 1) - lse)
            used = weights
            if DROPOUT > 0:
                used = weights * kept(seed, head, edge, DROPOUT)
            due = tl.where(visible, used * tl.sum(seen * given, 1) - weights * delta, 0.0)
            d_hidden = tl.where(visible[:, None], due[:, None] * rise * direction[None, :], 0.0)
            offsets = edge.to(tl.int64)[:, None] * EDGE_WIDTH + widths[None, :]
            inside = visible[:, None] & widths_in[None, :]
            feature = tl.load(features + offsets, mask=inside, other=0.0).to(tl.float32)
            d_weight = tl.dot(tl.trans(d_hidden), feature, d_weight, input_precision="ieee")
            d_feature = tl.dot(d_hidden, weight, input_precision="ieee")
            kept_so_far = tl.load(d_features + offsets, mask=inside & (head > 0), other=0.0)
            tl.store(d_features + offsets, d_feature + kept_so_far, mask=there[:, None] & widths_in[None, :])
        tl.debug_barrier()  # the next head adds to what other threads have written
        out = d_projection + tl.program_id(0).to(tl.int64) * (HEADS * EDGE_WIDTH * DIM) + along
        tl.store(out, d_weight, mask=both_in)
