"""A map's page in a browser without a network; whatever it complains of or asks for fails the test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from browser import chromium
from jumok.analysis.page import attention_page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture
def shown(browser, tmp_path) -> Iterator[Callable[..., Any]]:
    wrong, contexts = [], []

    def open_page(attention, language="en", **settings):
        path = tmp_path / "map.html"
        path.write_text(attention_page(attention, language), encoding="utf-8")
        contexts.append(browser.new_context(offline=True, **{"viewport": {"width": 1000, "height": 800}} | settings))
        page = contexts[-1].new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda asked: asked.url.startswith(("file:", "data:")) or wrong.append(asked.url))
        page.on("dialog", lambda dialog: wrong.append(f"dialog {dialog.message}"))
        page.goto(path.as_uri())
        if attention.place.kind == "image":
            page.wait_for_selector(".jumok-map[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []
