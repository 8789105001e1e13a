"""A map's page in a browser without a network; whatever it complains of or asks for fails the test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jumok.analysis.draw import fonts
from jumok.analysis.draw.page import attention_page


@pytest.fixture
def bundled_fonts(monkeypatch) -> Iterator[None]:
    """Only the fonts that come with matplotlib and with jumok, whatever is installed."""
    from matplotlib import font_manager, get_data_path

    manager = font_manager.fontManager
    own = [entry for entry in manager.ttflist if entry.fname.startswith(get_data_path())]
    monkeypatch.setattr(manager, "ttflist", own)
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda *_: [])
    _forget_fonts()
    fonts.fonts_for(["가"])  # which adds ours, and so makes matplotlib forget what it had chosen
    yield
    monkeypatch.undo()
    _forget_fonts()


def _forget_fonts() -> None:
    fonts._installed.cache_clear()
    fonts.letters_of.cache_clear()


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
        if attention.layout.kind == "image":
            page.wait_for_selector(".jumok-map[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []
