"""A loader's counters and gauges: in the text formats of Prometheus and OpenMetrics, and for OpenTelemetry.

The names are one table. They follow OpenMetrics: a unit ends the name, and a counter's sample has ``_total`` behind it.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

import penstock
from penstock.loader.stats import Stats
from penstock.registry import require

__all__ = ["format_metrics", "format_prometheus", "observe"]


_Sample = tuple[dict[str, str], float]
"""Labels that a value has besides those of its loader, and the value."""


class _HasStats(Protocol):
    def stats(self) -> Stats: ...


_COUNTERS: Final[tuple[tuple[str, str, Callable[[Stats], float]], ...]] = (
    ("batches", "Batches that were delivered.", lambda stats: stats.batches),
    ("samples", "Samples that were delivered.", lambda stats: stats.samples),
    ("bytes", "Bytes of delivered samples, estimated from one batch of 64.", lambda stats: stats.nbytes),
    ("left_out", "Samples that could not be built.", lambda stats: stats.left_out),
    ("repaired", "Images that were repaired.", lambda stats: stats.repaired),
    ("wait_seconds", "Seconds in which the consumer waited for batches.", lambda stats: stats.wait_ns / 1e9),
    ("epoch_seconds", "Seconds in which an epoch was under way.", lambda stats: stats.epoch_time.time_ns / 1e9),
    ("remote_requests", "Requests to remote stores.", lambda stats: stats.remote.requests),
    ("remote_retries", "Requests that were repeated after an error.", lambda stats: stats.remote.retries),
    ("remote_hedges", "Requests that were sent again because they were slow.", lambda stats: stats.remote.hedges),
    ("remote_bytes", "Bytes that were fetched.", lambda stats: stats.remote.nbytes),
    ("remote_read_bytes", "Bytes that were read from remote stores.", lambda stats: stats.remote.read_nbytes),
    ("remote_missed_bytes", "Of these, bytes that the cache did not have.", lambda stats: stats.remote.missed_nbytes),
    ("remote_wait_seconds", "Seconds in which readers waited for bytes.", lambda stats: stats.remote.wait_ns / 1e9),
)


def _count_workers(stats: Stats) -> float:
    return stats.changes[-1].workers if stats.changes else sum(each.worker >= 0 for each in stats.workers)


_GAUGES: Final[tuple[tuple[str, str, Callable[[Stats], float]], ...]] = (
    ("ready_batches", "Batches that are finished and not taken.", lambda stats: stats.queue.ready),
    ("under_way_batches", "Batches that are requested and not delivered.", lambda stats: stats.queue.under_way),
    ("batches_ahead_limit", "Most batches under way; 0 between epochs.", lambda stats: stats.queue.limit),
    ("workers", "Workers that have worked, or that the loader has chosen.", _count_workers),
)
_UNITS: Final = ("seconds", "bytes")
_ENDINGS: Final = {"counter": "_total", "info": "_info"}


def format_prometheus(stats: Stats, labels: Mapping[str, str] | None = None, prefix: str = "penstock_") -> str:
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
    return format_metrics([(labels or {}, stats)], prefix)


def format_metrics(
    loaders: Sequence[tuple[Mapping[str, str], Stats]], prefix: str = "penstock_", *, is_open: bool = False
) -> str:
    """The counters of several loaders, each with its labels.

    ``is_open``: in the text format of OpenMetrics 1.0, not in that of Prometheus (0.0.4).
    """
    lines: list[str] = []

    def write(name: str, kind: str, text: str, read: Callable[[Stats], Iterable[_Sample]]) -> None:
        family = prefix + name
        sample = family + _ENDINGS.get(kind, "")
        if is_open:
            lines.append(f"# TYPE {family} {kind}")
            lines.extend(f"# UNIT {family} {unit}" for unit in _UNITS if family.endswith(f"_{unit}"))
            lines.append(f"# HELP {family} {text}")
        else:
            lines.extend((f"# HELP {sample} {text}", f"# TYPE {sample} {'gauge' if kind == 'info' else kind}"))
        lines.extend(
            f"{sample}{_format_labels({**labels, **more})} {value:.12g}"
            for labels, stats in loaders
            for more, value in read(stats)
        )

    for name, text, count in _COUNTERS:
        write(name, "counter", text, _alone(count))
    for name, text, count in _GAUGES:
        write(name, "gauge", text, _alone(count))
    write("stage_seconds", "counter", "Work of each stage and worker.", _list_stage_seconds)
    write("verdict", "info", "What the loop waited for in the last five minutes.", _list_verdict)
    write("build", "info", "Versions.", _list_versions)
    return "\n".join([*lines, "# EOF"] if is_open else lines) + "\n"


def observe(meter: Any, loader: _HasStats, *, prefix: str = "penstock.") -> None:
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


def _alone(count: Callable[[Stats], float]) -> Callable[[Stats], list[_Sample]]:
    return lambda stats: [({}, count(stats))]


def _list_verdict(stats: Stats) -> list[_Sample]:
    return [({"verdict": stats.verdict}, 1)] if stats.verdict else []


def _list_versions(_: Stats) -> list[_Sample]:
    version = getattr(penstock, "__version__", "unknown")  # it has none in a checkout that is not installed
    return [({"version": version, "python": platform.python_version()}, 1)]


def _list_stage_seconds(stats: Stats) -> list[_Sample]:
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
