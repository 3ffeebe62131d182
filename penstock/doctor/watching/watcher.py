"""Watches all loaders that a process iterates, until enough steps are seen, and makes a Recording of one of them.

One watcher is active at a time. It replaces methods of torch's and penstock's loaders while it is installed
(:mod:`.torch_loader`, :mod:`.own_loader`); in processes that the script forks, the
replaced methods do what the original ones do.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.doctor.machine.device_watch import DeviceWatch
from penstock.doctor.machine.machine import describe_machine
from penstock.doctor.machine.usage import UsageSampler
from penstock.doctor.watching.brief_steps import ScriptStep
from penstock.doctor.watching.event_file import read_events
from penstock.doctor.watching.loaders.loader_settings import describe_loader
from penstock.doctor.watching.loaders.loader_watch import LoaderWatch
from penstock.doctor.watching.loaders.made_loaders import MadeLoaders
from penstock.doctor.watching.recorded_events import fill_cpu, fill_sizes, find_slowest, main_events
from penstock.doctor.watching.recording import Recording
from penstock.doctor.watching.sample_events import unpack_samples
from penstock.doctor.watching.sample_names import name_samples
from penstock.doctor.watching.stack_sampling import SampledThread, StackSampler
from penstock.doctor.watching.thread_times import read_thread_cpu_ns

__all__ = ["Limits", "Watcher", "blocks"]

_MIN_STEPS: Final = 5
blocks: Final[list[Watcher]] = []
"""The watcher of a running block of ``penstock.doctor.watch``. That of a whole script sees nothing meanwhile."""
_MUCH_WAITING: Final = 0.05
_FIRST_DRAWS: Final = 4
"""The sampler's first draws are left out: it may permute a whole epoch."""


