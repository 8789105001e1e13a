import shutil

import pytest
import torch


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
