"""A headless Chromium, for tests that open pages: the documentation's site and the viewer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

__all__ = ["open_chromium"]


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
        opened = driver.chromium.launch(executable_path=program, args=arguments)
        yield opened
        opened.close()
