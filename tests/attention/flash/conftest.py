"""Fixtures of the checks of flash attention."""

import pytest


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Tiles so small that a few positions need several of them; on a GPU, the tiles that it uses."""
    import torch

    if torch.cuda.is_available():
        return
    from jumok.attention.flash import causal, launch

    for name in ("LONG", "SHORT", "WIDE", "FULL"):
        monkeypatch.setattr(launch, name, launch.TINY)
    monkeypatch.setattr(causal, "ROWS", 16)
