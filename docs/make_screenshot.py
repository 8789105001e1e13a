"""Take a screenshot of the page of `jumok serve`: python -m docs.make_screenshot [MODEL].

    python -m docs.make_screenshot                  docs/pictures/serve.png with the bundled model
    python -m docs.make_screenshot --views FOLDER   several views: dark, on a phone, in Korean, empty

Requires Chromium, playwright and a font with Hangul.
"""

import argparse
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from benchmarks.serving import running_server

PICTURE = Path(__file__).with_name("pictures") / "serve.png"
DATE, LIST = "Friday, December 23, 1988", "Turkish, Korean and Japanese"


class View(NamedTuple):
    """Input text and browser settings of a screenshot."""

    text: str = DATE
    size: tuple[int, int] = (1180, 900)
    options: Mapping[str, Any] = MappingProxyType({})


VIEWS = {
    "light": View(),
    "dark": View(options={"color_scheme": "dark"}),
    "korean": View(LIST, options={"locale": "ko-KR"}),
    "phone": View(size=(390, 844), options={"is_mobile": True, "has_touch": True}),
    "phone-dark": View(LIST, (390, 844), {"color_scheme": "dark", "locale": "ko-KR", "has_touch": True}),
    "empty": View(""),
    "lines": View(f"{DATE}\n18 weeks ago\n{LIST}"),
    "long": View("the 3rd of May, 2021, and " * 60),
}


def photograph(url: str, view: View, out: Path) -> None:
    """Save a screenshot of the page with a translation, the pointer over its last word."""
    from playwright.sync_api import sync_playwright

    width, height = view.size
    options = {"locale": "en-US", "device_scale_factor": 1.5, **view.options}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": height}, **options)
        page.goto(url)
        page.wait_for_selector("#model option", state="attached")
        if view.text:
            page.fill("#text", view.text)
            page.wait_for_selector("#output .done", state="attached")
            page.wait_for_selector(".jumok-cell, #map-none:not([hidden])")
            page.locator("#beam").scroll_into_view_if_needed()
            page.wait_for_selector(".node.end.best, #tree-none:not([hidden])")
            page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
            page.wait_for_timeout(300)
            page.locator("#output .word").or_(page.locator("#output .line")).last.hover()
        page.wait_for_timeout(300)
        page.screenshot(path=out, full_page=True)
        browser.close()


def main() -> None:
    """Start a server, take the screenshots and stop it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="*")
    parser.add_argument("--views", type=Path, help="write all views into this folder instead")
    given = parser.parse_args()
    wanted = {PICTURE: VIEWS["light"]}
    if given.views is not None:
        given.views.mkdir(parents=True, exist_ok=True)
        wanted = {given.views / f"{name}.png": view for name, view in VIEWS.items()}
    with running_server(*given.model) as server:
        for out, view in wanted.items():
            photograph(server.url, view, out)


if __name__ == "__main__":
    main()
