"""The child process of a trial: drains a changed loader, and writes what it gets to a pipe.

It begins a process group, so that it can be killed with its workers, and ends without the script's exit handlers. It
stays in the script's session: Linux may share processors equally among sessions, and a trial is to get what the script
gets. Its output goes nowhere. An alarm ends it if its parent has died.
"""

from __future__ import annotations

import contextlib
import gc
import math
import multiprocessing
import os
import random
import struct
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.doctor.trials.changed_loader import Change, apply_change
from penstock.doctor.trials.emulated_trainer import EmulatedTrainer, StepShape
from penstock.doctor.trials.forked_child import begin_child
from penstock.doctor.watching.batch_layout import count_bytes

__all__ = ["BATCH_TAKEN", "EPOCH_BEGUN", "FAILED", "FINISHED", "NBYTES", "ROW", "TrialOrder", "run_child"]

ROW: Final = struct.Struct("<bddd")
"""A row of the pipe: its kind; seconds of ``time.perf_counter``; two values."""
BATCH_TAKEN: Final = 0
"""The values are seconds until now in which the draining thread computed, and in which it had no core to compute."""
EPOCH_BEGUN: Final = 1
NBYTES: Final = 2
"""The first value is the bytes of the first batch's arrays."""
FAILED: Final = 3
"""The text of the error follows, written at once with its row. It is the last row."""
FINISHED: Final = 4
"""The last row. The end of the pipe does not say it, since workers have the pipe too."""

_TEXT_BYTES: Final = 300
_MOST_ALARM_S: Final = 3600
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


def run_child(loader: Any, order: TrialOrder, receiver: int, sender: int) -> None:
    """The child's whole life: drain ``loader``, write to ``sender``, and end the process."""
    try:
        os.setpgid(0, 0)
        os.close(receiver)
        begin_child(min(_MOST_ALARM_S, order.limit_s))
        _forget_parent(order.seed)
        _drain(apply_change(loader, order.change), EmulatedTrainer(order.step), order.run_s, sender)
        os.write(sender, ROW.pack(FINISHED, time.perf_counter(), 0.0, 0.0))
    except BaseException as error:  # noqa: BLE001  # the user's code may raise anything: it is reported
        text = _describe_error(error).encode()[:_TEXT_BYTES]
        with contextlib.suppress(OSError):
            os.write(sender, ROW.pack(FAILED, time.perf_counter(), 0.0, 0.0) + text)
    finally:
        # The parent reads the memory of the workers, then kills the group; what is not killed ends with the alarm.
        time.sleep(_MOST_ALARM_S)
        os._exit(0)


def _describe_error(error: BaseException) -> str:
    """One line: the last one of a worker's traceback says why, but for the place that penstock's loader adds."""
    lines = f"{type(error).__name__}: {error}".strip().splitlines()
    return next((line for line in reversed(lines) if not line.startswith(("[", " "))), lines[-1])


def _forget_parent(seed: int) -> None:
    """Use no server process of the parent's, and none of its threads; draw another order than the last trial."""
    server = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    if server is not None:  # workers of the parent's server would outlive this group
        server._forkserver_address = server._forkserver_alive_fd = server._forkserver_pid = None  # noqa: SLF001
    _replace_held_locks()
    random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)  # threads of OpenMP do not survive a fork
        torch.default_generator.manual_seed(seed)
    numpy = sys.modules.get("numpy")
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
    for held in gc.get_objects():
        if type(held) in kinds and held._semlock._is_zero():  # noqa: SLF001  # there is no public way
            held._semlock = type(held)(ctx=context)._semlock  # noqa: SLF001
            held._make_methods()  # noqa: SLF001


def _drain(loader: Any, trainer: EmulatedTrainer, run_s: float, sender: int) -> None:
    """Take batches until ``run_s`` seconds have passed since the first round of the workers."""
    end, taken = math.inf, 0
    first_round = max(loader.num_workers, 2)
    while True:
        os.write(sender, ROW.pack(EPOCH_BEGUN, time.perf_counter(), 0.0, 0.0))
        before = taken
        iterator = iter(loader)
        _kept[:] = [iterator]
        for batch in iterator:
            taken += 1
            now = time.perf_counter()
            os.write(sender, ROW.pack(BATCH_TAKEN, now, time.thread_time(), _read_run_delay()))
            if taken == 1:
                os.write(sender, ROW.pack(NBYTES, now, float(count_bytes(batch)[0]), 0.0))
            if taken == first_round:
                end = now + run_s
            trainer.hold()
            if time.perf_counter() > end:
                return
        if taken == before:
            raise ValueError("the loader gives no batch")


def _read_run_delay(schedstat: Path = Path("/proc/self/schedstat")) -> float:
    """Seconds in which this process's main thread could have run, but had no core; 0 where that is not known."""
    try:
        return int(schedstat.read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
