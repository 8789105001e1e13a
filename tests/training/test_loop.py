"""The loop: resuming is bit-identical, Ctrl-C saves, limits stop, and what is written can be read."""

import os
import signal
from dataclasses import fields, replace

import pytest
import torch
from safetensors.torch import load_file

from jumok.errors import ConfigError, TrainingError
from jumok.models.weights import weights_of
from jumok.tasks.recipes import TranslationTraining
from jumok.training import TrainingConfig, train
from jumok.training.checkpoint import checkpoints, step_of
from support.runs import Remarks, assert_same_run, interrupt, metrics_of
from support.tiny import TinyBatches, TinyModel, validate

EVERYTHING = TrainingConfig(
    steps=12,
    accumulate=2,
    warmup=4,
    ema=0.9,
    validate_every=3,
    log_every=2,
    metric="loss",
    keep=2,
    clip=0.5,
    label_smoothing=0.1,
)


def run(folder, config=EVERYTHING, *, model=None, report=None, resume=False, check=validate, **options):
    model = model or TinyModel()
    return train(model, TinyBatches(), config, folder=folder, validate=check, report=report, resume=resume, **options)


@pytest.mark.parametrize("schedule", ["noam", "inverse_sqrt", "cosine", "constant"])
@pytest.mark.parametrize("stop", [1, 5, 6])
def test_stopping_and_resuming_changes_no_bit(tmp_path, schedule, stop):
    config = replace(EVERYTHING, schedule=schedule, learning_rate=1.0 if schedule == "noam" else 0.01)
    run(tmp_path / "whole", config)
    first = run(tmp_path / "broken", config, report=Remarks({stop: interrupt}))
    assert first.stopped == "interrupted"
    assert first.state.step == stop
    torch.rand(7)  # whatever was drawn in between
    second = run(tmp_path / "broken", config, model=TinyModel(seed=5), resume=True)
    assert second.stopped == "steps"
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def test_n_steps_and_n_more_are_2n(tmp_path):
    run(tmp_path / "whole")
    run(tmp_path / "twice", replace(EVERYTHING, steps=6))
    run(tmp_path / "twice", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "twice")


@pytest.mark.slow
def test_without_average_and_validation_too(tmp_path):
    config = replace(EVERYTHING, ema=0.0, save_every=5)
    run(tmp_path / "whole", config, check=None)
    run(tmp_path / "twice", replace(config, steps=7), check=None)
    run(tmp_path / "twice", config, resume=True, check=None)
    assert_same_run(tmp_path / "whole", tmp_path / "twice")


def test_dropout_of_a_step_does_not_depend_on_what_was_drawn_before(tmp_path):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    run(tmp_path / "one")
    assert torch.equal(torch.get_rng_state(), before)  # and nobody outside notices
    torch.manual_seed(4)
    run(tmp_path / "other")
    assert_same_run(tmp_path / "one", tmp_path / "other")


def test_another_seed_drops_other_units(tmp_path):
    run(tmp_path / "one")
    run(tmp_path / "other", replace(EVERYTHING, seed=2))
    assert metrics_of(tmp_path / "one") != metrics_of(tmp_path / "other")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_finishes_the_step_saves_and_says_where(tmp_path, number, capfd):
    report = Remarks({4: lambda: os.kill(os.getpid(), number)})
    handler = signal.getsignal(number)
    result = run(tmp_path / "run", report=report)
    assert result.stopped == "interrupted"
    assert step_of(checkpoints(tmp_path / "run/checkpoints")[-1]) == 4
    assert report.said == [f"stopped after step 4, all saved in {tmp_path / 'run'}"]
    assert "finishing this step and saving; press Ctrl-C again to quit at once" in capfd.readouterr().err
    assert signal.getsignal(number) is handler


