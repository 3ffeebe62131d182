"""Claim: a page of `penstock view` scrolls through 1,000,000 records without a gap over 100 ms, in less than 300 MB.

In headless Chromium of 1,280 x 800 pixels, against `penstock view` in a process of its own. The first screen is there
when the pictures of all cells that are seen are; counted from the request for the page. Then the grid is scrolled: by
the wheel, 40 pixels for each frame; by its bar from the first record to the last, in 300 steps of one frame. A gap is
the time between two frames (`requestAnimationFrame`). Memory is that of the page's process (PSS) at the end, which
holds Chromium's own code as far as it is used.

Needs .venv-site (`make site` or `make test-browser` makes it) and a Chromium.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import arguments, machine, versions
from viewer import RECORDS, read_memory_mb, write_pack

SITE = Path(__file__).resolve().parent.parent / ".venv-site" / "bin" / "python"
FIRST_SCREEN = """() => new Promise((done) => {
  const look = () => {
    const grid = document.querySelector(".grid");
    const seen = [...document.querySelectorAll(".grid-cell:not(.outside)")].filter((cell) => {
      const own = cell.getBoundingClientRect();
      return own.bottom > 0 && own.top < grid.getBoundingClientRect().bottom;
    });
    if (seen.length && seen.every((cell) => cell.classList.contains("ready"))) done([performance.now(), seen.length]);
    else requestAnimationFrame(look);
  };
  look();
})"""
SCROLL = """(steps) => new Promise((done) => {
  const grid = document.querySelector(".grid");
  const gaps = [];
  let before = performance.now(), step = 0;
  const turn = (now) => {
    gaps.push(performance.now() - before);
    before = performance.now();
    step += 1;
    if (step > 300) { done(gaps.slice(1)); return; }
    if (steps === "bar") grid.scrollTop = grid.scrollHeight * step / 300; else grid.scrollTop += 40;
    requestAnimationFrame(turn);
  };
  requestAnimationFrame(turn);
})"""


def measure(browser: Any, pack: Path) -> dict[str, list[float]]:
    """The first screen and the gaps of a new page of a new server, in milliseconds, and megabytes."""
    command = [sys.executable, "-m", "penstock", "view", str(pack), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = next(found[0] for line in server.stdout if (found := re.search(r"http://\S+", line)))
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        page = context.new_page()
        page.goto(url, wait_until="commit")
        first_ms, cells = page.evaluate(FIRST_SCREEN)
        wheel = page.evaluate(SCROLL, "wheel")
        bar = page.evaluate(SCROLL, "bar")
        page.evaluate(FIRST_SCREEN)
        assert page.locator(f"#cell-{RECORDS - 1}").count() == 1, "the last record is seen"
        elements = page.evaluate("document.querySelectorAll('*').length")
        processes = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
        page_mb = max(read_memory_mb(each["id"]) for each in processes if each["type"] == "renderer")
        server_mb = read_memory_mb(server.pid)
        context.close()
        server.terminate()
    return {
        "first screen, ms": [first_ms], "cells of it": [cells], "gaps by the wheel, ms": wheel,
        "gaps by the bar, ms": bar, "elements": [elements], "memory of the page, MB": [page_mb],
        "memory of the server, MB": [server_mb],
    }  # fmt: skip


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rounds=3)
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        print("Not measured: there is no Chromium; install one: apt-get install chromium")
        return
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        if not SITE.exists() or Path(sys.executable) == SITE:
            print("Not measured: there is no .venv-site; `make test-browser` makes it.")
            return
        os.execv(SITE, [str(SITE), *sys.argv])
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as driver:
        pack = Path(scratch) / "million.lmdb"
        write_pack(pack, RECORDS)
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        measure(browser, pack)  # the first reads files that are not in the page cache
        rounds = [measure(browser, pack) for _ in range(options.rounds)]
        version = browser.version
        browser.close()
    print(f"### A page of {RECORDS:,} records\n")
    packages = versions("penstock-data", "starlette", "uvicorn")
    print(f"{options.rounds} rounds; Chromium {version}; {machine()}; {packages}.\n")
    print("| | median | 99 % | largest | over 100 ms |")
    print("|---|---|---|---|---|")
    for name in rounds[0]:
        values = sorted(value for each in rounds for value in each[name])
        share = values[min(len(values) - 1, int(len(values) * 0.99))]
        late = f"{sum(value > 100 for value in values)} of {len(values)}" if "gaps" in name else ""
        print(f"| {name} | {statistics.median(values):.1f} | {share:.1f} | {values[-1]:.1f} | {late} |")


if __name__ == "__main__":
    main()
