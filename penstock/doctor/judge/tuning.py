"""Chooses ``num_workers`` and ``prefetch_factor``: the fewest workers within 2 % of the best, and a budget of memory.

::

    one run without workers   whether it gives batches, and their size           ─┐
    one run with workers      memory of a worker                                 ─┴─> settings that fit in memory
    runs in turns             no worker, one, as many as cores, twice as many, as it is now, and the rules of thumb
                              then beyond the best number where it is the last one, else towards it

Runs are trials (:mod:`penstock.doctor.trials.trials`): nothing is trained, and the loader is not changed.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final, cast

from penstock.doctor.trials.changed_loader import Change
from penstock.doctor.trials.trial_child import StepShape, TrialOrder
from penstock.doctor.trials.trials import Trial, run_trial
from penstock.errors import ArgumentError
from penstock.system.control_group import count_usable_cores
from penstock.wording import counted

if TYPE_CHECKING:
    from penstock.doctor.watching.loaders.loader_settings import WatchedLoader

__all__ = ["TunedSetting", "Tuning", "tune"]

_TOLERANCE: Final = 0.02
_MOST_WORKERS_A_CORE: Final = 4
_PREFETCH: Final = (2, 4, 8)
_TURNS: Final = 5
_SHARE_OF_PROBES: Final = 0.2


@dataclass(slots=True)
class TunedSetting:
    """One setting, and what it gives.

    Parameters
    ----------
    num_workers, prefetch_factor : int
        The setting; ``prefetch_factor`` is 0 without workers.
    memory_bytes : int
        Of all workers and the batches ahead.
    why : str
        Why it was measured.
    measured : list of float
        Batches per second, run by run; empty if there was no time.
    turns : list of int
        The turn of each run. Settings are compared within turns, since a machine is not always equally fast.
    """

    num_workers: int
    prefetch_factor: int
    memory_bytes: int
    why: str = ""
    measured: list[float] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)

    def record(self, turn: int, batches_per_s: float) -> None:
        """Add the speed of a run, and its turn."""
        self.measured.append(batches_per_s)
        self.turns.append(turn)

    def ratio_to(self, other: TunedSetting) -> float:
        """Return its speed divided by that of ``other``: the median over their common turns."""
        speeds = dict(zip(other.turns, other.measured, strict=True))
        ratios = [speed / speeds[turn] for turn, speed in zip(self.turns, self.measured, strict=True) if turn in speeds]
        return statistics.median(ratios) if ratios else self.batches_per_s / max(other.batches_per_s, 1e-9)

    @property
    def batches_per_s(self) -> float:
        """The median of the measured speeds; 0 if there are none."""
        return statistics.median(self.measured) if self.measured else 0.0


@dataclass(frozen=True, slots=True)
class Tuning:
    """What was chosen. ``print`` shows it as text.

    Parameters
    ----------
    best : TunedSetting
        The choice.
    settings : list of TunedSetting
        All that were measured, by their number of workers.
    cores : int
        That this process may use.
    worker_bytes, batch_bytes : int
        Memory of one worker; of one batch.
    seconds : float
        That it took.
    """

    best: TunedSetting
    settings: list[TunedSetting]
    cores: int
    worker_bytes: int
    batch_bytes: int
    seconds: float

    @property
    def code(self) -> str:
        """The line of code that makes the best loader."""
        prefetch = f", prefetch_factor={self.best.prefetch_factor}" if self.best.num_workers else ""
        return f"DataLoader(..., num_workers={self.best.num_workers}{prefetch})"

    def to_json(self) -> dict[str, object]:
        """Convert to dicts, lists, strings and numbers."""
        return {"code": self.code, **asdict(self)}

    def __str__(self) -> str:
        free = max(self.cores - self.best.num_workers, 0)
        lines = [self.code, ""]
        lines.append(
            f"{counted(self.best.num_workers, 'worker')} on {counted(self.cores, 'core')}, {free} left; "
            f"{self.best.memory_bytes / 1e6:,.0f} MB for workers and batches ahead; found in {self.seconds:.0f} s."
        )
        lines += ["", f"{'workers':>8}{'prefetch':>10}{'batches/s':>11}{'spread':>16}{'MB':>8}  "]
        for setting in self.settings:
            mark = "*" if setting is self.best else " "
            spread = f"{min(setting.measured):.1f}..{max(setting.measured):.1f}" if setting.measured else ""
            lines.append(
                f"{mark}{setting.num_workers:>7}{setting.prefetch_factor:>10}{setting.batches_per_s:>11.1f}{spread:>16}"
                f"{setting.memory_bytes / 1e6:>8,.0f}  {setting.why}".rstrip()
            )
        return "\n".join(lines)


def tune(
    loader: object,
    *,
    step_s: float = 0.0,
    step_cpu_s: float = 0.0,
    memory_bytes: int | None = None,
    budget_s: float = 30.0,
    progress: Callable[[str], None] | None = None,
) -> Tuning:
    """Find the fewest workers that feed a trainer as well as any number.

    Parameters
    ----------
    loader : torch or penstock DataLoader
        Of torch or penstock, with worker processes or without workers. It is iterated in child processes only.
    step_s : float
        Seconds in which the trainer uses one batch; 0: batches are wanted as fast as they come.
    step_cpu_s : float
        Processor time in it, all threads.
    memory_bytes : int, optional
        Most memory for workers and the batches ahead.
    budget_s : float
        Most seconds.
    progress : callable, optional
        Told in words what is measured.

    Returns
    -------
    Tuning
        The choice, the settings that were measured beside it, and the line of code.

    Raises
    ------
    ArgumentError
        If ``loader`` gives no batch, or nothing fits in ``memory_bytes``.
    """
    if not hasattr(loader, "num_workers") or not hasattr(loader, "dataset"):
        raise ArgumentError(f"loader must be a DataLoader of torch or penstock, got {type(loader).__name__}")
    return _Tuner(
        cast("WatchedLoader", loader), StepShape(step_s * 1e9, step_cpu_s * 1e9), memory_bytes, budget_s, progress
    ).run()


@dataclass(slots=True)
class _Tuner:
    """One search for the number of workers and for ``prefetch_factor``."""

    loader: WatchedLoader
    step: StepShape
    memory_bytes: int | None
    budget_s: float
    progress: Callable[[str], None] | None
    run_one: Callable[..., Trial] = run_trial
    cores: int = field(default_factory=count_usable_cores)
    worker_bytes: int = 0
    batch_bytes: int = 0
    _begun: float = field(default_factory=time.perf_counter)

    def run(self) -> Tuning:
        """Probe the loader, measure settings that fit in memory, and choose one."""
        self._probe()
        possible = self._list_possible()
        if not possible:
            raise ArgumentError(
                f"memory_bytes must have room for a batch of {self.batch_bytes} bytes, got {self.memory_bytes}"
            )
        chosen = self._choose_settings(possible)
        self._measure(chosen, possible)
        chosen.sort(key=lambda setting: (setting.num_workers, setting.prefetch_factor))
        best = self._choose_best(chosen)
        seconds = time.perf_counter() - self._begun
        return Tuning(best, chosen, self.cores, self.worker_bytes, self.batch_bytes, seconds)

    @property
    def _left_s(self) -> float:
        return self._begun + self.budget_s - time.perf_counter()

    def _probe(self) -> None:
        """Measure the size of a batch and the memory of a worker."""
        run_s = max(0.5, self.budget_s * _SHARE_OF_PROBES / 2)
        serial = self._run(0, 0, run_s, StepShape(), why="a batch without workers")
        if serial.error or serial.batches < 2:
            raise ArgumentError(f"loader must give batches: {serial.error or 'it gave none in time'}")
        self.batch_bytes = serial.batch_nbytes
        parallel = self._run(min(2, self.cores), 2, run_s, StepShape(), why="a worker", measure_memory=True)
        self.worker_bytes = parallel.worker_pss_bytes

    def _run(
        self, workers: int, prefetch: int, run_s: float, step: StepShape, why: str, *, measure_memory: bool = False
    ) -> Trial:
        if self.progress is not None:
            self.progress(f"{counted(workers, 'worker')}, prefetch_factor={prefetch}: {why}")
        arguments = {"num_workers": workers, "prefetch_factor": prefetch or None}
        limit_s = max(min(self._left_s, 4 * run_s + 10), run_s)
        order = TrialOrder(Change(arguments), step, run_s, limit_s)
        return self.run_one(self.loader, order, measure_memory=measure_memory)

    def _list_possible(self) -> dict[tuple[int, int], TunedSetting]:
        """List all settings that fit in memory."""
        found = {}
        for number in range(max(_MOST_WORKERS_A_CORE * self.cores, self.loader.num_workers, 4) + 1):
            for prefetch in _PREFETCH if number else (0,):
                memory = number * self.worker_bytes + number * prefetch * self.batch_bytes
                if self.memory_bytes is None or memory + self.batch_bytes <= self.memory_bytes:
                    found[number, prefetch] = TunedSetting(number, prefetch, memory)
        return found

    def _choose_settings(self, possible: dict[tuple[int, int], TunedSetting]) -> list[TunedSetting]:
        """Choose the settings that are measured first."""
        present, wanted = self.loader.num_workers, dict[tuple[int, int], list[str]]()
        for key, why in (
            ((0, 0), "no worker"),
            ((1, 2), "one worker"),
            ((self.cores, 2), "rule of thumb: workers = cores"),
            ((2 * self.cores, 2), "twice as many"),
            ((4 * _count_devices(), 2), "rule of thumb: 4 x GPUs"),
            ((present, (self.loader.prefetch_factor or 2) if present else 0), "as it is now"),
        ):
            wanted.setdefault(key, []).append(why)
        chosen = []
        for key, reasons in wanted.items():
            setting = possible.get(key)
            if setting is not None:
                setting.why = "; ".join(reasons)
                chosen.append(setting)
        return chosen

    def _measure(self, settings: list[TunedSetting], possible: dict[tuple[int, int], TunedSetting]) -> None:
        """Measure ``settings`` in turns, as long as time allows, and add those that the results call for."""
        slowest_s, turn = 0.0, 0
        while turn < _TURNS:
            left = self._left_s
            if turn and left < len(settings) * slowest_s:
                return
            run_s = min(max(left / (max(1, 2 - turn) * len(settings)) - 1.0, 0.4), 2.0)
            for setting in settings if turn % 2 == 0 else settings[::-1]:
                if self._left_s < run_s and setting.measured:
                    return
                begun = time.perf_counter()
                trial = self._run(setting.num_workers, setting.prefetch_factor, run_s, self.step, setting.why)
                slowest_s = max(slowest_s, time.perf_counter() - begun)
                if trial.batches_per_s and not trial.error:
                    setting.record(turn, trial.batches_per_s)
            further = self._find_further(settings, possible)
            settings += [further] if further is not None else []
            turn += 1

    @classmethod
    def _find_further(
        cls, settings: list[TunedSetting], possible: dict[tuple[int, int], TunedSetting]
    ) -> TunedSetting | None:
        """Return a number beyond the best one if it is the last on a side, else one between it and a neighbour.

        First of those below it, since fewer workers are better.
        """
        measured = sorted((each for each in settings if each.measured), key=lambda setting: setting.num_workers)
        if not measured:
            return None
        best, numbers = cls._choose_best(measured).num_workers, sorted({number for number, _ in possible})
        tried = {setting.num_workers for setting in settings}
        lower, upper = max((n for n in tried if n < best), default=-1), min((n for n in tried if n > best), default=-1)
        wanted = []
        if upper < 0:
            wanted += [number for number in numbers if number >= 1.5 * best][:1] or numbers[-1:]
        if lower < 0:
            wanted += [number for number in numbers if number < best][-1:]
        else:
            wanted.append((lower + best) // 2)
        wanted.append((best + upper + 1) // 2)
        further = next(
            (possible[number, 2] for number in wanted if number not in tried and (number, 2) in possible), None
        )
        if further is not None:
            further.why = "beside the best that was measured"
        return further

    @staticmethod
    def _choose_best(settings: list[TunedSetting]) -> TunedSetting:
        """Return the fewest workers whose speed is within 2 % of the best."""
        measured = [setting for setting in settings if setting.measured] or settings
        best = max(measured, key=lambda setting: setting.ratio_to(measured[0]))
        return next(setting for setting in measured if setting.ratio_to(best) >= 1 - _TOLERANCE)


def _count_devices() -> int:
    """GPUs that torch can use, if it is imported and has begun to use them; at least 1."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return 1
    return max(1, int(torch.cuda.device_count()))
