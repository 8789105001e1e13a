"""One server for the tests that only ask it."""

import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")
pytest.importorskip("uvicorn", reason="needs the extra serve")

from serving import serving


@pytest.fixture(scope="session")
def live(reverser, transformer):
    with serving({"reverser": reverser, "heads": transformer}) as running:
        yield running
