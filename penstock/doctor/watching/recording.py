"""What was observed while a training script ran: the input of every analysis, in plain numbers.

::

    main process      LoaderWatch ── waits, steps, copies, queue depths┐
    worker processes  a file of events each (event_file.py) ───────────┼──> Recording ──> verdict, model, report, trace
    /proc             sampler (usage.py) ──────────────────────────────┘

Times are nanoseconds of ``time.perf_counter_ns``, which all processes of a machine share. A recording holds no object
of the user's program, so it can be written to a file and compared with that of another machine.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from penstock.doctor.machine.usage import ProcessUsage

__all__ = [
    "BATCH",
    "EVENT",
    "SAMPLE",
    "STAGES",
    "WORK_STAGES",
    "Events",
    "LoaderSettings",
    "Recording",
    "StepTimes",
    "ThreadGain",
    "load_recording",
    "save_recording",
]

WORK_STAGES: Final = ("read", "decode", "augment", "collate", "transport")
"""Stages of a sample on its way to the main process, in order."""

STAGES: Final = (*WORK_STAGES, "wait", "copy", "step")
"""Stages of the report: ``wait`` is the trainer's for a batch, ``copy`` to the device."""

EVENT: Final = np.dtype(
    [
        ("stage", np.uint8),  # position in STAGES; SAMPLE: a whole sample; BATCH: a whole batch
        ("worker", np.int16),  # -1: the main process
        ("batch", np.int32),  # number in the epoch, -1: unknown
        ("index", np.int64),  # of the sample in the dataset, -1: none
        ("start", np.int64),
        ("end", np.int64),
        ("cpu", np.int64),  # processor time of the thread between start and end, nanoseconds; -1: not measured
        ("nbytes", np.int64),  # of the batch or sample, -1: not measured
        ("samples", np.int32),  # that it is about: 1, or those of a chunk or batch; 0: unknown
    ]
)
"""One event.

====================  ==================================================================================================
``SAMPLE``            A sample (or a chunk of samples that are built by one call; ``index`` is then -1).
read, decode,         A part of the samples of a batch, by the same worker. The time of all of them is measured, and
augment               divided by what was seen on the stack, or by the dataset's own trace.
collate               The call of ``collate_fn``.
transport             Of penstock's loaders: encoding a batch in a worker, and receiving it in the main process. Cost of
                      a sample: all of them, divided by the samples of the batches.
``BATCH``             A worker's time from a task to its batch; ``samples`` of the batch. penstock's workers encode it
                      within. Where batches are short, only some of them have events.
====================  ==================================================================================================
"""

SAMPLE: Final = 100
BATCH: Final = 101

Events = npt.NDArray[np.void]
"""An array of EVENT."""


@dataclass(frozen=True, slots=True)
class LoaderSettings:
    """What decides a loader's speed."""

    library: str  # "torch" or "penstock"
    workers: str  # "serial", "threads" or "processes"
    num_workers: int
    prefetch_factor: int
    batch_size: int
    """``num_workers``, ``prefetch_factor`` and ``batch_size``: as given; ``prefetch_factor`` 0 without workers;
    ``batch_size`` 0 if batches are made by the dataset."""
    pin_memory: bool = False
    persistent_workers: bool = False
    in_order: bool = True
    """``pin_memory``, ``persistent_workers`` and ``in_order``: as given."""
    start_method: str = ""  # of worker processes; empty without any
    dataset: str = ""  # the class of the dataset
    length: int = -1  # samples of the dataset; -1 for a stream


@dataclass(slots=True)
class StepTimes:
    """The steps of the training script, one element for each batch that it took."""

    wait_ns: npt.NDArray[np.int64]  # (n,): how long the script waited for the batch
    step_ns: npt.NDArray[np.int64]  # (n,): from the batch's arrival to the request of the next one, copies included
    copy_ns: npt.NDArray[np.int64]  # (n,): time of the step in which it copies to the device
    cpu_ns: npt.NDArray[np.int64]  # (n,): processor time of the main process in the step, all threads but penstock's
    samples: npt.NDArray[np.int64]  # (n,): samples of the batch
    start_ns: npt.NDArray[np.int64]  # (n,): when the batch arrived
    ready: npt.NDArray[np.int64]
    """(n,): batches that were ready when the script asked for this one; -1 where that cannot be seen."""
    replayed: npt.NDArray[np.bool_]
    """(n,): whether the script got the batch before once more (the fixed-data test): it then waited for nothing."""
    device_ns: npt.NDArray[np.int64]  # (n,): time of the step in which the device was busy; -1 where there is none
    epoch: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """(n,): number of the epoch, from 0; the first wait of an epoch includes the start of its workers. Empty if
    unknown."""


