"""A page opened in Chromium: what it said to the console, what it asked for, what it looks like."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser; the test is skipped, with the reason, where there is none."""
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with api.sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(args=["--no-sandbox"])
        except api.Error:
            installed = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
            if installed is None:
                pytest.skip("needs Chromium: apt install chromium, or playwright install chromium")
            browser = playwright.chromium.launch(executable_path=installed, args=["--no-sandbox"])
        yield browser
        browser.close()


class Opened:
    """A file shown in a browser, and all that happened meanwhile."""

    def __init__(self, browser: Any, file: Path, *, width: int = 1000, scheme: str = "light") -> None:
        self.page = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme).new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())
