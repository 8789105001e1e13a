"""benchmarks/decode_rows.py: the steps and rows of searches whose outputs have given lengths."""

from benchmarks import decode_rows
from jumok.decoding import static_search


def test_refilled_rows_take_fewer_steps_than_separate_batches_and_the_search_is_as_before():
    step, watch = static_search.StaticSearch.step, static_search.FinishWatch
    pairs = [(10, 30 if number % 8 == 0 else 5) for number in range(64)]
    batches, refilled, apart = decode_rows.counts(pairs, 800)
    assert batches == 4
    assert apart.steps == 4 * 31
    assert refilled.steps < 0.7 * apart.steps
    assert min(apart.rows, refilled.rows) > sum(target + 1 for _, target in pairs)
    assert (static_search.StaticSearch.step, static_search.FinishWatch) == (step, watch)
