"""``penstock.doctor.watch``: watch the loaders of a piece of code, and then say what is slow.

::

    with penstock.doctor.watch(loader) as report:
        for batch in loader:
            train(batch)
    print(report)
"""

from __future__ import annotations

import importlib
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from penstock.doctor.watching.loaders import INSTALLERS
from penstock.doctor.watching.loaders.loader_watch import LoaderWatch
from penstock.doctor.watching.recording import Recording
from penstock.doctor.watching.watcher import Limits, Watcher, blocks
from penstock.errors import ArgumentError
from penstock.registry import when_imported
from penstock.samplers.base import check_count

if TYPE_CHECKING:
    from penstock.doctor.judge.text_report import Diagnosis

__all__ = ["WatchReport", "install_all", "watch"]

_ATTRIBUTES: Final = frozenset({"verdict", "stages", "advice", "samples", "findings", "notes", "ranks"})


def watch(loader: object = None, *, steps: int = 100, budget_s: float = 30.0) -> WatchReport:
    """Watch a loader, or every loader that is iterated, while a ``with`` block runs.

    Parameters
    ----------
    loader : torch or penstock DataLoader, optional
        A loader of ``torch.utils.data``, ``penstock.torch`` or ``penstock``; it is not changed. By default each loader
        that is iterated in the block is watched, and the one that the block waits for longest is reported.
    steps : int
        Steps to watch, after a warm-up of a tenth of that; the block goes on unwatched.
    budget_s : float
        Seconds at the end of the block in which changes are tried: the loader is iterated in child processes. 0:
        nothing is tried.

    Returns
    -------
    WatchReport
        A context manager; see there.

    Raises
    ------
    ArgumentError
        If ``loader`` is no loader, ``steps`` is less than 1, ``budget_s`` is negative, or another block watches.

    Notes
    -----
    Batches, their order, random states and what the block computes stay as they are. ``iter(loader)`` gives a wrapper
    of the loader's iterator, with the iterator's own attributes. A loader that is watched starts new workers if it is
    iterated within the block; workers that run already (``persistent_workers``) are not seen.
    """
    steps = check_count("steps", steps, least=1)
    if not budget_s >= 0:
        raise ArgumentError(f"budget_s must be at least 0, got {budget_s!r}")
    if loader is not None and (not hasattr(loader, "dataset") or not hasattr(loader, "num_workers")):
        raise ArgumentError(f"loader must be a DataLoader, got {type(loader).__name__}")
    return WatchReport(loader, steps, budget_s)


class WatchReport:
    """What a ``with`` block of :func:`watch` gives; filled when the block ends. ``print`` shows it as text.

    Attributes
    ----------
    recording : Recording, optional
        What was seen; None before the end, and if the block took no batch.
    diagnosis : Diagnosis, optional
        What follows from it. Its attributes (``verdict``, ``stages``, ``advice``, ...) are also this object's.
    """

    def __init__(self, loader: object, steps: int, budget_s: float) -> None:
        self.recording: Recording | None = None
        self.diagnosis: Diagnosis | None = None
        self._budget_s = budget_s
        self._watcher = Watcher(Limits(steps), only=loader)

    def __enter__(self) -> Self:
        install_all(self._watcher)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        watcher = self._watcher
        watcher.uninstall()
        if watcher in blocks:
            blocks.remove(watcher)
        try:
            ended = "finished" if error is None else _describe_error(error)
            self.recording = watcher.record(command=[], ended="steps" if watcher.is_finished else ended)
            chosen = watcher.chosen()
            if self.recording is not None and chosen is not None and (kind is None or issubclass(kind, Exception)):
                self.diagnosis = _diagnose(self.recording, chosen, self._budget_s if error is None else 0.0)
        finally:
            watcher.close()

    def __getattr__(self, name: str) -> Any:
        if name not in _ATTRIBUTES:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        if self.diagnosis is None:
            raise AttributeError(f"there is no {name}: the block has not ended, or took no batch from a loader")
        return getattr(self.diagnosis, name)

    def __str__(self) -> str:
        if self.diagnosis is None:
            return "nothing was watched: the block has not ended, or took no batch from a loader"
        from penstock.doctor.judge.text_report import format_report

        return str(format_report(self.diagnosis))


def install_all(watcher: Watcher) -> None:
    """Watch penstock's and torch's loaders: now where they are imported, else when they will be.

    Raises ArgumentError if another watcher is installed.
    """
    if any(other.is_active for other in blocks):
        raise ArgumentError("loaders are watched already: blocks of penstock.doctor.watch cannot be nested")
    blocks[:] = [watcher]
    watcher.is_active = True
    for module, (home, function) in INSTALLERS.items():
        watcher.undo(when_imported(module, partial(_install, watcher, home, function)))


def _install(watcher: Watcher, home: str, function: str) -> None:
    getattr(importlib.import_module(home), function)(watcher)


def _describe_error(error: BaseException) -> str:
    return "interrupted" if isinstance(error, KeyboardInterrupt) else f"error: {type(error).__name__}: {error}"


def _diagnose(recording: Recording, chosen: LoaderWatch, budget_s: float) -> Diagnosis | None:
    from penstock.doctor.judge.analysis import diagnose

    diagnosis: Diagnosis = diagnose(
        recording, chosen.loader, places=chosen.places, budget_s=budget_s, trials=budget_s > 0
    )
    return diagnosis
