"""Faults for tests: a fork while another thread holds a lock, a system that refuses a call."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import get_context
from typing import Any

import pytest


def run_forked(target: Callable[..., None], *args: Any) -> None:
    """Run in a forked child, which must end well and soon."""
    process = get_context("fork").Process(target=target, args=args)
    process.start()
    process.join(60)
    if process.is_alive():
        process.kill()
        process.join()
        pytest.fail("the child waits for ever")

    assert process.exitcode == 0


@contextmanager
def held(lock: AbstractContextManager[Any]) -> Iterator[None]:
    """While the body runs, another thread has the lock."""
    taken, end = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        end.set()
        thread.join()


def refusing(number: int) -> Callable[..., Any]:
    """A call that the system refuses."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return refuse
