"""Opens a page in the browser of the user, where that has a window of its own."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from pathlib import PurePath
from typing import Final

__all__ = ["has_display", "open_browser"]

_IN_TERMINALS: Final = frozenset({"lynx", "w3m", "links", "elinks", "links2", "browsh", "www-browser"})
"""Browsers that would take the terminal, and do not run the page."""


def open_browser(url: str) -> None:
    """Open a page, without waiting for the browser; nothing happens where it would have no window."""
    if has_display():
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


def has_display() -> bool:
    """Return whether the browser that would be opened has a window of its own."""
    if sys.platform.startswith("linux") and not any(map(os.environ.get, ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))):
        return False
    try:
        found = webbrowser.get()
    except webbrowser.Error:
        return False
    return PurePath(getattr(found, "name", "")).name not in _IN_TERMINALS
