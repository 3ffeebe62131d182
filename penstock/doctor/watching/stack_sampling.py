"""Which stage a thread is in, found by looking at its stack every few milliseconds.

::

    thread that works                                 sampling thread, every 5 to 50 ms
       activity = "sample" ── dataset[index] ──┐         frame = current_frames()[thread]
       activity = "step" ── the script ────────┴──────>  classify(frame): read, decode, augment, copy ...
                                                         activity.weights[stage] += time since the last look

The thread that works is not slowed: it sets an attribute. A look costs 50 to 100 us, half of it for the interpreter's
lock, so that looks get rarer after the first ones. A stack is judged by :mod:`penstock.doctor.watching.stack_stages`.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
import types
import weakref
from typing import Final

from penstock.doctor.watching.stack_stages import Kind, classify
from penstock.workers.stack_frames import current_frames

__all__ = ["Activity", "SampledThread", "StackSampler", "read_thread_cpu_ns"]

_FAST_S: Final = 0.005
_SLOW_S: Final = 0.0125
_SLOWEST_S: Final = 0.05
_FAST_LOOKS: Final = 24
_MANY_LOOKS: Final = 80
_MOST_SHARE: Final = 0.002
"""Most processor time of the looks after the first ones, as a part of a core; but they are never further apart than
:data:`_SLOWEST_S`, after many of them than twice as much. The thread that is interrupted loses about as much again."""
_WAITING_SHARE: Final = 0.7
"""Of the time since the last look in which a thread was not kept from running: from here on, it waits."""
_LEAST_OWN_NS: Final = 200_000
_LOOK_SWITCH_S: Final = 0.00005
_WAIT_SWITCH_S: Final = 0.0005
"""Switch intervals: while a look is due, and while one is waited for, if one thread works."""
_CLOCK_OF_THREAD: Final = 6  # CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED, of Linux


class Activity:
    """What a thread does at the moment, and what was seen of it.

    Parameters
    ----------
    kind : {"sample", "step"}
        Decides which stages are looked for.
    since : int
        When it began.

    Attributes
    ----------
    weights : dict of str to int
        Nanoseconds by stage: each look stands for the time since the one before, whatever the thread did then. So
        the beginning of a call that is shorter than this time counts as much as its end.
    """

    __slots__ = ("kind", "since", "weights")

    def __init__(self, kind: Kind, since: int = 0) -> None:
        self.kind: Kind = kind
        self.since = since
        self.weights: dict[str, int] = {}

    def add(self, stage: str, weight_ns: int) -> None:
        """Add what was seen."""
        self.weights[stage] = self.weights.get(stage, 0) + weight_ns


class SampledThread:
    """A thread to look at.

    ``ident`` and ``native_id``: by default the current thread's.
    """

    __slots__ = ("__weakref__", "_before", "_looked", "_schedstat", "_seen", "activity", "ident", "native_id")

    def __init__(self, ident: int | None = None, native_id: int | None = None) -> None:
        self.ident = threading.get_ident() if ident is None else ident
        self.native_id = threading.get_native_id() if native_id is None else native_id
        self.activity: Activity | None = None
        self._seen = self._looked = 0
        self._schedstat: int | None = None  # a descriptor: the file is read at each look
        self._before: tuple[int, int, int] | None = None

    def rest(self, now: int) -> None:
        """The thread does nothing that is looked at."""
        self._looked = now

    def look(self, frame: types.FrameType, now: int) -> None:
        """Add the time since the last look to a stage of the thread's activity."""
        activity, looked, self._looked = self.activity, self._looked, now
        if activity is None:
            return
        start = max(activity.since, self._seen)
        waited, delayed = self._look_at_clocks(now)
        self._seen = now
        if now > start:
            stage, weight = classify(frame, activity.kind, waits=waited > _WAITING_SHARE), now - (looked or start)
            activity.add(stage, round(weight * (1 - delayed)))  # other programs had the processor for the rest

    def _look_at_clocks(self, now: int) -> tuple[float, float]:
        """Return which part of the time since the last look the thread waited for something; for a processor."""
        clocks = self._read_clocks()
        if clocks is None:
            return 0.0, 0.0
        running, delay = clocks
        before, self._before = self._before, (now, running, delay)
        if before is None or now <= before[0]:
            return 0.0, 0.0
        elapsed = now - before[0]
        delayed = min(1.0, max(0.0, (delay - before[2]) / elapsed))
        own = elapsed - (delay - before[2])
        waited = 1 - (running - before[1]) / own if own > _LEAST_OWN_NS else 0.0
        return waited, delayed

    def _read_clocks(self) -> tuple[int, int] | None:
        """Nanoseconds for which the thread has run, and has waited for a processor; None if they cannot be known."""
        if self._schedstat is None:
            try:
                descriptor = os.open(f"/proc/self/task/{self.native_id}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                self._schedstat = -1
            else:
                self._schedstat = descriptor
                weakref.finalize(self, os.close, descriptor)
        try:
            if self._schedstat >= 0:
                running, delay, _ = os.pread(self._schedstat, 100, 0).split()
                return int(running), int(delay)
            return read_thread_cpu_ns(self.native_id), 0
        except (OSError, AttributeError, ValueError):
            return None


class StackSampler:
    """A thread of this process that looks at others.

    Attributes
    ----------
    cpu_ns : int
        Processor time that it has used.
    """

    def __init__(self) -> None:
        self.cpu_ns = 0
        self._threads: dict[int, SampledThread] = {}
        self._running: threading.Lock | None = None  # held while the thread is to run: cheaper than an event
        self._thread: threading.Thread | None = None
        self._looks = 0
        self._random = random.Random()  # of its own: the script's generators are not touched

    def watch_thread(self, thread: SampledThread) -> None:
        """Look at a thread from now on."""
        self._threads[thread.ident] = thread

    def start(self) -> None:
        """Start the sampling thread. Idempotent."""
        if self._thread is None:
            running = self._running = threading.Lock()
            running.acquire()
            self._thread = threading.Thread(target=self._run, args=(running,), name="penstock-doctor", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the sampling thread. Idempotent."""
        thread, running, self._thread, self._running = self._thread, self._running, None, None
        if thread is not None and running is not None:
            running.release()
            thread.join(2.0)

    def _run(self, running: threading.Lock) -> None:
        before, used, cost_ns = self.cpu_ns, 0, 0.0
        period_s = _FAST_S if self._looks < _FAST_LOOKS else _SLOW_S
        while not self._wait(running, period_s) and not self._wait_for_any_moment(running):
            self._looks += 1
            self._look()
            now = time.thread_time_ns()
            cost_ns += (now - used - cost_ns) / min(self._looks, 16)
            used, self.cpu_ns = now, before + now
            if self._looks >= _FAST_LOOKS:
                slowest_s = _SLOWEST_S if self._looks < _MANY_LOOKS else 2 * _SLOWEST_S
                period_s = min(max(_SLOW_S, cost_ns / 1e9 / _MOST_SHARE), slowest_s)

    def _wait(self, running: threading.Lock, period_s: float) -> bool:
        """Wait for the next look; True if ``running``.

        Who wants the interpreter's lock waits for the switch interval anew each time that another thread lets go of the
        lock and takes it back at once. A single thread that reads every millisecond would never be looked at; it loses
        nothing by a short interval.
        """
        if sum(thread.activity is not None for thread in list(self._threads.values())) > 1:
            return running.acquire(timeout=period_s)
        return _acquire(running, period_s, _WAIT_SWITCH_S)

    def _wait_for_any_moment(self, running: threading.Lock) -> bool:
        """Wait a little again, so that a look is not at a moment that the other threads choose; True if ``running``.

        A thread that wants the interpreter's lock gets it where another one lets go of it: in most cases when that one
        reads, and no later than after the switch interval, 5 ms. Looks would then find threads that read now and then
        always reading. With a short interval, the moment is the one that was drawn.
        """
        if all(thread.activity is None for thread in list(self._threads.values())):
            return False
        return _acquire(running, self._random.uniform(_LOOK_SWITCH_S, _FAST_S), _LOOK_SWITCH_S)

    def _look(self) -> None:
        threads = list(self._threads.values())
        if all(thread.activity is None for thread in threads):  # nobody works
            for thread in threads:
                thread.rest(time.perf_counter_ns())
            return
        frames = current_frames()
        now = time.perf_counter_ns()
        for thread in threads:
            frame = frames.get(thread.ident)
            if frame is not None:
                thread.look(frame, now)


def _acquire(lock: threading.Lock, timeout_s: float, switch_interval_s: float) -> bool:
    """Wait for a lock, during which the interpreter's switch interval is not longer than this one."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(min(interval_s, switch_interval_s))
    try:
        return lock.acquire(timeout=timeout_s)
    finally:
        sys.setswitchinterval(interval_s)


def read_thread_cpu_ns(native_id: int) -> int:
    """Nanoseconds for which a thread has run.

    ``native_id``: ``threading.Thread.native_id``. ``time.pthread_getcpuclockid`` reads the memory of the thread by its
    ``ident``, and crashes the process if the thread has ended; the kernel refuses the clock of a thread that is not
    there. Raises OSError if there is no such thread, or if this is not Linux.
    """
    if sys.platform != "linux":
        raise OSError("the processor time of a thread is read on Linux only")
    return time.clock_gettime_ns((~native_id << 3) | _CLOCK_OF_THREAD)