@dataclass(frozen=True, slots=True)
class ThreadGain:
    """The script with one thread of torch's in the main process, against as it is."""

    threads: int  # of torch's, as it is
    lowest: float  # speed with one thread, divided by that of the steps before
    highest: float  # speed with one thread, divided by that of the steps after

    @property
    def middle(self) -> float:
        """The geometric mean of both."""
        return math.sqrt(self.lowest * self.highest)


@dataclass(slots=True)
class Recording:
    """All that was observed of one loader.

    Parameters
    ----------
    settings : LoaderSettings
        The loader's arguments.
    steps : StepTimes
        The script's steps.
    events : array of EVENT
        Of all processes, in the order of their starts.
    usage : list of ProcessUsage
        One for each process.
    machine : dict
        What :func:`penstock.doctor.machine.machine.describe_machine` gives; numbers, text and lists only.
    device : dict
        ``launch_bound`` (0..1), the part of the steps at whose end the device was done when the script was; None if
        it has failed. Empty if the script uses no device.
    remote : dict
        What was fetched from a remote store, as :func:`~.loader_settings.describe_remote` gives it.
    keys : dict of int to str
        Names of the slowest samples, where the dataset has names.
    rank, world_size : int
        Of the process, where several train together.
    command : list of str
        The script and its arguments; empty if it was watched from Python.
    ended : str
        How the script ended: "steps" (enough were seen), "finished", "exit N", "error: ...", "interrupted".
    warm_up : int
        Steps at the beginning that are left out.
    others : list of dict
        Other loaders of the script: ``dataset``, ``samples``, ``wait_ns``.
    thread_gain : ThreadGain, optional
        What one thread of torch's in the main process gains, where the script has been run with it for some steps.
    loaders : int
        Loaders that the script made one after the other by the same call, and that are reported as one.
    draw_ns : float
        Mean time of torch's sampler to draw the indices of a batch, in the main process.
    """

    settings: LoaderSettings
    steps: StepTimes
    events: Events
    usage: list[ProcessUsage] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=dict)
    device: dict[str, Any] = field(default_factory=dict)
    remote: dict[str, int | str] = field(default_factory=dict)
    keys: dict[int, str] = field(default_factory=dict)
    rank: int = 0
    world_size: int = 1
    command: list[str] = field(default_factory=list)
    ended: str = ""
    warm_up: int = 0
    others: list[dict[str, Any]] = field(default_factory=list)
    draw_ns: float = 0.0
    loaders: int = 1
    thread_gain: ThreadGain | None = None


# A file: what other ranks send to rank 0. It holds numbers and text only; nothing is pickled.

_TEXTS = (
    *("machine", "device", "remote", "rank", "world_size", "command", "ended", "warm_up", "others"),
    "draw_ns",
    "loaders",
)


def save_recording(recording: Recording, path: Path) -> None:
    """Write a recording: its arrays, and all else as JSON under ``text``; ``path`` ends with ``.npz``."""
    text = {
        **{name: getattr(recording, name) for name in _TEXTS},
        "settings": asdict(recording.settings),
        "usage": [asdict(process) for process in recording.usage],
        "keys": list(recording.keys.items()),
    }
    arrays = {f"steps.{part.name}": getattr(recording.steps, part.name) for part in fields(StepTimes)}
    np.savez(path, events=recording.events, text=np.array(json.dumps(text, default=str)), **arrays)


def load_recording(path: Path) -> Recording:
    """Read what :func:`save_recording` has written.

    Raises OSError, ValueError or KeyError if the file is no such file.
    """
    with np.load(path, allow_pickle=False) as stored:
        text: dict[str, Any] = json.loads(str(stored["text"]))
        steps = StepTimes(**{part.name: stored[f"steps.{part.name}"] for part in fields(StepTimes)})
        events = stored["events"]
    return Recording(
        LoaderSettings(**text["settings"]),
        steps,
        events,
        usage=[ProcessUsage(**process) for process in text["usage"]],
        keys={int(index): str(key) for index, key in text["keys"]},
        **{name: text[name] for name in _TEXTS},
    )
