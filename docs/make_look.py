"""Draw the attention maps in docs from stored maps of trained models: python -m docs.make_look.

`jumok look MODEL TEXT --out docs/demo/NAME.json` writes a map of a text, an image or a node; look-decoder.json is that
of look.json's text by `--kind decoder`. Chromium renders the screenshots of pages.
"""

import shutil
import tempfile
from pathlib import Path

from jumok import AttentionMap
from jumok.analysis import draw

DEMO = Path(__file__).with_name("demo")


def read_map(name: str) -> AttentionMap:
    """Read a stored map."""
    return AttentionMap.from_json((DEMO / f"{name}.json").read_text(encoding="utf-8"))


def photograph(attention: AttentionMap, out: Path, pointed_at: str, *, height: int = 760) -> None:
    """Save a screenshot of a map's page with the pointer over an element; `height` is the minimum height."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = draw.save(attention, Path(folder, "map.html"))
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 820, "height": height}, device_scale_factor=1.5)
        page.goto(path.as_uri())
        page.wait_for_timeout(500)
        page.locator(pointed_at).first.hover()
        page.wait_for_timeout(300)
        page.screenshot(path=out, full_page=True)
        browser.close()


if __name__ == "__main__":
    shown = read_map("look")
    draw.save(shown, DEMO / "look-grid.svg", grid=True)
    draw.save(read_map("look-decoder"), DEMO / "look-decoder.svg", grid=True)
    draw.save(read_map("software"), DEMO / "software.svg")
    word = len(shown.target) - 2
    photograph(shown, DEMO / "look-page.png", f'[aria-label="target"] .jumok-word:nth-of-type({word + 2})', height=570)
    draw.save(read_map("node"), DEMO / "node.svg")
    photograph(read_map("node"), DEMO / "node-page.png", '.jumok-node[data-target="0"][data-source="2"]')
    draw.save(read_map("caption"), DEMO.with_name("pictures") / "caption.png")
    photograph(read_map("caption"), DEMO / "caption-page.png", ".jumok-word:nth-of-type(4)")
