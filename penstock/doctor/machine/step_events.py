"""How long the device works on each step, and whether it is ahead of the script or behind: CUDA events.

::

    script   | launches kernels of step 1 | asks for a batch | launches step 2 |
    device      [begin]  kernels of step 1   [end]     [begin] kernels of step 2 ...

An event is recorded in the current stream where a step begins and where it ends; nothing waits for the device but the
very first step, which compares its clock with the script's. If the device ends a step when the script has just launched
it, then it waited for launches: the step is bound by Python. If it ends much later, the device is the slower one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from torch.cuda import Event

__all__ = ["StepEvents", "find_cuda"]

_MOST: Final = 100_000
"""Most steps of which events are kept."""

_NEAR: Final = 0.1
"""How far the device may be behind the script at the end of a step that is bound by launches, as a part of the step."""


@dataclass(slots=True)
class _Step:
    number: int
    begin: Event
    begin_ns: int  # of the script's clock
    end: Event
    end_ns: int = 0  # 0: it has not ended


class StepEvents:
    """Events of the steps of one script. Used by one thread, which launches the kernels.

    Does nothing as long as the script has not initialised CUDA, as asking would do so.

    ``torch``: takes the place of ``torch``; by default the module that the script has imported. ``clock``: gives
    nanoseconds.
    """

    def __init__(self, torch: ModuleType | None = None, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._torch, self._clock = torch, clock
        self._origin: Event | None = None
        self._origin_ns = 0
        self._steps: list[_Step] = []
        self._open: _Step | None = None

    def begin(self, number: int) -> None:
        """Step ``number`` begins: its batch has arrived."""
        cuda = find_cuda(self._torch)
        self._open = None
        if cuda is None or len(self._steps) >= _MOST:
            return
        if self._origin is None:
            self._origin = _record(cuda)
            self._origin.synchronize()
            self._origin_ns = self._clock()
        begin = _record(cuda)
        self._open = _Step(number, begin, self._clock(), begin)

    def end(self) -> None:
        """The step ends: the script asks for the next batch."""
        step, self._open, cuda = self._open, None, find_cuda(self._torch)
        if step is not None and cuda is not None:
            step.end, step.end_ns = _record(cuda), self._clock()
            self._steps.append(step)

    def device_ns(self, steps: int) -> npt.NDArray[np.int64]:
        """Nanoseconds from the first to the last of each step's work on the device, gaps between kernels included.

        Waits for the device. Called when the script has ended, and in its process.

        Parameters
        ----------
        steps : int
            How many there were.

        Returns
        -------
        int64[steps]
            For :attr:`~penstock.doctor.watching.recording.StepTimes.device_ns`; -1 where nothing was recorded.
        """
        found = np.full(steps, -1, np.int64)
        self._wait()
        for step in self._steps:
            if step.number < steps:
                found[step.number] = round(1e6 * step.begin.elapsed_time(step.end))
        return found

    def launch_bound(self) -> float | None:
        """Part of the steps at whose end the device was done when the script was, 0..1; waits for the device.

        Near 1 the device waits for Python, near 0 Python is ahead of the device. A step that synchronises (``.item()``,
        ``.cpu()``) counts as done: then the device may be busy nevertheless. None if no step was seen.
        """
        self._wait()
        origin = self._origin
        is_near = [
            1e6 * origin.elapsed_time(step.end) - (step.end_ns - self._origin_ns)
            < _NEAR * (step.end_ns - step.begin_ns)
            for step in self._steps
            if origin is not None
        ]
        return float(np.mean(is_near)) if is_near else None

    def _wait(self) -> None:
        if self._steps:
            self._steps[-1].end.synchronize()


def find_cuda(torch: ModuleType | None = None) -> ModuleType | None:
    """``torch.cuda``, if the script has initialised it; else None. Nothing is imported, and CUDA is not initialised.

    A script that forks its workers after CUDA was initialised would break, so nothing else is asked before.

    ``torch``: takes the place of ``torch``; by default the module that the script has imported.
    """
    torch = sys.modules.get("torch") if torch is None else torch
    cuda: ModuleType | None = getattr(torch, "cuda", None)
    is_initialized = getattr(cuda, "is_initialized", None)  # not there while torch is being imported
    return cuda if is_initialized is not None and is_initialized() else None


def _record(cuda: ModuleType) -> Event:
    event: Event = cuda.Event(enable_timing=True)
    event.record()
    return event
