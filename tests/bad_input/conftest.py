import shutil

import pytest
import torch

from support.commands import BRIEFLY, RECIPE, well, write
from support.shared import shared


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def model(reverser, tmp_path):
    """A copy of a trained model, to be damaged."""
    return shutil.copytree(reverser, tmp_path / "model")


@pytest.fixture
def q():
    """Queries [batch, head, query, dim] of a call of attention."""
    return torch.randn(2, 3, 4, 8)


@pytest.fixture
def k():
    """Its keys."""
    return torch.randn(2, 3, 5, 8)


@pytest.fixture
def v():
    """Its values."""
    return torch.randn(2, 3, 5, 6)


@pytest.fixture(scope="session")
def forgetful(tmp_path_factory):
    """The folder of a model without attention."""
    recipe = RECIPE.replace("[decoder]\n", '[decoder]\nattention = "none"\n')

    def make(folder):
        well("train", write(folder / "fixed.toml", recipe), "--out", folder / "model", "--device", "cpu", *BRIEFLY)

    return shared(tmp_path_factory, "forgetful", make) / "model"
