"""Threads of requests end with the tests of a module: workers are not forked beside threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from penstock.stores.remote import request_queue


@pytest.fixture(autouse=True, scope="module")
def no_thread_stays() -> Iterator[None]:
    """Threads that are not needed end soon, and are waited for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request_queue, "_IDLE_SECONDS", 0.2)
        yield
        limit = time.monotonic() + 20
        while time.monotonic() < limit and any(t.name == "penstock-fetch" for t in threading.enumerate()):
            time.sleep(0.02)
