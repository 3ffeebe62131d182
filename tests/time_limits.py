"""Ends what a test has started when its time is up, then the runner, as pytest-timeout does.

A forked child holds copies of the runner's pipes. While one of them waits for ever, pytest-xdist does not see that the
runner has ended, and the whole run would wait with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import pytest_timeout


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: Any, settings: Any) -> bool | None:
    """The timer of the method "thread"; the other method, by a signal, ends the test alone."""
    if settings.method != "thread":
        return None
    timer = threading.Timer(settings.timeout, _end, (item, settings))

    def cancel() -> None:
        timer.cancel()
        timer.join()

    item.cancel_timeout = cancel
    timer.start()
    return True


def _end(item: Any, settings: Any) -> None:
    for pid in _descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    pytest_timeout.timeout_timer(item, settings)


def _descendants(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        tasks = Path(f"/proc/{pid}/task").glob("*/children")
        children = [int(child) for path in tasks for child in path.read_text().split()]
        return [*children, *(below for child in children for below in _descendants(child))]
    return []
