"""Attention of one decoding step: a query of every hypothesis to its own past, and to its source.

Hypotheses of a beam share their past. Keys and values stay where the step that made them wrote them; the table
`ancestry` says which hypothesis of each earlier step a hypothesis descends from, so a new beam moves no keys.
"""

import triton.language as tl

from jumok.attention.triton_launch import kernel


@kernel(any_number=("beam", "capacity"))
def own_step_kernel(
    query, key, value, keys, values, ancestry, positions, out, query_row, key_row, value_row, beam, capacity,
    SCALE: tl.constexpr, DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, HEADS: tl.constexpr, KEY_HEADS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One head of one hypothesis: add its key and value to the cache, attend to them and to those of its ancestors."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    sentence, shared = row // beam, head // (HEADS // KEY_HEADS)
    now = tl.load(positions + sentence).to(tl.int32)
    dim = tl.arange(0, BLOCK_DIM)
    inside = dim < DIM
    q = tl.load(query + row * query_row + head * DIM + dim, mask=inside, other=0.0).to(tl.float32) * SCALE
    own_key = tl.load(key + row * key_row + shared * DIM + dim, mask=inside, other=0.0)
    own_value = tl.load(value + row * value_row + shared * DIM + dim, mask=inside, other=0.0)
    width = KEY_HEADS * DIM
    table = sentence * capacity * beam  # rows of the cache before this sentence's
    newest = (table + now * beam + row % beam) * width + shared * DIM + dim
    writes = inside & (head % (HEADS // KEY_HEADS) == 0)
    tl.store(keys + newest, own_key, mask=writes)
    tl.store(values + newest, own_value, mask=writes)
    top = tl.sum(q * own_key.to(tl.float32), 0)
    total = top * 0.0 + 1.0
    mixed = own_value.to(tl.float32)
    for start in range(0, now, BLOCK):
        step = start + tl.arange(0, BLOCK)
        past = step < now
        ancestor = tl.load(ancestry + row * capacity + step, mask=past, other=0)
        place = (table + step * beam + ancestor)[:, None] * width + (shared * DIM + dim)[None]
        there = past[:, None] & inside[None]
        k = tl.load(keys + place, mask=there, other=0.0)
        v = tl.load(values + place, mask=there, other=0.0)  # both on their way before either is needed
        score = tl.sum(k.to(tl.float32) * q[None], 1)
        score = tl.where(past, score, float("-inf"))
        higher = tl.maximum(top, tl.max(score, 0))
        weight = tl.exp(score - higher)
        fade = tl.exp(top - higher)
        mixed = mixed * fade + tl.sum(weight[:, None] * v.to(tl.float32), 0)
        total = total * fade + tl.sum(weight, 0)
        top = higher
    tl.store(out + (row * HEADS + head) * DIM + dim, mixed / total, mask=inside)


@kernel(any_number=("beam", "source"))
def source_step_kernel(
    query, keys, values, visible, lengths, out, query_row, key_sentence, key_row, value_sentence, value_row, beam,
    source, SCALE: tl.constexpr, DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, HEADS: tl.constexpr,
    KEY_HEADS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One head of up to ROWS hypotheses of a sentence; zeros for a sentence without a visible source."""
    sentence, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    hypothesis = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    shared = head // (HEADS // KEY_HEADS)
    dim = tl.arange(0, BLOCK_DIM)
    inside = (hypothesis < beam)[:, None] & (dim < DIM)[None]
    row = sentence * beam + hypothesis
    q = tl.load(query + row[:, None] * query_row + (head * DIM + dim)[None], mask=inside, other=0.0)
    keys += sentence * key_sentence + shared * DIM
    values += sentence * value_sentence + shared * DIM
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, BLOCK_DIM), tl.float32)
    for start in range(0, tl.load(lengths + sentence).to(tl.int32), BLOCK):
        item = start + tl.arange(0, BLOCK)
        seen = tl.load(visible + sentence * source + item, mask=item < source, other=0) != 0
        there = seen[:, None] & (dim < DIM)[None]
        k = tl.load(keys + item[:, None] * key_row + dim[None], mask=there, other=0.0)
        v = tl.load(values + item[:, None] * value_row + dim[None], mask=there, other=0.0)
        score = tl.dot(q, tl.trans(k), input_precision=PRECISION) * SCALE
        score = tl.where(seen[None], score, float("-inf"))
        higher = tl.maximum(top, tl.max(score, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weight = tl.exp(score - base[:, None])
        fade = tl.exp(top - base)
        mixed = mixed * fade[:, None] + tl.dot(weight.to(v.dtype), v, input_precision=PRECISION)
        total = total * fade + tl.sum(weight, 1)
        top = higher
    averages = mixed / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(out + (row[:, None] * HEADS + head) * DIM + dim[None], averages, mask=inside)


@kernel(any_number=("capacity",))
def descend_kernel(
    ancestry, parents, positions, capacity, BEAM: tl.constexpr, BEAMS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The ancestors of the hypotheses of one sentence, from those of their parents; each is its own at this step."""
    sentence = tl.program_id(0).to(tl.int64)
    now = tl.load(positions + sentence).to(tl.int32)
    hypothesis = tl.arange(0, BEAMS)
    real = hypothesis < BEAM
    parent = tl.load(parents + sentence * BEAM + hypothesis, mask=real, other=0)
    ancestry += sentence * BEAM * capacity
    for start in range(0, now + 1, BLOCK):
        step = start + tl.arange(0, BLOCK)
        past = real[:, None] & (step < now)[None]
        ancestor = tl.load(ancestry + parent[:, None] * capacity + step[None], mask=past, other=0)
        ancestor = tl.where((step == now)[None], hypothesis[:, None], ancestor)
        tl.debug_barrier()  # all are read before any is written
        there = real[:, None] & (step <= now)[None]
        tl.store(ancestry + hypothesis[:, None] * capacity + step[None], ancestor, mask=there)


@kernel
def embed_kernel(tokens, positions, table, added, out, BEAM: tl.constexpr, FACTOR: tl.constexpr, WIDTH: tl.constexpr,
                 BLOCK: tl.constexpr):  # fmt: skip
    """The vector of one token times a factor, and that of its position."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    token, now = tl.load(tokens + row), tl.load(positions + row // BEAM)
    vector = tl.load(table + token * WIDTH + column, mask=inside, other=0.0).to(tl.float32) * FACTOR
    vector += tl.load(added + now * WIDTH + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * WIDTH + column, vector, mask=inside)
