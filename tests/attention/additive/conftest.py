"""Fixtures of the checks of fused attention."""

import pytest


@pytest.fixture(params=["small tiles", "large tiles"])
def tiles(request, monkeypatch):
    """As on a GPU that the problem does not fill, and on one that it does."""
    from jumok.attention.additive.gpu import forward

    monkeypatch.setattr(forward, "FULL", 0 if request.param == "large tiles" else float("inf"))
