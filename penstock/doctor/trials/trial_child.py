"""What the child process of a trial does: it drains a changed loader, and tells when it gets each batch."""

from __future__ import annotations

import gc
import math
import multiprocessing
import random
import sys
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.doctor.trials.changed_loader import Change, apply_change
from penstock.doctor.watching.batch_layout import count_bytes

if TYPE_CHECKING:
    from penstock.doctor.trials.forked_child import Send
    from penstock.doctor.watching.loaders.loader_settings import WatchedLoader

__all__ = ["BATCH_TAKEN", "EPOCH_BEGUN", "NBYTES", "EmulatedTrainer", "StepShape", "TrialOrder", "drain"]

BATCH_TAKEN: Final = "batch"
"""Seconds of the clock follow."""
EPOCH_BEGUN: Final = "epoch"
"""Seconds of the clock follow."""
NBYTES: Final = "nbytes"
"""The bytes of the first batch's arrays follow."""

_CHUNK: Final = bytes(1 << 17)  # some tens of microseconds, in the caches; large enough for zlib to release the lock
_kept: Final[list[object]] = []
"""The iterator, so that its workers live until the group is killed: their memory is read, and no time is lost."""


@dataclass(frozen=True, slots=True)
class StepShape:
    """What a step of the script takes where it has the cores it wants."""

    wall_ns: float = 0.0  # its time, nanoseconds
    cpu_ns: float = 0.0  # its processor time, all threads


@dataclass(frozen=True, slots=True)
class TrialOrder:
    """The trial that a child runs."""

    change: Change  # of the loader
    step: StepShape  # how long each batch is held
    run_s: float  # seconds after the first round of the workers
    limit_s: float  # most seconds of all
    seed: int = 0  # of the global generators, from which samplers draw the order
    clock: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep


def drain(loader: WatchedLoader, order: TrialOrder, send: Send) -> None:
    """Take batches of the changed loader until ``run_s`` seconds have passed since the first round of the workers."""
    _forget_parent(order.seed)
    loader, trainer = apply_change(loader, order.change), EmulatedTrainer(order.step, order.sleep)
    end, taken, first_round = math.inf, 0, max(loader.num_workers, 2)
    while True:
        send(EPOCH_BEGUN, order.clock())
        before = taken
        iterator = iter(loader)
        _kept[:] = [iterator]
        for batch in iterator:
            taken += 1
            now = order.clock()
            send(BATCH_TAKEN, now)
            if taken == 1:
                send(NBYTES, count_bytes(batch))
            if taken == first_round:
                end = now + order.run_s
            trainer.hold()
            if order.clock() > end:
                return
        if taken == before:
            raise ValueError("the loader gives no batch")


def _forget_parent(seed: int) -> None:
    """Use no server process of the parent's, and no lock that it holds; draw another order than the last trial."""
    server = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    if server is not None:  # workers of the parent's server would outlive this group
        server._forkserver_address = server._forkserver_alive_fd = server._forkserver_pid = None  # noqa: SLF001
    _replace_held_locks()
    random.seed(seed)
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None:
        torch.default_generator.manual_seed(seed)
    if numpy is not None:
        numpy.random.seed(seed)


def _replace_held_locks() -> None:
    """Give this process new locks in the place of those of ``multiprocessing`` that are held.

    Whoever holds one is gone or has nothing to do with this process: workers of trials are killed, with any lock.
    """
    locks = sys.modules.get("multiprocessing.synchronize")
    if locks is None:
        return
    kinds, context = {locks.Lock, locks.RLock}, multiprocessing.get_context("fork")
    gc.unfreeze()  # frozen objects are not listed
    for held in gc.get_objects():
        if type(held) in kinds and held._semlock._is_zero():  # noqa: SLF001  # there is no public way
            held._semlock = type(held)(ctx=context)._semlock  # noqa: SLF001
            held._make_methods()  # noqa: SLF001
    gc.freeze()


class EmulatedTrainer:
    """Does nothing but take time: holds each batch as long as the script's step, with its processor time.

    Threads compute without the interpreter's lock, as a model does. What takes time without a processor (a device, a
    sleep) is slept. Work is counted in processor time, so a step takes longer where workers compete for the cores, as
    in training.
    """

    def __init__(self, shape: StepShape, sleep: Callable[[float], None] = time.sleep) -> None:
        cpu_ns = min(max(shape.cpu_ns, 0.0), 64 * shape.wall_ns)
        self._threads = max(1, math.ceil(cpu_ns / shape.wall_ns - 0.05)) if shape.wall_ns > 0 else 1
        self._cpu_ns = cpu_ns / self._threads
        self._sleep_s, self._sleep = max(shape.wall_ns - self._cpu_ns, 0.0) / 1e9, sleep
        self._pool = ThreadPoolExecutor(self._threads - 1) if self._threads > 1 else None

    def hold(self) -> None:
        """Take the time of one step."""
        others = [self._pool.submit(_compute, self._cpu_ns) for _ in range(self._threads - 1)] if self._pool else []
        _compute(self._cpu_ns)
        for other in others:
            other.result()
        if self._sleep_s > 0:
            self._sleep(self._sleep_s)


def _compute(cpu_ns: float) -> None:
    end = time.thread_time_ns() + cpu_ns
    while time.thread_time_ns() < end:
        zlib.crc32(_CHUNK)
