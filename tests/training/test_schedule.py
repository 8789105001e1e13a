import math

import pytest

from jumok.training import TrainingConfig, learning_rate


@pytest.mark.parametrize("step", [1, 3, 399, 400, 401, 4000])
def test_noam_is_the_formula_of_the_paper(step):
    config = TrainingConfig(schedule="noam", learning_rate=2.0, warmup=400)
    want = 2.0 * 512**-0.5 * min(step**-0.5, step * 400**-1.5)
    assert learning_rate(step, config, width=512) == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("step", [1, 99, 100, 101, 5000])
def test_inverse_sqrt_rises_in_a_line_and_falls_with_the_root(step):
    config = TrainingConfig(schedule="inverse_sqrt", learning_rate=0.01, warmup=100)
    want = 0.01 * step / 100 if step <= 100 else 0.01 * 10 / math.sqrt(step)
    assert learning_rate(step, config, width=1) == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize(("step", "share"), [(5, 0.5), (10, 1.0), (60, 0.5), (110, 0.0), (500, 0.0)])
def test_cosine_falls_half_a_wave_to_zero_at_the_last_step(step, share):
    config = TrainingConfig(schedule="cosine", learning_rate=0.01, warmup=10, steps=110)
    assert learning_rate(step, config, width=1) == pytest.approx(0.01 * share, abs=1e-12)


def test_constant_stays_after_the_warm_up():
    config = TrainingConfig(schedule="constant", learning_rate=0.01, warmup=4)
    rates = [learning_rate(step, config, width=1) for step in (1, 2, 4, 5, 1000)]
    assert rates == pytest.approx([0.0025, 0.005, 0.01, 0.01, 0.01])


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine", "constant", "noam"])
def test_no_warm_up_begins_at_the_highest_rate(schedule):
    config = TrainingConfig(schedule=schedule, learning_rate=0.5, warmup=0, steps=1000)
    assert learning_rate(1, config, width=1) == pytest.approx(0.5, rel=1e-4)
