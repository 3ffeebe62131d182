"""Processor time of the whole machine since its start: ``/proc/stat``."""

from __future__ import annotations

import os
from dataclasses import dataclass

from penstock.doctor.machine.system_files import SystemFiles

__all__ = ["ProcessorTimes"]


@dataclass(frozen=True, slots=True)
class ProcessorTimes:
    """Seconds, summed over all cores.

    Parameters
    ----------
    busy_s : float
        In which programs or the kernel ran.
    idle_s : float
        In which nothing ran; ``waiting_s`` of it while a disk was waited for.
    waiting_s : float
        See ``idle_s``.
    stolen_s : float
        In which something could have run here, but the hypervisor ran another machine.
    """

    busy_s: float
    idle_s: float
    waiting_s: float
    stolen_s: float

    @classmethod
    def read(cls, files: SystemFiles) -> ProcessorTimes | None:
        """The times up to now; None if they cannot be read."""
        first, *_ = (files.read("/proc/stat") or "").splitlines() or [""]
        name, *words = first.split() or [""]
        ticks = [int(word) / os.sysconf("SC_CLK_TCK") for word in words if word.isdecimal()]
        if name != "cpu" or len(ticks) < 4:
            return None
        user, nice, system, idle, waiting, interrupts, soft_interrupts, stolen = [*ticks, 0.0, 0.0, 0.0, 0.0][:8]
        return cls(user + nice + system + interrupts + soft_interrupts, idle + waiting, waiting, stolen)

    @property
    def all_s(self) -> float:
        """All of it: cores times time."""
        return self.busy_s + self.idle_s + self.stolen_s
