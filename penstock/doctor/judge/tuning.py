"""Chooses ``num_workers`` and ``prefetch_factor``: the fewest workers within 2 % of the best, and a budget of memory.

::

    one run without workers   cost of a batch, processor time and other     ─┐
    one run with workers      cost of sending it; memory of a worker        ─┴─> queueing model ─> a few settings
    runs in turns             these settings and the rules of thumb         ───> the fewest workers near the best
                              and more workers, or fewer, while the best is the last one on that side

A full grid measures every setting; the model says which of them are worth it. It knows nothing of other programs, so
what was measured decides where to look further. Runs are trials (:mod:`penstock.doctor.trials.trials`): nothing is
trained, and the loader is not changed.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from penstock.doctor.judge.advice.num_workers import with_workers
from penstock.doctor.judge.queueing import TrainingPipeline, Work, predict
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
    predicted : float
        Batches per second by the model.
    memory_bytes : int
        Of all workers and the batches ahead.
    why : str
        Why it was measured.
    measured : list of float
        Batches per second, run by run; empty if it was only predicted.
    turns : list of int
        The turn of each run. Settings are compared within turns, since a machine is not always equally fast.
    """

    num_workers: int
    prefetch_factor: int
    predicted: float
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
        return statistics.median(ratios) if ratios else self.batches_per_s / other.batches_per_s

    @property
    def batches_per_s(self) -> float:
        """The median of the measured speeds; the predicted speed if nothing was measured."""
        return statistics.median(self.measured) if self.measured else self.predicted


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
        lines += ["", f"{'workers':>8}{'prefetch':>10}{'batches/s':>11}{'spread':>16}{'predicted':>11}{'MB':>8}  "]
        for setting in self.settings:
            mark = "*" if setting is self.best else " "
            spread = f"{min(setting.measured):.1f}..{max(setting.measured):.1f}" if setting.measured else ""
            lines.append(
                f"{mark}{setting.num_workers:>7}{setting.prefetch_factor:>10}{setting.batches_per_s:>11.1f}{spread:>16}"
                f"{setting.predicted:>11.1f}{setting.memory_bytes / 1e6:>8,.0f}  {setting.why}".rstrip()
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
        """Probe the loader, predict settings, measure them, and choose one."""
        pipeline = self._probe()
        predicted = self._predict(pipeline)
        if not predicted:
            raise ArgumentError(
                f"memory_bytes must have room for a batch of {self.batch_bytes} bytes, got {self.memory_bytes}"
            )
        chosen = self._choose_settings(predicted)
        self._measure(chosen, predicted)
        chosen.sort(key=lambda setting: (setting.num_workers, setting.prefetch_factor))
        best = self._choose_best(chosen)
        seconds = time.perf_counter() - self._begun
        return Tuning(best, chosen, self.cores, self.worker_bytes, self.batch_bytes, seconds)

    @property
    def _left_s(self) -> float:
        return self._begun + self.budget_s - time.perf_counter()

    def _probe(self) -> TrainingPipeline:
        """Measure what a batch costs without workers, and what sending it costs."""
        run_s = max(0.5, self.budget_s * _SHARE_OF_PROBES / 2)
        serial = self._run(0, 0, run_s, StepShape(), why="a batch without workers")
        if serial.error or serial.batches < 2:
            raise ArgumentError(f"loader must give batches: {serial.error or 'it gave none in time'}")
        self.batch_bytes = serial.batch_nbytes
        wall_ns, cpu_ns, delay_ns = (np.diff(values) * 1e9 for values in (serial.taken_s, serial.cpu_s, serial.delay_s))
        if len(wall_ns) > 8:
            wall_ns, cpu_ns, delay_ns = wall_ns[2:], cpu_ns[2:], delay_ns[2:]  # the first ones open files
        cpu_ns = np.minimum(cpu_ns, wall_ns)
        idle_ns = (wall_ns - cpu_ns - delay_ns).clip(0)
        parallel = self._run(min(2, self.cores), 2, run_s, StepShape(), why="sending a batch", measure_memory=True)
        self.worker_bytes = parallel.worker_pss_bytes
        receive_ns = float(np.diff(parallel.cpu_s).mean()) * 1e9 if parallel.batches > 2 else 0.0
        build = {
            "augment": Work(cpu_ns, idle_ns),
            "transport": Work(np.full_like(cpu_ns, receive_ns), np.zeros_like(cpu_ns)),
        }
        return TrainingPipeline(
            1, 2, float(self.cores), build, self.step.wall_ns, self.step.cpu_ns, receive_ns,
            rotates=type(self.loader).__module__.startswith("torch."),
        )  # fmt: skip

    def _run(
        self, workers: int, prefetch: int, run_s: float, step: StepShape, why: str, *, measure_memory: bool = False
    ) -> Trial:
        if self.progress is not None:
            self.progress(f"{counted(workers, 'worker')}, prefetch_factor={prefetch}: {why}")
        arguments = {"num_workers": workers, "prefetch_factor": prefetch or None}
        limit_s = max(min(self._left_s, 4 * run_s + 10), run_s)
        order = TrialOrder(Change(arguments), step, run_s, limit_s)
        return self.run_one(self.loader, order, measure_memory=measure_memory)

    def _predict(self, pipeline: TrainingPipeline) -> dict[tuple[int, int], TunedSetting]:
        """Predict the speed of every setting that fits in memory."""
        most = max(_MOST_WORKERS_A_CORE * self.cores, 4)
        found = {}
        numbers = [0, *range(1, min(most, 8) + 1), *range(10, min(most, 16) + 1, 2), *range(20, most + 1, 4)]
        for number in numbers:
            for prefetch in _PREFETCH if number else (0,):
                changed = replace(with_workers(pipeline, number), prefetch=max(prefetch, 1))
                if number == 0:
                    own = {name: work for name, work in pipeline.build.items() if name != "transport"}
                    changed = replace(changed, build=own, receive_ns=0.0)
                memory = number * self.worker_bytes + number * prefetch * self.batch_bytes
                if self.memory_bytes is None or memory + self.batch_bytes <= self.memory_bytes:
                    found[number, prefetch] = TunedSetting(number, prefetch, predict(changed).batches_per_s, memory)
        return found

    def _choose_settings(self, predicted: dict[tuple[int, int], TunedSetting]) -> list[TunedSetting]:
        """Choose settings worth measuring: near the best of the model, and the rules of thumb."""
        best = max(setting.predicted for setting in predicted.values())
        near = [key for key, setting in predicted.items() if setting.predicted >= (1 - _TOLERANCE) * best]
        fewest = min(near)
        numbers = sorted({number for number, _ in predicted})
        at = numbers.index(fewest[0])
        wanted: dict[tuple[int, int], list[str]] = {fewest: ["the fewest near the best, by the model"]}
        for neighbour in (at + 1, at - 1):
            if 0 <= neighbour < len(numbers):
                number = numbers[neighbour]
                wanted.setdefault((number, fewest[1] or 2 if number else 0), ["beside it"])
        present = self.loader.num_workers
        for key, why in (
            ((self.cores, 2), "rule of thumb: workers = cores"),
            ((4 * _count_devices(), 2), "rule of thumb: 4 x GPUs"),
            ((present, (self.loader.prefetch_factor or 2) if present else 0), "as it is now"),
        ):
            wanted.setdefault(key, []).append(why)
        chosen = []
        for key, reasons in wanted.items():
            setting = predicted.get(key)
            if setting is not None:
                setting.why = "; ".join(reasons)
                chosen.append(setting)
        return chosen

    def _measure(self, settings: list[TunedSetting], predicted: dict[tuple[int, int], TunedSetting]) -> None:
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
            further = self._find_further(settings, predicted)
            settings += [further] if further is not None else []
            turn += 1

    @staticmethod
    def _find_further(
        settings: list[TunedSetting], predicted: dict[tuple[int, int], TunedSetting]
    ) -> TunedSetting | None:
        """Return the next number of workers beyond the best one, where no setting on that side was measured."""
        measured = [setting for setting in settings if setting.measured]
        if not measured:
            return None
        best = max(measured, key=lambda setting: setting.ratio_to(measured[0]))
        tried, numbers = {setting.num_workers for setting in settings}, sorted({number for number, _ in predicted})
        wanted = []
        if best.num_workers == max(tried):
            wanted = [number for number in numbers if number >= 1.5 * best.num_workers][:1] or numbers[-1:]
        elif best.num_workers == min(tried):
            wanted = [number for number in numbers if number < best.num_workers][-1:]
        further = [predicted[key] for key in predicted if key[0] in wanted and key[0] not in tried]
        if further:
            further[0].why = "beyond the best that was measured"
        return further[0] if further else None

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
