"""A folder that is published holds no model or a whole one, wherever the process that publishes it is killed."""

import os
import sys
import warnings

import pytest

from jumok.errors import ModelError
from jumok.models.weights import weights_of
from jumok.tasks import TRANSLATION, read_recipe
from jumok.tasks.run import train
from jumok.training import Report
from support.commands import BRIEFLY, RECIPE, jumok, well, write
from test_model_folder import fresh, same_weights

pytestmark = pytest.mark.skipif(os.name != "posix", reason="processes are forked, and killed, as POSIX has it")
KILLED = 9


def publish_until(moment, folder, trained):
    """Publish in a process that ends before its file operation number `moment`; whether it came to its end."""
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # nothing of a thread is used
        process = os.fork()
    if not process:
        left = iter(range(moment))

        def cut_short(event, arguments):
            writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            if (writes or event in ("os.rename", "os.remove", "os.link")) and next(left, None) is None:
                os._exit(KILLED)

        sys.addaudithook(cut_short)
        publish_again(folder, trained)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0


def publish_again(folder, trained):
    """As training does: the weights are a file of a checkpoint that gets a second name in the folder."""
    new = folder / ".new-model.safetensors"
    new.unlink(missing_ok=True)
    os.link(folder.with_name(f"seed-{trained.recipe.training.seed}") / "model.safetensors", new)
    TRANSLATION.publish(folder, trained, new)


@pytest.fixture
def models(tmp_path):
    """Three models of one vocabulary, as a run publishes one after another."""
    found = [fresh(seed=seed) for seed in (1, 2, 3)]
    for trained in found:
        TRANSLATION.save(tmp_path / f"seed-{trained.recipe.training.seed}", trained)
    return found


@pytest.mark.slow
def test_a_first_model_is_not_there_or_whole_wherever_its_publishing_is_killed(tmp_path, models):
    seen, ended, moment = set(), False, 0
    while not ended:
        folder = tmp_path / f"{moment}"
        folder.mkdir()
        ended = publish_until(moment, folder, models[0])
        whole = (folder / "model.safetensors").exists()
        if whole:
            assert same_weights(TRANSLATION.load(folder, device="cpu").trained.model, models[0].model)
        else:
            with pytest.raises(ModelError, match=r"is not a complete model: .* is missing"):
                TRANSLATION.load(folder, device="cpu")
        publish_again(folder, models[1])
        assert same_weights(TRANSLATION.load(folder, device="cpu").trained.model, models[1].model)
        assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]
        seen.add((whole, ended))
        moment += 1
    assert moment > 10
    assert seen == {(False, False), (True, False), (True, True)}


@pytest.mark.long
def test_a_better_model_replaces_one_wherever_two_publishings_are_killed(tmp_path, models):
    for first in range(14):
        folder = tmp_path / f"{first}"
        folder.mkdir()
        publish_again(folder, models[0])
        for moment, trained in ((first, models[1]), (5 * first % 14, models[2])):
            publish_until(moment, folder, trained)
            found = TRANSLATION.load(folder, device="cpu").trained.model
            assert any(same_weights(found, other.model) for other in models)


def test_a_model_that_is_saved_over_another_kind_is_never_mixed_with_it(tmp_path):
    TRANSLATION.save(tmp_path, fresh(shared=False))
    TRANSLATION.save(tmp_path, fresh(shared=True, seed=2))
    assert TRANSLATION.load(tmp_path, device="cpu").trained.recipe.training.seed == 2
    assert {path.name for path in tmp_path.glob("tokenizer*")} == {"tokenizer.model"}


class Loading(Report):
    """Loads the model before the first step of a run."""

    def __init__(self, folder):
        self.folder, self.loaded = folder, None

    def begin(self, **_):
        self.loaded = TRANSLATION.load(self.folder, device="cpu").trained


@pytest.mark.slow
def test_a_resumed_run_repairs_its_model_before_its_first_step(tmp_path):
    recipe, folder = write(tmp_path / "r.toml", RECIPE), tmp_path / "run"
    well("train", recipe, "--out", folder, "--device", "cpu", *BRIEFLY)
    weights = weights_of(TRANSLATION.load(folder, device="cpu").trained.model)
    for name in ("recipe.toml", "checksums.json"):
        (folder / name).unlink()
    assert jumok("inspect", folder).code == 1
    report = Loading(folder)
    changes = [option.removeprefix("--set=") for option in BRIEFLY]
    train(read_recipe(recipe, changes), out=folder, resume=True, device="cpu", report=report, draw=False)
    assert all(weight.equal(weights[name]) for name, weight in weights_of(report.loaded.model).items())
