"""A loader's speed as scalars by name, for TensorBoard, Weights & Biases and the like; none of these is imported."""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import ArgumentError
from penstock.loader.stats import LoaderRates, RemoteStats

__all__ = ["ScalarWriter", "list_scalars"]


class ScalarWriter:
    """Writes a loader's speed as scalars; pass it to ``loader.report_to``.

    Parameters
    ----------
    add_scalar : callable, optional
        Called as ``add_scalar(tag, value, step)`` for each number: the method of a TensorBoard ``SummaryWriter``.
    log : callable, optional
        Called as ``log(numbers, step=step)`` with a dict of all numbers: ``wandb.log``, ``mlflow.log_metrics``.
    prefix : str
        Of the names.
    step : callable, optional
        Gives the step; by default the number of batches that were delivered.

    Raises
    ------
    ArgumentError
        If neither or both functions are given.

    Examples
    --------
    >>> import penstock as ps
    >>> from penstock.loader.metrics import ScalarWriter
    >>> loader = ps.DataLoader(ps.ArrayDataset([1, 2, 3, 4]), batch_size=2)
    >>> names = []
    >>> with loader.report_to(ScalarWriter(lambda tag, value, step: names.append((tag, step))), period_s=0):
    ...     batches = list(loader)
    >>> names[0]
    ('loader/samples_per_s', 1)
    """

    def __init__(
        self,
        add_scalar: Callable[[str, float, int], object] | None = None,
        *,
        log: Callable[..., object] | None = None,
        prefix: str = "loader/",
        step: Callable[[], int] | None = None,
    ) -> None:
        if (add_scalar is None) == (log is None):
            raise ArgumentError("give one of add_scalar(tag, value, step) and log(numbers, step=step)")
        self._add_scalar, self._log, self._prefix, self._step = add_scalar, log, prefix, step

    def __call__(self, rates: LoaderRates) -> None:
        """Write the numbers of one span of time."""
        step = rates.all_batches if self._step is None else self._step()
        numbers = {self._prefix + name: value for name, value in list_scalars(rates).items()}
        if self._log is not None:
            self._log(numbers, step=step)
            return
        assert self._add_scalar is not None, "one of both is given"
        for name, value in numbers.items():
            self._add_scalar(name, value, step)


def list_scalars(rates: LoaderRates) -> dict[str, float]:
    """Return the numbers of a span of time, by names that are the same for every loader.

    Returns
    -------
    dict of str to float
        ``samples_per_s``, ``nbytes_per_s``, ``waiting`` (0..1), ``ready`` and ``under_way`` (batches); for each stage
        ``us_per_sample/decode``; for each worker ``busy/0`` (0..1). Where stores are remote, also ``remote/hit_rate``
        (0..1), ``remote/nbytes_per_s``, ``remote/latency_ms``, ``remote/retries``, and the seconds that readers waited
        for each second, ``remote/waiting``.
    """
    remote = rates.remote
    return {
        "samples_per_s": rates.samples_per_s,
        "nbytes_per_s": rates.nbytes_per_s,
        "waiting": rates.waiting,
        "ready": float(rates.queue.ready),
        "under_way": float(rates.queue.under_way),
        **{f"us_per_sample/{stage}": cost for stage, cost in rates.us_per_sample.items()},
        **{f"busy/{worker}": share for worker, share in rates.busy.items()},
        **(_list_remote(remote, rates.seconds) if remote else {}),
    }


def _list_remote(remote: RemoteStats, seconds: float) -> dict[str, float]:
    return {
        "remote/hit_rate": remote.hit_rate,
        "remote/nbytes_per_s": remote.nbytes / seconds,
        "remote/latency_ms": remote.latency_ms,
        "remote/retries": float(remote.retries),
        "remote/waiting": remote.wait_ns / 1e9 / seconds,
    }
