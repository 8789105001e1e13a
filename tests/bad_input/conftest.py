import shutil

import pytest


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def model(reverser, tmp_path):
    """A copy of a trained model, to be damaged."""
    return shutil.copytree(reverser, tmp_path / "model")
