"""Results that are computed or collected from other results are up to date with them."""

import json
from typing import Any

import pytest

from benchmarks import gpu, scale
from benchmarks.results import FOLDER, Row


def rows(name: str) -> list[dict[str, Any]]:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["rows"]


def test_the_cost_on_many_gpus_is_computed_from_the_newest_measurements():
    computed, _ = scale.cost_rows()
    saved = [Row(**row) for row in rows("scale")]
    assert [row._replace(value=0) for row in saved] == [row._replace(value=0) for row in computed]
    values = [row.value for row in computed]
    assert [row.value for row in saved] == pytest.approx(values), "run: python -m benchmarks.scale"


@pytest.mark.parametrize(
    ("input", "name", "measurement"),
    [
        ("tokens a second of one GPU", "train_gpu", "transformer-train"),
        ("pairs prepared a second", "scale_prepare", "scale-prepare/pairs a second"),
        ("pairs of the first process", "scale_prepare", "scale-prepare/pairs a second of the first process"),
    ],
)
def test_an_input_of_the_cost_on_many_gpus_is_the_measured_number(input: str, name: str, measurement: str):
    (used,) = [row["value"] for row in rows("scale") if row["id"] == f"input/{input}"]
    (measured,) = [row["value"] for row in rows(name) if (row["id"], row["system"]) == (measurement, "jumok")]
    assert used == measured, "run: python -m benchmarks.scale"


def test_the_collection_of_gpu_goals_is_that_of_the_newest_measurements():
    assert rows("gpu") == [row._asdict() for row in gpu.collect()[1]], "run: python -m benchmarks.gpu --collect"
