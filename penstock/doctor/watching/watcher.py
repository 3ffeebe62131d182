"""Watches all loaders that a process iterates, until enough steps are seen, and makes a Recording of one of them.

One watcher is active at a time. It replaces ``__init__`` and ``__iter__`` of torch's and penstock's loaders while it
is installed (:mod:`.torch_loader`, :mod:`.own_loader`). In processes that the script forks, these do what the original
ones do.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from penstock.datasets.sample_names import name_sample
from penstock.doctor.machine.machine import describe_machine
from penstock.doctor.machine.usage import ProcessUsage
from penstock.doctor.watching.event_file import find_writer, read_events
from penstock.doctor.watching.loaders.loader_settings import (
    WatchedLoader,
    describe_loader,
    describe_remote,
    find_cache,
)
from penstock.doctor.watching.loaders.loader_watch import LoaderWatch, ScriptStep, step_times
from penstock.doctor.watching.loaders.made_loaders import MadeLoaders
from penstock.doctor.watching.recording import SAMPLE, Events, Recording
from penstock.doctor.watching.watched_process import WatchedProcess

__all__ = ["Limits", "Watcher", "blocks"]

_MIN_STEPS: Final = 5
blocks: Final[list[Watcher]] = []
"""The watcher of a running block of ``penstock.doctor.watch``. That of a whole script sees nothing meanwhile."""
_MUCH_WAITING: Final = 0.05
_NAMED: Final = 50
"""Slow samples that are named."""
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
    limit_s : float
        Seconds after which fewer steps are enough; infinite where several processes train together, since all of them
        must end at the same step.

    Attributes
    ----------
    warm_up, normal : int
        Steps at the beginning that are left out; all steps with batches of the loader.
    """

    def __init__(self, steps: int, *, replays: int = 0, limit_s: float = math.inf) -> None:
        self.steps, self.replays, self.limit_s = steps, min(replays, max(0, steps - _MIN_STEPS)), limit_s
        self.warm_up = min(20, max(2, steps // 10))
        self.normal = self.warm_up + self.steps - self.replays


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
    progress : callable, optional
        Told at each step, in words, how many were seen.

    Attributes
    ----------
    process : WatchedProcess
        What watches this process.
    watches : list of LoaderWatch
        Of the loaders that were iterated.
    made : MadeLoaders
        Where loaders were made.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        only: object = None,
        finish: Callable[[], None] | None = None,
        change: Mapping[str, object] | None = None,
        tries_threads: bool = False,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self.limits, self.only = limits, only
        self.process = WatchedProcess()
        self.watches: list[LoaderWatch] = []
        self.is_active = self.is_finished = False
        self.made = MadeLoaders()
        self._ended_ns = 0
        self._finish, self._change, self._tries_threads = finish, dict(change or {}), tries_threads
        self._progress = progress
        self._undo: list[Callable[[], object]] = []
        self._folder: Path | None = None

    # what is replaced

    def replace(self, owner: type, name: str, value: object) -> None:
        """Set an attribute of a class until :meth:`uninstall`."""
        before, had = vars(owner).get(name), name in vars(owner)
        setattr(owner, name, value)
        self._undo.append(lambda: setattr(owner, name, before) if had else delattr(owner, name))

    def undo(self, call: Callable[[], object]) -> None:
        """Call a function in :meth:`uninstall`."""
        self._undo.append(call)

    def uninstall(self) -> None:
        """Put back what was replaced."""
        self.stop()
        while self._undo:
            self._undo.pop()()

    def close(self) -> None:
        """Uninstall, and remove the files."""
        if os.getpid() != self.process.pid:
            return
        self.uninstall()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def check_ended(self) -> None:
        """End a script that goes on after enough steps: it has caught what was to end it."""
        if self.is_finished and self._finish is not None and os.getpid() == self.process.pid:
            self._finish()

    def is_here(self) -> bool:
        """Return whether this is the process that watches, and it does, and no block of the script watches itself."""
        return self.is_active and os.getpid() == self.process.pid and (not blocks or blocks[-1] is self)

    # loaders

    def watch_of(self, loader: WatchedLoader) -> LoaderWatch | None:
        """Begin what is seen of a loader, or of those that it takes the place of. None if it is not watched."""
        if not self.is_here() or (self.only is not None and loader is not self.only):
            return None
        for watch in self.watches:
            if watch.loader is loader:
                return watch
        for watch in self.watches:
            if self.made.is_successor(loader, watch.loader, watch.first_asked):
                watch.places.made = self.made.find_repetition(loader, watch.loader)
                watch.loader, watch.loaders = loader, watch.loaders + 1
                return watch
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="penstock-doctor-"))
        watch = LoaderWatch(self.process, loader, self._folder / str(len(self.watches)))
        self.watches.append(watch)
        return watch

    def change_loader(self, loader: WatchedLoader) -> None:
        """Set the arguments that a run is to try, before ``iter(loader)``."""
        if self._change and self.is_here():
            vars(loader).update(self._change)

    # steps of the script

    def note_wait(self, watch: LoaderWatch, asked: int, arrived: int) -> None:
        """The script waited for a batch of one loader, perhaps within a step of another."""
        self.process.start()
        for other in self.watches:
            if other is not watch:
                other.note_other(asked, arrived)

    def is_enough(self, watch: LoaderWatch, now: int) -> bool:
        """Return whether the batch that has arrived is the last of the loader's normal ones."""
        count = len(watch.steps) + 1
        if self._progress is not None:
            self._progress(f"penstock doctor: step {count} of {self.limits.warm_up + self.limits.steps}")
        late = now - watch.first_asked > self.limits.limit_s * 1e9
        return count >= self.limits.normal or (late and count >= self.limits.warm_up + _MIN_STEPS)

    def tries_threads(self, watch: LoaderWatch) -> bool:
        """Return whether the script, which waits for batches and ends soon, may be run with one thread of torch's."""
        if not self._tries_threads or self.process.uses_device or _read_number("WORLD_SIZE", 1) > 1:
            return False
        return watch.waited_ns() >= _MUCH_WAITING * watch.spent_ns()

    def finish(self) -> None:
        """Stop after the last step, and tell who waits for it."""
        self.is_finished = True
        self.stop()
        if self._finish is not None:
            self._finish()

    def stop(self) -> None:
        """Stop recording. Idempotent."""
        if not self.is_active or os.getpid() != self.process.pid:
            return
        self.is_active = False
        self._ended_ns = time.perf_counter_ns()
        for watch in self.watches:
            watch.control.stop()
            watch.end_step(self._ended_ns, None)
            watch.thread_trial.stop()
        self.process.stop()

    # the result

    def chosen(self) -> LoaderWatch | None:
        """The loader that is reported: the one that the script waits for longest, else that it takes most from."""
        taken = [watch for watch in self.watches if watch.steps]
        if not taken:
            return None
        longest = max(taken, key=LoaderWatch.waited_ns)
        if longest.waited_ns() > 0.1 * sum(watch.spent_ns() for watch in taken):
            return longest
        return max(taken, key=LoaderWatch.count_samples)

    def record(self, *, command: list[str], ended: str) -> Recording | None:
        """Return the recording of the chosen loader; None if no batch was taken from any.

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
        events = self._read_events(watch, steps)
        dataset, trial, usage = watch.loader.dataset, watch.thread_trial, self.process.usage
        return Recording(
            settings=describe_loader(watch.loader),
            steps=step_times(steps),
            events=events,
            usage=self._take_usage(watch),
            device={"launch_bound": launch_bound} if self.process.uses_device else {},
            remote=describe_remote(watch.loader),
            machine={**describe_machine(_list_roots(dataset)), "watched": {} if usage is None else usage.system()},
            keys=_name_slowest(dataset, events),
            rank=_read_number("RANK", 0),
            world_size=_read_number("WORLD_SIZE", 1),
            command=command,
            ended=ended,
            warm_up=warm_up,
            thread_gain=trial.gain,
            loaders=watch.loaders,
            draw_ns=float(np.mean(watch.drawn_ns[_FIRST_DRAWS:] or [0])),
            others=[other.describe() for other in self.watches if other is not watch and other.steps],
        )

    def _complete_steps(self, watch: LoaderWatch) -> tuple[list[ScriptStep], int]:
        """Steps whose end was seen, after the warm-up; and how many steps that was."""
        normal = sum(not step.replayed for step in watch.steps)
        warm_up = min(self.limits.warm_up, max(1, normal // 5)) if normal > 1 else 0
        return [step for step in watch.steps[warm_up:] if step.length >= 0], warm_up

    def _read_events(self, watch: LoaderWatch, steps: list[ScriptStep]) -> Events:
        """Events of all processes within the steps, in the order of their starts."""
        events = np.concatenate([watch.sink.read(), *map(read_events, watch.files())])
        since = steps[0].start - steps[0].wait if steps else 0
        until = self._ended_ns or time.perf_counter_ns()
        kept = (events["end"] >= since) & (events["start"] <= until)
        trial = watch.thread_trial
        if trial.begun_ns:
            kept &= (events["start"] < trial.begun_ns) | (events["start"] > (trial.ended_ns or until))
        events = events[kept]
        ordered: Events = events[np.argsort(events["start"], kind="stable")]
        return ordered

    def _take_usage(self, watch: LoaderWatch) -> list[ProcessUsage]:
        """Return what each process has used; workers by their files."""
        workers = dict(map(find_writer, watch.files()))
        taken = [] if self.process.usage is None else self.process.usage.result()
        for process in taken:
            if process.pid in workers:
                process.role = f"worker {workers[process.pid]}"
        return taken


def _read_number(name: str, default: int) -> int:
    try:
        return int(os.environ.get(name, default))
    except ValueError:
        return default


def _list_roots(dataset: object) -> list[str | os.PathLike[str]]:
    """Return where the dataset's files are, as far as it says so."""
    root = getattr(dataset, "root", None) or find_cache(dataset)
    return [root] if isinstance(root, (str, os.PathLike)) and Path(root).exists() else []


def _name_slowest(dataset: object, events: Events) -> dict[int, str]:
    """The names of the slowest samples, by index, the slowest first; those without a name are left out."""
    single = events[(events["stage"] == SAMPLE) & (events["index"] >= 0)]
    order = np.argsort(single["start"] - single["end"], kind="stable")[:_NAMED]
    named = {index: name_sample(dataset, index) for index in single["index"][order].tolist()}
    return {index: name for index, name in named.items() if name}
