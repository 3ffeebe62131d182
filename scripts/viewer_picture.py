"""Draw docs/view.webp, the picture of `penstock view` in README.md and docs/view.md (`make sheet`).

A headless Chromium opens the grid of blood cells of examples/data, with their boxes. Run by .venv-site, which has the
driver of the browser.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

import penstock as ps

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "view.webp"
CELLS = ROOT / "examples" / "data" / "blood-cells"
SIZE = {"width": 1200, "height": 640}
MOST_NBYTES = 150_000


def main() -> int:
    """Pack the photographs with their boxes, open the viewer, and keep what it shows."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        print("there is no Chromium; install one: apt-get install chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        pack = Path(folder, "blood-cells.lmdb")
        command = [sys.executable, "-m", "penstock", "pack", CELLS / "JPEGImages", pack, "--annotations", CELLS]
        subprocess.run([*command, "--format", "voc"], check=True)
        with ps.view(pack) as viewer, sync_playwright() as driver:
            browser = driver.chromium.launch(
                executable_path=program, args=["--no-sandbox"] if os.geteuid() == 0 else []
            )
            page = browser.new_page(viewport=SIZE, color_scheme="light", reduced_motion="reduce")
            page.goto(f"{viewer.url}#size=176")
            page.wait_for_selector("#cell-0.ready path", state="attached")
            page.keyboard.press("]")  # closes the panel of picked records
            for cell in range(9):
                page.wait_for_selector(f"#cell-{cell}.ready path", state="attached")
            page.keyboard.press("ArrowRight")
            page.wait_for_load_state("networkidle")
            shown = Image.open(io.BytesIO(page.screenshot()))
            browser.close()
    for quality in (82, 74, 66, 58):
        shown.convert("RGB").save(PICTURE, "WEBP", quality=quality, method=6)
        if PICTURE.stat().st_size <= MOST_NBYTES:
            break
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