def test_a_second_ctrl_c_quits_at_once_without_harm(tmp_path):
    run(tmp_path / "whole")

    def twice():
        interrupt()
        interrupt()

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "broken", report=Remarks({5: twice}))
    assert [step_of(path) for path in checkpoints(tmp_path / "broken/checkpoints")] == [3]
    run(tmp_path / "broken", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def test_ctrl_c_breaks_a_validation_off_and_it_is_done_again_after_the_resume(tmp_path):
    calls = []

    def slow(model):
        calls.append(1)
        if len(calls) == 2:
            interrupt()
        return validate(model)

    run(tmp_path / "whole")
    first = run(tmp_path / "broken", check=slow)
    assert (first.stopped, first.state.step, first.state.validated) == ("interrupted", 6, 3)
    run(tmp_path / "broken", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def test_lines_of_lost_steps_are_cut_on_resume(tmp_path):
    run(tmp_path / "whole")
    run(tmp_path / "broken", replace(EVERYTHING, steps=9))
    for path in checkpoints(tmp_path / "broken/checkpoints")[1:]:
        path.rename(path.with_name("lost-" + path.name))
    with open(tmp_path / "broken/metrics.jsonl", "a") as file:
        file.write('{"step": 10, "lo')  # killed in the middle of a line
    run(tmp_path / "broken", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def test_only_the_newest_checkpoints_and_the_best_are_kept(tmp_path):
    scores = iter([3.0, 1.0, 2.0, 2.0, 2.0, 2.0])
    config = replace(EVERYTHING, steps=18)
    result = run(tmp_path / "run", config, check=lambda model: {"loss": next(scores)})
    assert [step_of(path) for path in checkpoints(tmp_path / "run/checkpoints")] == [6, 15, 18]
    assert (result.state.best, result.state.best_step, result.state.waited) == (1.0, 6, 4)


@pytest.mark.parametrize(("metric", "best"), [("loss", 6), ("ser", 6), ("wer", 6), ("bleu", 3), ("exact_match", 3)])
def test_the_best_checkpoint_has_the_lowest_error_or_the_highest_score(tmp_path, metric, best):
    scores = iter([30.0, 10.0, 20.0])
    config = replace(EVERYTHING, steps=9, metric=metric)
    assert run(tmp_path, config, check=lambda model: {metric: next(scores)}).state.best_step == best


def test_training_stops_when_validations_stop_getting_better(tmp_path):
    report = Remarks()
    config = replace(EVERYTHING, steps=100, patience=2, metric="bleu")
    scores = iter([10.0, 30.0, float("nan"), 30.0, 40.0])
    result = run(tmp_path / "run", config, check=lambda model: {"bleu": next(scores)}, report=report)
    assert (result.stopped, result.state.step, result.state.best_step) == ("patience", 12, 6)
    assert report.said == [
        "step 12: no better bleu in 2 validations, so training is done; "
        "to continue, raise training.patience and use --resume (in Python resume=True)"
    ]
    done = run(tmp_path / "run", config, resume=True)
    assert (done.stopped, done.state.step) == ("patience", 12)
    more = replace(config, patience=3, steps=15)
    assert run(tmp_path / "run", more, resume=True, check=lambda model: {"bleu": next(scores)}).state.best_step == 15


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_training_ends_with_the_best_model_when_the_loss_is_no_longer_finite(tmp_path, broken):
    report, config = Remarks(), replace(EVERYTHING, steps=100, average=2, ema=0.0)
    scores, seen = iter([3.0, 2.0, broken]), []

    def check(model):
        seen.append({name: tensor.clone() for name, tensor in weights_of(model).items()})
        return {"loss": next(scores)}

    result = run(tmp_path, config, check=check, report=report)
    assert (result.stopped, result.state.step, result.state.best_step) == ("diverged", 9, 6)
    assert report.said == [
        "step 9: the loss is not finite since step 9, so nothing is learned any more; the best is step 6, which is the "
        "final model; for a better one, lower training.learning_rate, lengthen training.warmup, or set training.clip, "
        "and train into another folder"
    ]
    assert all(torch.equal(tensor, seen[1][name]) for name, tensor in load_file(result.path).items())
    assert [step_of(path) for path in checkpoints(tmp_path / "checkpoints")] == [3, 6]
    scores = iter([broken])
    assert run(tmp_path, config, check=check, resume=True).stopped == "diverged"


def test_a_loss_that_is_not_a_number_ends_training_though_the_metric_is_one(tmp_path):
    scores = iter([(0.5, 1.0), (0.9, 0.5), (1 / 7, float("nan"))])  # of NaN the largest is always the first class
    config = replace(EVERYTHING, steps=100, metric="accuracy")
    result = run(tmp_path, config, check=lambda model: dict(zip(("accuracy", "loss"), next(scores), strict=True)))
    assert (result.stopped, result.state.step, result.state.best_step) == ("diverged", 9, 6)


@pytest.mark.slow
def test_training_whose_gradients_are_no_longer_finite_ends_with_the_best_model(tmp_path):
    model, report = TinyModel(), Remarks()
    broken = {4: lambda: model.decoder.norm.weight.register_hook(lambda gradient: gradient * float("nan"))}
    report.after = broken
    config = replace(EVERYTHING, steps=500, validate_every=3, patience=0, log_every=50)
    result = run(tmp_path, config, model=model, report=report)
    assert (result.stopped, result.state.step) == ("diverged", 150)
    assert result.state.best_step is not None
    assert "the gradients of the last 146 steps were not finite" in report.said[-1]
    assert result.path.exists()


def test_a_first_validation_that_is_not_finite_is_an_error_that_says_what_to_change(tmp_path):
    with pytest.raises(TrainingError, match=r"the loss is not finite since step 3, .* lower training.learning_rate"):
        run(tmp_path, check=lambda model: {"loss": float("nan")})


def test_of_validations_with_equal_scores_the_one_with_the_lowest_loss_is_the_best_and_patience_goes_on(tmp_path):
    config = replace(EVERYTHING, steps=100, patience=4, metric="accuracy")
    pairs = iter([(0.5, 1.0), (1.0, 0.9), (1.0, 0.2), (1.0, 0.4), (1.0, float("inf")), (1.0, 0.1)])
    result = run(
        tmp_path / "run", config, check=lambda model: dict(zip(("accuracy", "loss"), next(pairs), strict=True))
    )
    assert (result.stopped, result.state.step, result.state.best_step) == ("patience", 18, 18)
    assert result.state.best_scores == {"accuracy": 1.0, "loss": 0.1}
    assert 9 not in [step_of(path) for path in checkpoints(tmp_path / "run/checkpoints")]


def test_the_end_of_a_cosine_schedule_advises_to_start_from_the_model_not_to_resume(tmp_path):
    report = Remarks()
    settings = {field.name: getattr(EVERYTHING, field.name) for field in fields(EVERYTHING)} | {"metric": "chrf"}
    config = TranslationTraining(**settings | {"schedule": "cosine", "steps": 6, "warmup": 1})
    run(tmp_path / "run", config, check=lambda model: {"chrf": 1.0}, report=report)
    further = f'; to train further, begin another run with training.start_from = "{tmp_path / "run"}"'
    assert report.said[-1] == f"step 6: training.steps = 6 reached{further}"
    with pytest.raises(ConfigError) as refused:
        run(tmp_path / "run", replace(config, steps=8), resume=True)
    assert str(refused.value) == (
        'training.steps was 6 and is now 8, but training.schedule = "cosine" ends at training.steps; '
        f"put it back{further}"
    )


def test_training_stops_after_its_minutes_counted_over_resumes(tmp_path):
    config = replace(EVERYTHING, steps=10**6, minutes=0.005)
    report = Remarks()
    result = run(tmp_path / "run", config, report=report)
    assert result.stopped == "minutes"
    assert result.state.validated == result.state.step
    assert "training.minutes = 0.005 reached; to continue, raise it and use --resume (in Python" in report.said[-1]
    again = run(tmp_path / "run", config, resume=True)
    assert again.state.step == result.state.step


def test_the_final_model_has_the_averaged_weights_of_the_best_validation(tmp_path):
    scores = iter([3.0, 1.0, 2.0, 2.0])
    seen = []

    def check(model):
        seen.append({name: tensor.clone() for name, tensor in weights_of(model).items()})
        return {"loss": next(scores)}

    model = TinyModel()
    result = run(tmp_path / "run", model=model, check=check)
    final = load_file(result.path)
    for name, tensor in weights_of(model).items():
        assert torch.equal(final[name], seen[1][name])
        assert torch.equal(final[name], tensor)
    assert not model.training


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_the_best_weights_so_far_are_the_model_at_every_step(tmp_path, ema):
    scores, seen, found = iter([3.0, 1.0, 2.0, 2.0]), [], {}

    def check(model):
        seen.append({name: tensor.clone() for name, tensor in weights_of(model).items()})
        return {"loss": next(scores)}

    def look():
        found[len(seen)] = load_file(tmp_path / "model.safetensors")

    run(tmp_path, replace(EVERYTHING, ema=ema), check=check, report=Remarks({4: look, 7: look, 10: look}))
    for validations, best in ((1, 0), (2, 1), (3, 1)):
        assert all(torch.equal(found[validations][name], tensor) for name, tensor in seen[best].items())


def test_a_run_killed_before_it_had_a_model_has_one_when_it_is_resumed(tmp_path):
    run(tmp_path, replace(EVERYTHING, steps=3))
    os.remove(tmp_path / "model.safetensors")
    result = run(tmp_path, resume=True, report=Remarks({4: lambda: load_file(tmp_path / "model.safetensors")}))
    assert result.state.step == 12


@pytest.mark.parametrize(("score", "kept"), [(1.0, True), (2.0, True), (5.0, False), (float("nan"), False)])
def test_the_mean_of_the_newest_checkpoints_is_final_unless_it_is_worse(tmp_path, score, kept):
    config = replace(EVERYTHING, ema=0.0, average=2)
    scores = iter([4.0, 4.0, 3.0, 2.0, score])
    report = Remarks()
    result = run(tmp_path / "run", config, check=lambda model: {"loss": next(scores)}, report=report)
    final = load_file(result.path)
    files = [load_file(path / "model.safetensors") for path in checkpoints(tmp_path / "run/checkpoints")]
    assert len(files) == 2
    for name, tensor in final.items():
        mean = ((files[0][name].double() + files[1][name].double()) / 2).float()
        assert torch.equal(tensor, mean if kept else files[1][name])
    assert ("it is the final model" if kept else "worse than the best checkpoint") in report.said[-1]
    assert result.state.best_scores == {"loss": score if kept else 2.0}


def test_metrics_are_lines_of_json_with_the_loss_per_token_that_smoothing_does_not_change(tmp_path):
    smoothed, plain = replace(EVERYTHING, label_smoothing=0.3), replace(EVERYTHING, label_smoothing=0.0)
    run(tmp_path / "run", replace(smoothed, learning_rate=1e-30))
    run(tmp_path / "plain", replace(plain, learning_rate=1e-30))
    lines = metrics_of(tmp_path / "run")
    steps = [line for line in lines if "loss" in line]
    assert [line["step"] for line in steps] == [2, 4, 6, 8, 10, 12]
    assert steps[0]["perplexity"] == pytest.approx(2.718281828 ** steps[0]["loss"])
    assert steps[0]["loss"] == metrics_of(tmp_path / "plain")[0]["loss"]
    validations = [line for line in lines if "validation" in line]
    assert [line["step"] for line in validations] == [3, 6, 9, 12]
    assert validations[0].keys() == {"step", "validation", "best"}


def test_a_picture_that_cannot_be_drawn_ends_nothing_and_comes_after_the_checkpoint(tmp_path):
    saved, report = [], Remarks()

    def draw(metrics):
        saved.append(step_of(checkpoints(tmp_path / "checkpoints")[-1]))
        raise OSError(28, "No space left on device")

    assert run(tmp_path, report=report, draw=draw).stopped == "steps"
    assert saved == [3, 6, 9, 12]
    assert "No space left on device; training continues without the picture" in report.said[0]


def test_the_picture_is_drawn_after_every_validation(tmp_path):
    drawn = []
    run(tmp_path / "run", draw=drawn.append)
    assert drawn == [tmp_path / "run/metrics.jsonl"] * 4


def test_a_tiny_model_learns(tmp_path):
    config = TrainingConfig(steps=150, warmup=10, learning_rate=0.02, log_every=10, metric="loss", validate_every=50)
    run(tmp_path / "run", config, model=TinyModel(dropout=0.0))
    losses = [line["loss"] for line in metrics_of(tmp_path / "run") if "loss" in line]
    assert losses[-1] < losses[0] - 0.5
