"""What makes PyTorch's causal kernel exact: a look at its results, and a careful computation where it is needed.

Every key is visible to the last row, and the first key to every row. So a key or value that is not finite shows in
the last row of the result and of the queries' gradient, and such a query in the gradients of the first key and value.
One program per head looks there. Only in a head that shows such a number are all rows computed again, so that it
reaches the rows that see it and no other.
"""

import triton.language as tl

from jumok.attention.flash.backward_kernels import key_block, query_block
from jumok.attention.flash.forward_kernels import careful
from jumok.attention.flash.tile_kernels import CAREFUL, NUMBERS, any_nonfinite, cleaned, finite, load_rows, store_rows
from jumok.attention.triton_launch import kernel


@kernel(any_number=NUMBERS)
def causal_repair_kernel(
    query, key, value, out, query_batch, query_head, query_row, key_batch, key_head, key_row, value_batch, value_head,
    value_row, out_batch, out_head, out_row, heads, time, SCALE: tl.constexpr, DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute a head again if the last row of its output is not finite."""
    plane = tl.program_id(0)
    batch, head = (plane // heads).to(tl.int64), (plane % heads).to(tl.int64)
    out += batch * out_batch + head * out_head
    if any_nonfinite(load_rows(out, time - 1 + tl.arange(0, 1), out_row, DIM, BLOCK_DIM)):
        query += batch * query_batch + head * query_head
        key += batch * key_batch + head * key_head
        value += batch * value_batch + head * value_head
        for tile in range((time + ROWS - 1) // ROWS):
            rows = tile * ROWS + tl.arange(0, ROWS)
            real = tl.minimum(rows, time - 1)
            q = load_rows(query, real, query_row, DIM, BLOCK_DIM)
            mixed, _ = careful(
                q, key, value, real, 0, tl.zeros_like(real), real + 1, tl.minimum((tile + 1) * ROWS, time), key_row,
                value_row, out, 0, 0, 0.0, out, 0, 0, 0, 0.0, out, plane, SCALE, DIM, DIM, BLOCK_DIM, BLOCK_DIM, ROWS,
                CAREFUL, 0, 0.0, False, False, False, 0.0, PRECISION,
            )  # fmt: skip
            store_rows(out, rows, out_row, mixed, time, DIM, BLOCK_DIM)


@kernel(any_number=NUMBERS)
def causal_gradient_repair_kernel(
    query, key, value, d_out, d_query, d_key, d_value, room, query_batch, query_head, query_row, key_batch, key_head,
    key_row, value_batch, value_head, value_row, d_out_batch, d_out_head, d_out_row, d_query_batch, d_query_head,
    d_query_row, d_key_batch, d_key_head, d_key_row, d_value_batch, d_value_head, d_value_row, heads, time,
    SCALE: tl.constexpr, DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of a head again if something in it is not finite; `room` is for its log-sum-exp and δ."""
    plane = tl.program_id(0)
    batch, head = (plane // heads).to(tl.int64), (plane % heads).to(tl.int64)
    d_query += batch * d_query_batch + head * d_query_head
    d_key += batch * d_key_batch + head * d_key_head
    d_value += batch * d_value_batch + head * d_value_head
    last = time - 1 + tl.arange(0, 1)
    sound = finite(load_rows(d_query, last, d_query_row, DIM, BLOCK_DIM))
    sound = sound & finite(load_rows(d_key, tl.arange(0, 1), d_key_row, DIM, BLOCK_DIM))
    sound = sound & finite(load_rows(d_value, tl.arange(0, 1), d_value_row, DIM, BLOCK_DIM))
    if tl.min(tl.min(sound.to(tl.int32), 1), 0) == 0:
        query += batch * query_batch + head * query_head
        key += batch * key_batch + head * key_head
        value += batch * value_batch + head * value_head
        d_out += batch * d_out_batch + head * d_out_head
        lse = room + plane.to(tl.int64) * time
        delta = lse + tl.num_programs(0).to(tl.int64) * time
        for tile in range((time + ROWS - 1) // ROWS):
            rows = tile * ROWS + tl.arange(0, ROWS)
            real = tl.minimum(rows, time - 1)
            first, stop = tl.zeros_like(real), tl.minimum((tile + 1) * ROWS, time)
            q = load_rows(query, real, query_row, DIM, BLOCK_DIM)
            do = load_rows(d_out, real, d_out_row, DIM, BLOCK_DIM)
            mixed, logarithm = careful(
                q, key, value, real, 0, first, real + 1, stop, key_row, value_row, query, 0, 0, 0.0, query, 0, 0, 0,
                0.0, query, plane, SCALE, DIM, DIM, BLOCK_DIM, BLOCK_DIM, ROWS, CAREFUL, 0, 0.0, False, False, False,
                0.0, PRECISION,
            )  # fmt: skip
            change = tl.sum(mixed * do.to(tl.float32), 1)
            tl.store(lse + rows, logarithm, mask=rows < time)
            tl.store(delta + rows, change, mask=rows < time)
            do = tl.where((logarithm == logarithm)[:, None], do, tl.zeros_like(do))
            dq = tl.zeros([ROWS, BLOCK_DIM], tl.float32)
            for offset in range(0, stop, CAREFUL):
                dq = query_block(
                    dq, q, do, logarithm, change, key, value, real, offset, first, real + 1, stop, key_row, value_row,
                    query, 0, 0, 0.0, query, 0, 0, 0, query, plane, SCALE, DIM, DIM, BLOCK_DIM, BLOCK_DIM, CAREFUL, 0,
                    0.0, False, False, 0.0, PRECISION, True, True, True, True,
                )  # fmt: skip
            store_rows(d_query, rows, d_query_row, dq * SCALE, time, DIM, BLOCK_DIM)
        tl.debug_barrier()  # all threads see lse and delta
        for tile in range((time + ROWS - 1) // ROWS):
            cols = tile * ROWS + tl.arange(0, ROWS)
            real = tl.minimum(cols, time - 1)
            k = load_rows(key, real, key_row, DIM, BLOCK_DIM)
            v = cleaned(load_rows(value, real, value_row, DIM, BLOCK_DIM))
            dk = tl.zeros([ROWS, BLOCK_DIM], tl.float32)
            dv = tl.zeros([ROWS, BLOCK_DIM], tl.float32)
            for offset in range(tile * ROWS, time, CAREFUL):
                dk, dv = key_block(
                    dk, dv, k, v, query, d_out, lse, delta, real, offset, real, tl.zeros_like(real) + time, time,
                    query_row, d_out_row, query, 0, 0, 0.0, query, 0, 0, 0, query, plane, SCALE, DIM, DIM, BLOCK_DIM,
                    BLOCK_DIM, CAREFUL, 0, 0.0, False, False, 0.0, PRECISION, True, True, True, True,
                )  # fmt: skip
            store_rows(d_key, cols, d_key_row, dk * SCALE, time, DIM, BLOCK_DIM)
            store_rows(d_value, cols, d_value_row, dv, time, DIM, BLOCK_DIM)
