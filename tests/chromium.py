"""A headless Chromium, for tests that open pages: the documentation's site and the viewer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

__all__ = ["PATIENCE_S", "open_chromium"]

PATIENCE_S: Final = 60
"""How long anything is waited for; it is there in a fraction of a second, on a machine that has time."""

expect.set_options(timeout=PATIENCE_S * 1000)


@contextmanager
def open_chromium() -> Iterator[Browser]:
    """The Chromium of this machine; without one, the test is skipped."""
    program = next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
    )
    if program is None:
        pytest.skip("there is no Chromium; install one: apt-get install chromium")
    with sync_playwright() as driver:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = driver.chromium.launch(executable_path=program, args=arguments, timeout=PATIENCE_S * 1000)
        yield opened
        opened.close()
