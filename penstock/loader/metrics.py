"""A loader's numbers for programs that collect and draw them; none of these is imported, or needed.

::

    loader.report_to(ScalarWriter(writer.add_scalar))             TensorBoard
    loader.report_to(ScalarWriter(log=wandb.log))                 Weights & Biases
    Path("loader.prom").write_text(format_prometheus(loader.stats()))
    observe(meter, loader)                                        OpenTelemetry
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from penstock.errors import ArgumentError
from penstock.loader.statistics import LoaderStatistics
from penstock.loader.stats import LoaderRates, RemoteStats, Stats
from penstock.registry import require

__all__ = ["ScalarWriter", "format_prometheus", "list_scalars", "observe"]


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


_COUNTERS: Final[tuple[tuple[str, str, Callable[[Stats], float]], ...]] = (
    ("batches", "Batches that were delivered.", lambda stats: stats.batches),
    ("samples", "Samples that were delivered.", lambda stats: stats.samples),
    ("bytes", "Bytes of delivered samples, estimated from one batch of 64.", lambda stats: stats.nbytes),
    ("left_out", "Samples that could not be built.", lambda stats: stats.left_out),
    ("repaired", "Images that were repaired.", lambda stats: stats.repaired),
    ("wait_seconds", "Seconds in which the consumer waited for batches.", lambda stats: stats.wait_ns / 1e9),
    ("remote_requests", "Requests to remote stores.", lambda stats: stats.remote.requests),
    ("remote_retries", "Requests that were repeated after an error.", lambda stats: stats.remote.retries),
    ("remote_hedges", "Requests that were sent again because they were slow.", lambda stats: stats.remote.hedges),
    ("remote_bytes", "Bytes that were fetched.", lambda stats: stats.remote.nbytes),
    ("remote_read_bytes", "Bytes that were read from remote stores.", lambda stats: stats.remote.read_nbytes),
    ("remote_missed_bytes", "Of these, bytes that the cache did not have.", lambda stats: stats.remote.missed_nbytes),
    ("remote_wait_seconds", "Seconds in which readers waited for bytes.", lambda stats: stats.remote.wait_ns / 1e9),
)

_GAUGES: Final[tuple[tuple[str, str, Callable[[Stats], float]], ...]] = (
    ("ready_batches", "Batches that are finished and not taken.", lambda stats: stats.queue.ready),
    ("under_way_batches", "Batches that are requested and not delivered.", lambda stats: stats.queue.under_way),
)


def format_prometheus(stats: Stats, labels: Mapping[str, str] | None = None, prefix: str = "penstock_loader_") -> str:
    """A loader's counters in the text format of Prometheus, for a file or an HTTP answer.

    Parameters
    ----------
    stats : Stats
        What ``loader.stats()`` gives.
    labels : mapping, optional
        Of every line, such as ``{"loader": "train"}``.
    prefix : str
        Of the names.

    Returns
    -------
    str
        Lines of text; each name with its help and type.
    """
    given = dict(labels or {})
    lines: list[str] = []

    def write(name: str, kind: str, text: str, values: Iterable[tuple[dict[str, str], float]]) -> None:
        lines.extend((f"# HELP {prefix}{name} {text}", f"# TYPE {prefix}{name} {kind}"))
        lines.extend(f"{prefix}{name}{_format_labels({**given, **more})} {value:.12g}" for more, value in values)

    for name, text, read in _COUNTERS:
        write(f"{name}_total", "counter", text, [({}, read(stats))])
    for name, text, read in _GAUGES:
        write(name, "gauge", text, [({}, read(stats))])
    write("stage_seconds_total", "counter", "Work of each stage and worker.", _list_stage_seconds(stats))
    return "\n".join(lines) + "\n"


def observe(meter: Any, loader: LoaderStatistics, *, prefix: str = "penstock.loader.") -> None:
    """Have OpenTelemetry read a loader's counters whenever it exports.

    Parameters
    ----------
    meter : opentelemetry.metrics.Meter
        Gets observable counters and gauges; they hold the loader.
    loader : DataLoader
        Of penstock or :mod:`penstock.torch`.
    prefix : str
        Of the names.

    Raises
    ------
    OptionalPackageError
        If ``opentelemetry-api`` is not installed.
    """
    observation = require("opentelemetry.metrics", purpose="to observe a loader").Observation

    def watch(read: Callable[[Stats], float]) -> Callable[[object], list[object]]:
        return lambda _options: [observation(read(loader.stats()))]

    def observe_stages(_options: object) -> list[object]:
        return [observation(seconds, labels) for labels, seconds in _list_stage_seconds(loader.stats())]

    for name, text, read in _COUNTERS:
        meter.create_observable_counter(prefix + name, callbacks=[watch(read)], description=text)
    for name, text, read in _GAUGES:
        meter.create_observable_gauge(prefix + name, callbacks=[watch(read)], description=text)
    text = "Work of each stage and worker."
    meter.create_observable_counter(prefix + "stage_seconds", callbacks=[observe_stages], unit="s", description=text)


def _list_stage_seconds(stats: Stats) -> list[tuple[dict[str, str], float]]:
    return [
        ({"stage": stage.stage, "worker": str(worker.worker)}, stage.time_ns / 1e9)
        for worker in stats.workers
        for stage in worker.stages
        if stage.stage != "wait" and stage.time_ns
    ]


def _format_labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    escaped = {
        name: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for name, value in labels.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"
