"""Draw the pictures of docs/look.md from the stored maps of trained models: python -m docs.make_look.

The maps come from `jumok look MODEL TEXT --out docs/demo/NAME.json`; the page is photographed in Chromium.
"""

import shutil
import tempfile
from pathlib import Path

from jumok.analysis.attention_map import AttentionMap
from jumok.analysis.page import attention_page

DEMO = Path(__file__).with_name("demo")


def read_map(name: str) -> AttentionMap:
    """A stored map."""
    return AttentionMap.from_json((DEMO / f"{name}.json").read_text(encoding="utf-8"))


def photograph(attention: AttentionMap, out: Path, *, word: int) -> None:
    """The page of a map while the pointer is on a target word."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder, "map.html")
        path.write_text(attention_page(attention), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 820, "height": 760}, device_scale_factor=1.5)
        page.goto(path.as_uri())
        page.locator('.jumok-sentence[aria-label="target"] .jumok-word').nth(word).hover()
        page.wait_for_timeout(300)
        page.screenshot(path=out)
        browser.close()


if __name__ == "__main__":
    shown = read_map("look")
    shown.save(DEMO / "look-grid.svg", grid=True)
    photograph(shown, DEMO / "look-page.png", word=len(shown.target) - 2)
