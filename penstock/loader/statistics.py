"""What a loader tells about its work: the part that the loaders of :mod:`penstock` and :mod:`penstock.torch` share."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TextIO, cast

import numpy as np
from numpy.typing import NDArray

from penstock.loader.counters import LoaderCounters, PeriodicReport
from penstock.loader.stats import LoaderRates, Stats
from penstock.repairs import Repaired
from penstock.sample import Batch
from penstock.trace import Observer
from penstock.workers.left_out import LeftOut

if TYPE_CHECKING:
    from penstock.loader.metrics.serving import ServedMetrics
    from penstock.loader.progress import LoaderProgress
    from penstock.loader.recipe import Settings

__all__ = ["LoaderStatistics"]


class LoaderStatistics:
    """Methods of a loader that read its counters, or have them reported."""

    _counters: LoaderCounters
    _make_settings: Callable[[], Settings]
    view: bool = False
    """Whether epochs that begin from now on are told to viewers: see ``penstock view --attach``."""

    def __repr__(self) -> str:
        """Return the settings that say what a loader does; nothing is opened, drawn or counted."""
        names = ("batch_size", "num_workers", "workers", "drop_last", "pin_memory")
        settings = [f"{name}={value!r}" for name in names if (value := vars(self).get(name))]
        return f"{type(self).__name__}({', '.join([type(vars(self).get('dataset')).__name__, *settings])})"

    def stats(self) -> Stats:
        """Time per stage and worker, samples, batches and bytes since construction; print it for a table.

        Thread-safe. What is ready now is looked at by this call; everything else was counted while batches were built.
        """
        return self._counters.stats()

    @property
    def left_out(self) -> list[LeftOut]:
        """What could not be built, of the batches delivered up to now: the newest 10,000, oldest first; a copy."""
        return self._counters.left_out_log.newest()

    def find_repeats(self) -> NDArray[np.bool_]:
        """Return which rows of the batch returned last are to be left out of a metric.

        These are samples that a sampler for ranks repeats to give all ranks equal steps, and samples that
        ``on_error="replace"`` put in the place of others.

        Returns
        -------
        ndarray of bool, shape (rows,)
            One for each row of the batch: samples that were left out have none.

        Raises
        ------
        ArgumentError
            If no batch was returned yet, the loop has ended, the dataset is a stream, or the sampler knows ranks
            and does not say which samples it repeats.

        Notes
        -----
        A loader that copies batches to a device takes them ahead: this is then about a later batch.

        Examples
        --------
        >>> import penstock as ps
        >>> numbers = ps.ArrayDataset([1, 2, 3])
        >>> sampler = ps.DistributedSampler(numbers, num_replicas=2, rank=1, shuffle=False)
        >>> loader = ps.DataLoader(numbers, batch_size=2, sampler=sampler)
        >>> for (batch,) in loader:
        ...     print(batch, loader.find_repeats())
        [2 1] [False  True]
        """
        return self._counters.find_repeats(self._make_settings().order)

    @property
    def repaired(self) -> list[Repaired]:
        """Images that were repaired (``on_truncated="repair"``), of the batches delivered up to now.

        The newest 10,000, oldest first; a copy.
        """
        return self._counters.repaired()

    def report_to(self, callback: Callable[[LoaderRates], object], *, period_s: float = 10.0) -> PeriodicReport:
        """Have a function called with the loader's speed while batches are delivered.

        Parameters
        ----------
        callback : callable
            Called with a :class:`~penstock.loader.stats.LoaderRates` of the time since the call before, by the thread
            that iterates. If it raises, it is called no more, and a warning says why.
            :class:`~penstock.loader.metrics.ScalarWriter` is one for TensorBoard and Weights & Biases.
        period_s : float
            Least seconds between calls.

        Returns
        -------
        PeriodicReport
            ``close()`` ends it, with a last call; also a context manager.

        Raises
        ------
        ArgumentError
            If ``period_s`` is negative, or ``callback`` cannot be called.
        """
        return PeriodicReport(self._counters, callback, period_s)

    def serve_metrics(self, port: int = 0, *, host: str = "127.0.0.1", name: str = "loader") -> ServedMetrics:
        """Have Prometheus read the loader's counters by HTTP, in a thread that sleeps between requests.

        A request reads what is counted anyway: it starts, draws and takes nothing. Metrics have the labels ``loader``
        and ``rank``, and end with the loader. Worker processes and other forked children do not serve.

        Parameters
        ----------
        port : int
            0 takes a free one. Otherwise the rank on this machine is added (:func:`penstock.find_world`): the processes
            of a job serve on one port each. Loaders of one process that are given the same port share it.
        host : str
            Who may ask: by default, programs of this machine; "0.0.0.0" lets any machine ask that reaches this one.
        name : str
            The label ``loader``, such as "train"; each loader of a port has a name of its own.

        Returns
        -------
        ServedMetrics
            Its ``url`` is where the metrics are; ``close()`` ends it; also a context manager.

        Raises
        ------
        ArgumentError
            If the port is taken or out of range, or another loader has the name.
        """
        from penstock.loader.metrics.serving import ServedMetrics

        return ServedMetrics(self._counters, port, host, name)

    def add_observer(self, observer: Observer) -> None:
        """Tell an object of batches as they are delivered, and of the work of epochs that begin from now on.

        Parameters
        ----------
        observer : penstock.trace.Observer
            Its methods are called by the thread that works, so that their time is the loader's; what they raise is
            raised by the loader. It is not pickled with the loader. With ``observes_work``, worker processes get a
            copy, and of several such observers only the first is told of the work.
        """
        self._counters.add_observer(observer)

    def remove_observer(self, observer: Observer) -> None:
        """Tell it of no further batch or epoch; nothing happens if it is not told."""
        self._counters.remove_observer(observer)

    def progress(self, *, stream: TextIO | None = None, period_s: float | None = None) -> LoaderProgress:
        """Show the loader's speed, how much of the time it is waited for, and where its time goes.

        On a terminal and in a notebook that is one line that changes; in a file, a line of text now and then.

        Parameters
        ----------
        stream : text file, optional
            Where to write; by default standard error.
        period_s : float, optional
            Least seconds between two changes; by default 0.2 on a terminal, 1 in a notebook and 10 in a file.

        Returns
        -------
        LoaderProgress
            Iterate over it instead of the loader, or use it as a context manager around the loop.

        Examples
        --------
        >>> import sys
        >>> import penstock as ps
        >>> loader = ps.DataLoader(ps.ArrayDataset([1, 2, 3, 4]), batch_size=2)
        >>> for batch in loader.progress(stream=sys.stdout, period_s=0):  # doctest: +ELLIPSIS
        ...     pass
        1 of 2 batches, 2 samples, ...
        2 of 2 batches, 4 samples, ...
        """
        from penstock.loader.progress import LoaderProgress

        loader = cast("Collection[Batch]", self)
        return LoaderProgress(loader, self._counters, stream=stream, period_s=period_s)
