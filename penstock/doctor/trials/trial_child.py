"""What the child process of a trial does: it drains a changed loader, and tells when it gets each batch."""

from __future__ import annotations

import gc
import math
import multiprocessing
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.doctor.trials.changed_loader import Change, apply_change
from penstock.doctor.trials.emulated_trainer import EmulatedTrainer, StepShape
from penstock.doctor.watching.batch_layout import count_bytes

if TYPE_CHECKING:
    from penstock.doctor.trials.forked_child import Send
    from penstock.doctor.watching.loaders.loader_settings import WatchedLoader

__all__ = ["BATCH_TAKEN", "EPOCH_BEGUN", "NBYTES", "TrialOrder", "drain"]

BATCH_TAKEN: Final = "batch"
"""Seconds of ``time.perf_counter`` follow, and seconds until now in which the draining thread computed, and in which it
had no core to compute."""
EPOCH_BEGUN: Final = "epoch"
"""Seconds of ``time.perf_counter`` follow."""
NBYTES: Final = "nbytes"
"""The bytes of the first batch's arrays follow."""

_kept: Final[list[object]] = []
"""The iterator, so that its workers live until the group is killed: their memory is read, and no time is lost."""


@dataclass(frozen=True, slots=True)
class TrialOrder:
    """What a child does.

    Parameters
    ----------
    change : Change
        Of the loader.
    step : StepShape
        How long each batch is held.
    run_s : float
        Seconds after the first round of the workers.
    limit_s : float
        Most seconds of all.
    seed : int
        Of the global generators, from which samplers draw the order.
    """

    change: Change
    step: StepShape
    run_s: float
    limit_s: float
    seed: int = 0


def drain(loader: WatchedLoader, order: TrialOrder, send: Send) -> None:
    """Take batches of the changed loader until ``run_s`` seconds have passed since the first round of the workers."""
    _forget_parent(order.seed)
    loader, trainer = apply_change(loader, order.change), EmulatedTrainer(order.step)
    end, taken = math.inf, 0
    first_round = max(loader.num_workers, 2)
    while True:
        send(EPOCH_BEGUN, time.perf_counter())
        before = taken
        iterator = iter(loader)
        _kept[:] = [iterator]
        for batch in iterator:
            taken += 1
            now = time.perf_counter()
            send(BATCH_TAKEN, now, time.thread_time(), _read_run_delay())
            if taken == 1:
                send(NBYTES, count_bytes(batch)[0])
            if taken == first_round:
                end = now + order.run_s
            trainer.hold()
            if time.perf_counter() > end:
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


def _read_run_delay(schedstat: Path = Path("/proc/self/schedstat")) -> float:
    """Seconds in which this process's main thread could have run, but had no core; 0 where that is not known."""
    try:
        return int(schedstat.read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
