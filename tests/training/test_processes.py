"""Two processes that train one model follow a single one; benchmarks/scale.py says what more of them would cost."""

import pytest
import torch
from safetensors.torch import load_file

from jumok.errors import ArgumentError, DataError
from jumok.training.checkpoint import checkpoints
from jumok.training.processes import Processes, check_seen, check_shares
from jumok.training.read_ahead import Position, read_step
from support.processes import gpu_runs, recipe_runs, tiny_run, tiny_runs, together, whole_graph_run
from support.runs import assert_same_run, files_of, metrics_of, state_of
from support.shared import shared
from support.tiny import TinyBatches


def assert_followed(one, other, tolerance=2e-4):
    """Whether two runs have the same losses, scores, counters and weights, but for the last digits."""
    for mine, theirs in zip(metrics_of(one), metrics_of(other), strict=True):
        mine, theirs = mine | mine.pop("validation", {}), theirs | theirs.pop("validation", {})
        assert mine == pytest.approx(theirs, rel=tolerance)
    for file, tensors in files_of(one).items():
        torch.testing.assert_close(tensors, files_of(other)[file], rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(
        load_file(one / "model.safetensors"), load_file(other / "model.safetensors"), rtol=tolerance, atol=tolerance
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Runs of one process whose updates take as many batches as those of two."""

    def make(folder):
        tiny_run(folder / "two", accumulate=2)
        tiny_run(folder / "two-ema", accumulate=2, ema=0.9)
        tiny_run(folder / "three", accumulate=3)

    return shared(tmp_path_factory, "alone", make)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Runs of two processes."""

    def make(folder):
        for name in ("begun-by-one", "begun-by-one-fsdp"):
            tiny_run(folder / name, steps=8, accumulate=3)
        assert together(2, tiny_runs, folder) == [0, 0]

    return shared(tmp_path_factory, "pair", make)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_processes_follow_one_that_takes_twice_the_batches(alone, pair, parallel):
    assert_followed(pair / parallel, alone / "two")
    assert state_of(pair / parallel)["tokens"] == state_of(alone / "two")["tokens"]


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_the_moving_average_of_two_processes_follows_that_of_one(alone, pair, parallel):
    assert_followed(pair / f"{parallel}-ema", alone / "two-ema")


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_resumed_run_of_two_processes_is_the_same_to_the_bit(pair, parallel):
    assert_same_run(pair / ("resumed" if parallel == "ddp" else "resumed-fsdp"), pair / parallel)


@pytest.mark.parametrize("name", ["begun-by-one", "begun-by-one-fsdp"])
def test_two_processes_go_on_for_one_with_the_same_batches_though_their_shares_differ(alone, pair, name):
    assert state_of(pair / name)["batches"] == 3
    assert_followed(pair / name, alone / "three")


def test_one_process_goes_on_for_two(alone, pair, tmp_path):
    tiny_run(pair / "half", resume=True)
    assert state_of(pair / "half")["batches"] == 2
    assert_followed(pair / "half", alone / "two")


def test_gradients_in_buckets_have_the_same_sums_in_both_processes(pair):
    sums = [torch.load(pair / f"sums-{rank}") for rank in range(2)]
    for found in (*sums[0], sums[1][1]):
        torch.testing.assert_close(found, sums[1][0], rtol=0, atol=0)
    assert len(sums[0][0]) > 5


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_on_a_gpu_steps_that_send_their_gradients_follow_those_that_do_not(tmp_path):
    assert together(1, gpu_runs, tmp_path, device="cuda") == [0]
    assert_followed(tmp_path / "ddp", tmp_path / "alone", tolerance=1e-2)
    assert_followed(tmp_path / "fsdp", tmp_path / "alone", tolerance=1e-2)


def test_a_signal_to_one_process_stops_both_with_everything_saved(pair):
    assert 5 <= state_of(pair / "stopped")["step"] <= 8
    assert len(checkpoints(pair / "stopped/checkpoints")) >= 1


def test_a_signal_to_one_process_in_a_validation_breaks_it_off_in_both_and_it_comes_again(pair):
    assert_same_run(pair / "broken-off", pair / "ddp")


def test_an_error_in_one_process_is_raised_in_all(pair):
    assert (pair / "told").read_text().split("\n") == ["DataError", "the second cannot read"]


@pytest.fixture(scope="module")
def recipes_of_one(tmp_path_factory):
    return shared(tmp_path_factory, "recipes-of-one", lambda folder: recipe_runs(folder, 2))


@pytest.fixture(scope="module")
def recipes_of_two(tmp_path_factory):

    def make(folder):
        assert together(2, recipe_runs, folder, 1) == [0, 0]

    return shared(tmp_path_factory, "recipes-of-two", make)


@pytest.mark.long
@pytest.mark.parametrize("task", ["translation", "translation-fsdp", "graph", "captions"])
def test_recipes_of_every_task_are_followed_by_two_processes(recipes_of_one, recipes_of_two, task):
    assert_followed(recipes_of_two / task, recipes_of_one / task)


@pytest.mark.long
def test_batch_normalisation_is_that_of_each_batch_and_its_running_moments_are_means(recipes_of_one, recipes_of_two):
    for mine, theirs in zip(metrics_of(recipes_of_two / "grid"), metrics_of(recipes_of_one / "grid"), strict=True):
        if "validation" not in mine:
            assert mine == pytest.approx(theirs, rel=1e-3)


@pytest.mark.long
def test_the_model_that_processes_kept_in_parts_is_whole_at_the_end(recipes_of_one, recipes_of_two):
    assert (recipes_of_two / "text").read_text() == (recipes_of_one / "text").read_text()


@pytest.mark.long
def test_a_whole_graph_is_refused_with_one_line(tmp_path, capfd):
    assert together(2, whole_graph_run, tmp_path) == [1, 1]
    said = capfd.readouterr().err
    assert said.count("which 2 processes cannot share; train with one process") == 1


def test_the_shares_of_a_step_are_what_one_process_reads(monkeypatch):
    source = TinyBatches(steps=3)
    whole = read_step(source, Position(0, 1), 5)
    shares = []
    for rank in range(2):
        monkeypatch.setattr("jumok.training.read_ahead.current_processes", lambda rank=rank: Processes(rank, 2))
        shares.append(read_step(source, Position(0, 1), 5))
    assert {share.after for share in shares} == {whole.after}
    assert [len(share.batches) for share in shares] == [3, 2]
    for number, batch in enumerate(whole.batches):
        assert torch.equal(batch.source, shares[number % 2].batches[number // 2].source)


def test_fewer_batches_than_processes_are_refused(monkeypatch):
    monkeypatch.setattr("jumok.training.processes._current", Processes(0, 8))
    with pytest.raises(ArgumentError, match="4 batches, which 8 processes cannot share; continue with 4 processes"):
        check_shares(4)


def test_a_folder_that_another_machine_does_not_share_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("jumok.training.processes._current", Processes(3, 8))
    monkeypatch.setattr("jumok.training.processes.SLOWEST_DISK", 0.0)
    with pytest.raises(
        DataError, match=r"process 3 on .* does not see the folder .*nowhere, which process 0 made; name"
    ):
        check_seen(tmp_path / "nowhere")