class Limits:
    """How much is watched.

    Parameters
    ----------
    steps : int
        Steps after the warm-up, replayed ones included.
    replays : int
        Of these, how many get the batch before once more.
    most_s : float
        Seconds after which fewer steps are enough; infinite where several processes train together, since all of them
        must end at the same step.
    """

    def __init__(self, steps: int, *, replays: int = 0, most_s: float = math.inf) -> None:
        self.steps, self.replays, self.most_s = steps, min(replays, max(0, steps - _MIN_STEPS)), most_s
        self.warm_up = min(20, max(2, steps // 10))

    @property
    def normal(self) -> int:
        """Steps with batches of the loader."""
        return self.warm_up + self.steps - self.replays


class Watcher:
    """Watches the loaders of this process.

    Parameters
    ----------
    limits : Limits
        How much is watched.
    only : DataLoader, optional
        The loader to watch; by default each one that is iterated.
    finish : callable, optional
        Called when enough steps were seen; it may raise an exception that ends the script.
    change : mapping, optional
        Arguments of loaders that are set before they are iterated first.
    tries_threads : bool
        Whether the script may be run with one thread of torch's before it ends.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        only: Any = None,
        finish: Callable[[], None] | None = None,
        change: Mapping[str, Any] | None = None,
        tries_threads: bool = False,
    ) -> None:
        self.limits, self.only = limits, only
        self.pid = os.getpid()
        self.watches: list[LoaderWatch] = []
        self.is_active = False
        self.is_finished = False
        self.sampler = StackSampler()
        self.usage: UsageSampler | None = None
        self.device = DeviceWatch()
        self.made = MadeLoaders()
        self.started_ns = self.ended_ns = 0
        self._is_sampling = False
        self._finish, self._change, self._tries_threads = finish, dict(change or {}), tries_threads
        self._threads: dict[int, SampledThread] = {}
        self._undo: list[Callable[[], None]] = []
        self._folder: Path | None = None
        self._busy_threads: list[Any] = []

    @property
    def replays(self) -> int:
        """Steps of the fixed-data test."""
        return self.limits.replays

    # what is replaced

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute of a class or module until :meth:`uninstall`."""
        own = vars(owner)
        before, had = own.get(name), name in own
        setattr(owner, name, value)
        self._undo.append(lambda: setattr(owner, name, before) if had else delattr(owner, name))

    def undo(self, call: Callable[[], None]) -> None:
        """Call a function in :meth:`uninstall`."""
        self._undo.append(call)

    def uninstall(self) -> None:
        """Put back what was replaced."""
        self.stop()
        while self._undo:
            self._undo.pop()()

    def close(self) -> None:
        """Uninstall, and remove the files."""
        if os.getpid() != self.pid:
            return
        self.uninstall()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def check_ended(self) -> None:
        """End a script that goes on after enough steps: it has caught what was to end it."""
        if self.is_finished and self._finish is not None and os.getpid() == self.pid:
            self._finish()

    def is_here(self) -> bool:
        """Whether this is the process that watches, and it does, and no block of the script watches itself."""
        is_hidden = bool(blocks) and blocks[-1] is not self
        return self.is_active and os.getpid() == self.pid and not is_hidden

    # loaders

    def watch_of(self, loader: Any) -> LoaderWatch | None:
        """What is seen of a loader, or of those that it takes the place of; begun here. None if it is not watched."""
        if not self.is_here() or (self.only is not None and loader is not self.only):
            return None
        for watch in self.watches:
            if watch.loader is loader:
                return watch
        for watch in self.watches:
            if self.made.is_successor(loader, watch.loader, watch.first_asked):
                watch.loader = loader
                return watch
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="penstock-doctor-"))
        number = len(self.watches)
        watch = LoaderWatch(self, loader, number, self._folder / str(number))
        self.watches.append(watch)
        return watch

    def change_loader(self, loader: Any) -> None:
        """Set the arguments that a run is to try, before ``iter(loader)``."""
        if self._change and self.is_here():
            vars(loader).update(self._change)

    @contextlib.contextmanager
    def starting_workers(self) -> Iterator[None]:
        """While workers are forked, this process has no thread of ours."""
        self._is_sampling = False
        self.sampler.stop()
        self.device.pause()
        if self.usage is not None:
            self.usage.pause()
        try:
            yield
        finally:
            if self.is_here():
                self._start_threads()

    def _start_threads(self) -> None:
        if not self.started_ns:
            self.started_ns = time.perf_counter_ns()
            self.usage = UsageSampler(self.pid)
        self._is_sampling = True
        self.sampler.start()
        self.device.resume()
        if self.usage is not None:
            self.usage.start()

    # the script's thread

    def current_thread(self) -> SampledThread:
        """The calling thread, as the sampler looks at it."""
        ident = threading.get_ident()
        thread = self._threads.get(ident)
        if thread is None:
            thread = self._threads[ident] = SampledThread()
            self.sampler.watch_thread(thread)
        return thread

    def used_cpu_ns(self) -> int:
        """Processor time of the process so far, without the sampling thread and the loader's threads."""
        used = time.process_time_ns() - self.sampler.cpu_ns
        for work in self._busy_threads:
            with contextlib.suppress(OSError):
                used -= read_thread_cpu_ns(work.thread.native_id)
        return used

    def add_worker_thread(self, work: Any) -> None:
        """A thread of this process builds batches."""
        self._busy_threads.append(work)
        self.sampler.watch_thread(work.thread)

    def is_thread_busy(self) -> bool:
        """Whether a thread of this process is building a batch."""
        return any(work.is_busy for work in self._busy_threads)

    # events of the script

    def note_wait(self, watch: LoaderWatch, asked: int, arrived: int) -> None:
        """The script waited for a batch of one loader, perhaps within a step of another."""
        if not self._is_sampling:
            self._start_threads()
        self.device.note_step()
        for other in self.watches:
            if other is not watch:
                other.note_foreign(asked, arrived)

    def is_enough(self, watch: LoaderWatch, now: int) -> bool:
        """Whether the batch that has arrived is the last of the loader's normal ones."""
        count = watch.count_steps() + 1
        late = now - watch.first_asked > self.limits.most_s * 1e9
        return count >= self.limits.normal or (late and count >= self.limits.warm_up + _MIN_STEPS)

    def tries_threads(self, watch: LoaderWatch) -> bool:
        """Whether the script, which waits for batches and ends soon, may be run with one thread of torch's."""
        if not self._tries_threads or self.device.is_used or _read_number("WORLD_SIZE", 1) > 1:
            return False
        waited = sum(step.wait for step in watch.steps)
        return waited >= _MUCH_WAITING * sum(step.wait + max(step.length, 0) for step in watch.steps)

    def finish(self) -> None:
        """All steps are seen."""
        self.is_finished = True
        self.stop()
        if self._finish is not None:
            self._finish()

    def stop(self) -> None:
        """Record nothing more. Idempotent."""
        if not self.is_active or os.getpid() != self.pid:
            return
        self.is_active = False
        self.ended_ns = time.perf_counter_ns()
        self.sampler.stop()
        for watch in self.watches:
            watch.control.stop()
            watch.places.end_step(is_whole=False)
            watch.complete_steps()
            watch.thread_trial.stop()
        self.device.stop()
        if self.usage is not None:
            self.usage.stop()

    # the result

    def chosen(self) -> LoaderWatch | None:
        """The loader that is reported: the one that the script waits for longest, else that it takes most from."""
        taken = [watch for watch in self.watches if watch.steps]
        if not taken:
            return None
        longest = max(sum(step.wait for step in watch.steps) for watch in taken)
        spent = sum(step.wait + max(step.length, 0) for watch in taken for step in watch.steps)
        if longest > 0.1 * spent:
            return max(taken, key=lambda watch: sum(step.wait for step in watch.steps))
        return max(taken, key=lambda watch: sum(step.samples for step in watch.steps))

    def record(self, *, command: list[str], ended: str) -> Recording | None:
        """The recording of the chosen loader; None if no batch was taken from any.

        Parameters
        ----------
        command : list of str
            The script and its arguments.
        ended : str
            As in :class:`~penstock.doctor.watching.recording.Recording`.
        """
        self.stop()
        watch = self.chosen()
        if watch is None:
            return None
        launch_bound = watch.read_device()
        steps, warm_up = self._complete_steps(watch)
        since = steps[0].start - steps[0].wait if steps else 0
        events, dropped = self._read_events(watch)
        until = self.ended_ns or time.perf_counter_ns()
        events = events[(events["end"] >= since) & (events["start"] <= until)]
        trial = watch.thread_trial
        if trial.begun_ns:
            events = events[(events["start"] < trial.begun_ns) | (events["start"] > (trial.ended_ns or until))]
        events = np.concatenate([events, main_events(watch, steps)])
        events = events[np.argsort(events["start"], kind="stable")]
        return Recording(
            settings=describe_loader(watch.loader),
            steps=watch.step_times(steps),
            events=events,
            dropped=dropped,
            usage=_take_usage(self.usage, self._worker_pids(watch)),
            device=self.device.describe(launch_bound),
            machine=_describe_machine(watch.loader.dataset, self.usage),
            keys=name_samples(watch.loader.dataset, find_slowest(events)),
            rank=_read_number("RANK", 0),
            world_size=_read_number("WORLD_SIZE", 1),
            command=command,
            ended=ended,
            warm_up=warm_up,
            thread_gain=trial.gain,
            draw_ns=float(np.mean(watch.drawn_ns[_FIRST_DRAWS:] or [0])),
            others=[
                {
                    "dataset": type(other.loader.dataset).__name__,
                    "samples": sum(step.samples for step in other.steps),
                    "wait_ns": sum(step.wait for step in other.steps),
                }
                for other in self.watches
                if other is not watch and other.steps
            ],
        )

    def _complete_steps(self, watch: LoaderWatch) -> tuple[list[ScriptStep], int]:
        """Steps whose end was seen, after the warm-up; and how many steps that was."""
        normal = sum(not step.replayed for step in watch.steps)
        warm_up = min(self.limits.warm_up, max(1, normal // 5)) if normal > 1 else 0
        return [step for step in watch.steps[warm_up:] if step.length >= 0], warm_up

    def _read_events(self, watch: LoaderWatch) -> tuple[npt.NDArray[Any], int]:
        parts, dropped = [fill_cpu(unpack_samples(watch.sink.read()))], 0
        for path in watch.files():
            events, lost = read_events(path)
            parts.append(fill_cpu(unpack_samples(events)))
            dropped += lost
        return fill_sizes(np.concatenate(parts)), dropped

    def _worker_pids(self, watch: LoaderWatch) -> dict[int, int]:
        """Worker numbers by process id, by the names of the files."""
        pids = {}
        for path in watch.files():
            _, worker, pid = path.stem.split("-")
            pids[int(pid)] = int(worker)
        return pids


def _read_number(name: str, default: int) -> int:
    try:
        return int(os.environ.get(name, default))
    except ValueError:
        return default


def _take_usage(usage: Any, workers: dict[int, int]) -> list[Any]:
    if usage is None:
        return []
    taken = list(usage.result())
    for process in taken:
        if process.pid in workers:
            process.role = f"worker {workers[process.pid]}"
    return taken


def _describe_machine(dataset: Any, usage: Any) -> dict[str, Any]:
    """The machine, and under ``watched`` what all of it did meanwhile."""
    root = getattr(dataset, "root", None)
    paths = [root] if isinstance(root, (str, os.PathLike)) and Path(root).exists() else []
    return {**describe_machine(paths), "watched": {} if usage is None else usage.system()}
