"""What keeps people from using a page: nothing that axe-core calls serious, in light, in dark, and on a phone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import DESK, PHONE
from tests.browser.many import ManyStore

STATES = {"grid": "", "record": "index=3", "keys": ""}


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_nothing_serious(
    page: Page, viewer_url: Callable[..., str], find_barriers: Callable[[Page], list[str]], size: dict[str, int]
) -> None:
    """Of every page that a store has, of a record, and of the list of keys."""
    page.set_viewport_size(size)
    url = viewer_url(ManyStore(60))
    for name, state in STATES.items():
        page.goto("about:blank")
        page.goto(f"{url}#{state}")
        page.wait_for_selector(".grid-cell.ready")
        if name == "keys":
            page.keyboard.press("?")
            page.wait_for_selector("dialog.keys")
        if name == "record":
            page.wait_for_selector("dialog.record .facts")

        assert not find_barriers(page), name
    page.keyboard.press("Escape")
    for link in page.locator("#pages a").all():
        link.click()

        assert not find_barriers(page), link.inner_text()
