"""Photograph the page of `jumok serve` for docs/serve.md: python -m docs.make_screenshot [MODEL].

Needs Chromium, playwright and a font with Hangul; without MODEL, it shows the model that comes with jumok.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

PICTURE = Path(__file__).with_name("pictures") / "serve.png"
TEXT = "Friday, December 23, 1988"


def photograph(url: str, out: Path) -> None:
    """The page with a translation, the pointer on the first of its words."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1180, "height": 900}, device_scale_factor=1.5, locale="en-US")
        page.goto(url)
        page.wait_for_selector("#model option", state="attached")
        page.fill("#text", TEXT)
        page.wait_for_selector(".jumok-cell")
        page.wait_for_selector(".node.end.best")
        page.evaluate("document.activeElement.blur()")
        page.hover("#output .word")
        page.wait_for_timeout(300)
        page.screenshot(path=out, full_page=True)
        browser.close()


def main(models: list[str]) -> None:
    """Serve, photograph, end."""
    command = [sys.executable, "-m", "jumok.cli", "serve", *models, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = next(line for line in process.stderr if line.startswith("serving"))
            found = re.search(r"http://\S+", said)
            assert found is not None
            photograph(found[0], PICTURE)
        finally:
            process.terminate()


if __name__ == "__main__":
    main(sys.argv[1:])
