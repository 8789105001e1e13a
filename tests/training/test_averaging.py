import pytest
import torch
from safetensors.torch import load_file, save_file

from jumok.errors import ArgumentError, DataError
from jumok.training import average_files


def test_the_average_is_the_mean_of_every_tensor(tmp_path):
    torch.manual_seed(0)
    files = [{"a": torch.randn(3, 4), "b": torch.randn(5).bfloat16(), "n": torch.tensor([7])} for _ in range(3)]
    for number, tensors in enumerate(files):
        save_file(tensors, tmp_path / f"{number}.safetensors")
    average_files([tmp_path / f"{number}.safetensors" for number in range(3)], tmp_path / "out.safetensors")
    found = load_file(tmp_path / "out.safetensors")
    for name in ("a", "b"):
        want = torch.stack([tensors[name].double() for tensors in files]).mean(0)
        assert torch.equal(found[name], want.to(found[name].dtype))
        assert found[name].dtype == files[0][name].dtype
    assert torch.equal(found["n"], torch.tensor([7]))


def test_the_average_of_one_file_is_that_file_and_may_replace_it(tmp_path):
    tensors = {"a": torch.randn(3, 4)}
    save_file(tensors, tmp_path / "a.safetensors")
    average_files([tmp_path / "a.safetensors"], tmp_path / "a.safetensors")
    assert torch.equal(load_file(tmp_path / "a.safetensors")["a"], tensors["a"])


def test_files_of_different_models_are_refused_by_name(tmp_path):
    save_file({"a": torch.zeros(3)}, tmp_path / "one")
    save_file({"a": torch.zeros(4)}, tmp_path / "two")
    save_file({"b": torch.zeros(3)}, tmp_path / "three")
    with pytest.raises(DataError, match=r"two holds a as \[4\], but this model needs \[3\]"):
        average_files([tmp_path / "one", tmp_path / "two"], tmp_path / "out")
    with pytest.raises(DataError, match=r"three has no a \[3\]"):
        average_files([tmp_path / "one", tmp_path / "three"], tmp_path / "out")
    save_file({"n": torch.tensor([1])}, tmp_path / "four")
    save_file({"n": torch.tensor([2])}, tmp_path / "five")
    with pytest.raises(DataError, match=r"five and .*four differ in n, which holds torch.int64 and has no mean"):
        average_files([tmp_path / "four", tmp_path / "five"], tmp_path / "out")
    with pytest.raises(ArgumentError, match="no files to average"):
        average_files([], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_checkpoints_of_a_network_with_batch_norms_can_be_averaged(tmp_path):
    for batches in (2, 5):
        save_file({"norm.num_batches_tracked": torch.tensor(batches), "norm.weight": torch.full((1,), float(batches))},
                  tmp_path / f"{batches}.safetensors")  # fmt: skip
    average_files([tmp_path / "5.safetensors", tmp_path / "2.safetensors"], tmp_path / "mean.safetensors")
    mean = load_file(tmp_path / "mean.safetensors")
    assert (mean["norm.num_batches_tracked"], mean["norm.weight"]) == (5, 3.5)
