"""Processor time of one thread of this process, which may have ended."""

from __future__ import annotations

import sys
import time

__all__ = ["read_thread_cpu_ns"]

_CLOCK_OF_THREAD = 6  # CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED, of Linux


def read_thread_cpu_ns(native_id: int) -> int:
    """Nanoseconds for which a thread has run.

    Parameters
    ----------
    native_id : int
        ``threading.Thread.native_id``. ``time.pthread_getcpuclockid`` reads the memory of the thread by its ``ident``,
        and crashes the process if the thread has ended; the kernel refuses the clock of a thread that is not there.

    Raises
    ------
    OSError
        If there is no such thread, or if this is not Linux.
    """
    if sys.platform != "linux":
        raise OSError("the processor time of a thread is read on Linux only")
    return time.clock_gettime_ns((~native_id << 3) | _CLOCK_OF_THREAD)
