"""The processor time of a thread is read also if the thread may have ended."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from penstock.doctor.watching.stack_sampling import read_thread_cpu_ns

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's clocks of threads are Linux's")


def test_it_is_the_time_of_the_thread() -> None:
    """Between two readings of the thread's own clock."""
    before = time.thread_time_ns()
    used = read_thread_cpu_ns(threading.get_native_id())
    after = time.thread_time_ns()

    assert before <= used <= after


def test_a_thread_that_has_ended_is_an_error() -> None:
    """It crashes nothing, however many threads have ended."""
    threads = [threading.Thread(target=int) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    for thread in threads:
        assert thread.native_id is not None
        while Path(f"/proc/self/task/{thread.native_id}").exists():
            time.sleep(0.001)  # join() returns a little before the kernel's thread ends
        with pytest.raises(OSError, match="Invalid argument"):
            read_thread_cpu_ns(thread.native_id)
