"""benchmarks/train_curves.py: curves from weights that differ by a millionth, and their spread."""

import pytest

from benchmarks import train_curves
from benchmarks.train_curves import PLAIN, Run, curve, rows_of, runs_of

AT = "training-curves/dropout 0.0"


def values(rows) -> dict[tuple[str, str], float]:
    found = {(row.id.removeprefix(f"{AT}, "), row.system): row.value for row in rows}
    assert len(found) == len(rows)
    return found


def test_the_control_trains_with_and_without_fused_kernels_from_as_many_weights():
    runs = runs_of("control", 3)
    assert [run.way for run in runs.values()] == ["fast"] * 4 + ["written"] * 4
    assert [run.nudge for run in runs.values()] == [0, 1, 2, 3] * 2
    assert list(runs)[2] == "jumok, weights off by 10⁻⁶, 2"


def test_the_spread_is_that_of_the_last_losses_of_one_system():
    ends = {"jumok": 2.5, PLAIN: 2.2}
    ends |= {f"jumok, weights off by 10⁻⁶{which}": loss for which, loss in (("", 2.1), (", 2", 2.7))}
    ends |= {f"{PLAIN}, weights off by 10⁻⁶{which}": loss for which, loss in (("", 2.3), (", 2", 2.4))}
    rows = rows_of({(0.0, system): [5.0, loss] for system, loss in ends.items()}, "control")
    found = values(rows)
    assert {system: found["loss at the end", system] for system in ends} == ends
    assert found["training-spread/smallest final loss", "jumok"] == 2.1
    assert found["training-spread/mean final loss", "jumok"] == 2.4333
    assert found["training-spread/largest final loss", "jumok"] == 2.7
    assert found["training-spread/smallest final loss", PLAIN] == 2.2
    assert found["largest difference", "jumok, weights off by 10⁻⁶, 2"] == 0.2
    assert found["largest difference", PLAIN] == 0.3
    assert ("largest difference", "jumok") not in found


def test_a_single_pair_has_no_spread_and_keeps_the_ids_of_the_tables():
    curves = {(0.0, PLAIN): [5.0, 2.0], (0.0, f"{PLAIN}, weights off by 10⁻⁶"): [5.5, 2.25]}
    assert [(row.id.removeprefix(f"{AT}, "), row.value) for row in rows_of(curves, "cuda")] == [
        ("loss at the end", 2.0),
        ("loss at the end", 2.25),
        ("largest difference", 0.5),
    ]


@pytest.mark.slow
def test_every_nudge_changes_a_curve_in_its_own_way(monkeypatch):
    monkeypatch.setattr(train_curves, "STEPS", 2)
    monkeypatch.setattr(train_curves, "EVERY", 1)
    monkeypatch.setattr(train_curves, "SENTENCES", 4)
    monkeypatch.setattr(train_curves, "SIZES", {"width": 32, "heads": 2, "hidden": 32, "layers": 1})
    monkeypatch.setattr(train_curves, "NUDGE", 1e-2)
    first, again, second, plain = (curve(Run("written", nudge=nudge), "cpu") for nudge in (1, 1, 2, 0))
    assert first == again
    assert first != second
    assert plain not in (first, second)
