"""How long training takes on a CPU: said before it begins where it is long, and measured without a trace."""

import pytest
import torch

from jumok.data import Batches, prepare
from jumok.tasks import TRANSLATION, duration, read_recipe
from jumok.tasks.duration import duration_warning
from support.commands import BRIEFLY, RECIPE, jumok, well, write


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """What is said of a run of so many steps of a small model, which is measured as if it were a large one."""
    monkeypatch.setattr(duration, "FASTEST", 1e-3)

    def said(*changes):
        recipe = read_recipe(write(tmp_path / "reverse.toml", RECIPE), ["data.size=100", *changes])
        prepared = prepare(tmp_path / "data", recipe.data, recipe.tokenizer, recipe.filter)
        model = TRANSLATION.new_model(recipe, prepared.tokenizers)
        return duration_warning(model, Batches(prepared.train, recipe.batch), recipe), model

    return said


def test_a_run_of_hours_is_said_to_be_one_and_another_recipe_is_named(measured):
    said, _ = measured("training.steps=1000000000")
    assert said.startswith("1,000,000,000 steps will take about ")
    assert " h on this CPU; recipes/small-cpu.toml takes minutes: jumok train small-cpu --set data.source=…" in said
    assert measured("training.steps=10")[0] == ""
    assert measured("training.steps=1000000000", "training.minutes=5")[0] == ""


def test_measuring_changes_neither_weights_nor_random_draws(measured):
    state = torch.random.get_rng_state()
    _, model = measured("training.steps=1000000000", "encoder.dropout=0.5")
    assert torch.equal(torch.random.get_rng_state(), state)
    _, same = measured("training.minutes=5", "encoder.dropout=0.5")
    for one, other in zip(model.parameters(), same.parameters(), strict=True):
        assert torch.equal(one, other)
        assert one.grad is None


@pytest.mark.slow
def test_a_model_of_seconds_is_not_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(duration.SEQUENCES, "cut", None)
    recipe = write(tmp_path / "reverse.toml", RECIPE)
    assert "on this CPU" not in well("train", recipe, "--out", tmp_path / "run", "--device", "cpu", *BRIEFLY).err


@pytest.mark.long
def test_the_default_model_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr("jumok.tasks.duration._pass", lambda *_: (_ for _ in ()).throw(InterruptedError("measured")))
    recipe = write(tmp_path / "default.toml", '[data]\ncorpus = "cldr"\nsize = 2000\n[tokenizer]\nsize = 300\n')
    done = jumok("train", recipe, "--out", tmp_path / "run", "--device", "cpu")
    assert done.err.splitlines()[-1] == "jumok: measured"
