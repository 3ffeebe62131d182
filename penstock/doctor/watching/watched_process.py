"""What watches this process while loaders are watched: its threads' stacks, and what it uses."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator

from penstock.doctor.machine.step_events import find_cuda
from penstock.doctor.machine.usage import UsageSampler
from penstock.doctor.watching.stack_sampling import SampledThread, StackSampler, read_thread_cpu_ns
from penstock.doctor.watching.work_recorder import WorkRecorder

__all__ = ["WatchedProcess"]


class WatchedProcess:
    """The process of the script.

    Attributes
    ----------
    uses_device : bool
        Whether the script has begun to use CUDA, as far as :meth:`start` has seen.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.sampler = StackSampler()
        self.usage: UsageSampler | None = None
        self.uses_device = False
        self._is_running = False
        self._threads: dict[int, SampledThread] = {}
        self._recorders: list[WorkRecorder] = []

    def start(self) -> None:
        """Start the threads that watch. Called at each step. Idempotent."""
        self.uses_device = self.uses_device or find_cuda() is not None
        if self._is_running:
            return
        if self.usage is None:
            self.usage = UsageSampler(self.pid)
        self._is_running = True
        self.sampler.start()
        self.usage.start()

    @contextlib.contextmanager
    def starting_workers(self) -> Iterator[None]:
        """Stop this process's own threads while workers are forked; the next step starts them again."""
        self._is_running = False
        self.sampler.stop()
        if self.usage is not None:
            self.usage.pause()
        try:
            yield
        finally:
            if os.getpid() == self.pid:
                self.start()

    def stop(self) -> None:
        """Stop watching the process."""
        self.sampler.stop()
        if self.usage is not None:
            self.usage.stop()

    def current_thread(self) -> SampledThread:
        """Return the calling thread, as the sampler looks at it."""
        ident = threading.get_ident()
        thread = self._threads.get(ident)
        if thread is None:
            thread = self._threads[ident] = SampledThread()
            self.sampler.watch_thread(thread)
        return thread

    def add_recorder(self, work: WorkRecorder) -> None:
        """A thread of this process builds batches."""
        self._recorders.append(work)
        self.sampler.watch_thread(work.thread)

    def used_cpu_ns(self) -> int:
        """Return the processor time so far, without the sampling thread and the loader's threads."""
        used = time.process_time_ns() - self.sampler.cpu_ns
        for work in self._recorders:
            with contextlib.suppress(OSError):
                used -= read_thread_cpu_ns(work.thread.native_id)
        return used
