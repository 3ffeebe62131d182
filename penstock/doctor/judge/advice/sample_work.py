"""Less work for samples and batches, by code of the user's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from penstock.doctor.judge.diagnosis import Advice
from penstock.doctor.judge.queueing import Work
from penstock.doctor.judge.situation import Situation
from penstock.doctor.trials.changed_loader import Change

__all__ = [
    "find_faster_collation",
    "find_faster_sampler",
    "find_join_arrays",
    "find_native_augmentation",
    "find_slow_samples",
    "find_uint8_batches",
]

_NATIVE_AUGMENTATION_LEFT: Final = 0.3
_FASTER_COLLATION_LEFT: Final = 0.3
_FASTER_SAMPLER_LEFT: Final = 0.1
_JOIN_ARRAYS_MUCH: Final = 0.25
_FEW_ARRAYS_NS: Final = 3e6
_JOIN_ARRAYS_LEFT: Final = 0.2
"""Part of the costs of collation and transport that is assumed to stay."""
_UINT8_BATCHES_LARGE: Final = 4 << 20


def find_slow_samples(situation: Situation) -> Iterator[Advice]:
    """Advise to repair or leave out samples if few of them take a large part of the time."""
    stragglers = situation.find_stragglers()
    if stragglers is None:
        return
    pipeline = situation.pipeline
    # A batch without its straggler costs at most what the slowest of the others does.
    build = {}
    for stage, work in pipeline.build.items():
        whole = work.cpu_ns + work.idle_ns
        limit = 3 * float(np.median(whole)) if len(whole) else 0.0
        factor = np.minimum(1.0, limit / whole.clip(1)) if limit else np.zeros_like(whole)
        build[stage] = Work(work.cpu_ns * factor, work.idle_ns * factor)
    keys = situation.recording.keys
    names = [keys.get(index) or f"index {index}" for index in stragglers.indices[:3]]
    yield Advice(
        "slow-samples",
        f"repair or leave out {', '.join(names)}",
        f"The slowest sample takes {stragglers.slow_ms:.0f} ms, the median one {stragglers.usual_ms:.2g} ms; batches "
        "behind it wait.",
        situation.gain_of(replace(pipeline, build=build)),
    )


def find_native_augmentation(situation: Situation) -> Iterator[Advice]:
    """Advise vectorised or native operations if Python work on samples limits."""
    share = situation.share("augment")
    if share < 0.4:
        return
    yield Advice(
        "native-augmentation",
        "replace the slow operation: vectorise it, or use penstock.transforms or torchvision.transforms.v2",
        f"Work on a sample takes {situation.mean_ns('augment') / 1e6:.2g} ms, {share:.0%} of the loader's time. 30 % "
        "of it is assumed to stay.",
        situation.gain_of(situation.pipeline.with_stage("augment", _NATIVE_AUGMENTATION_LEFT)),
    )


def find_faster_collation(situation: Situation) -> Iterator[Advice]:
    """Advise to collate with few calls if collation limits."""
    share = situation.share("collate")
    if share < 0.25:
        return
    yield Advice(
        "faster-collation",
        "build batches with few calls: torch.stack, or torch.nn.utils.rnn.pad_sequence, in place of loops in Python; "
        "what belongs to one sample goes to __getitem__",
        f"Collation takes {share:.0%} of the loader's time. 30 % of it is assumed to stay.",
        situation.gain_of(situation.pipeline.with_stage("collate", _FASTER_COLLATION_LEFT)),
    )


def find_faster_sampler(situation: Situation) -> Iterator[Advice]:
    """Advise a faster sampler if it takes a large part of the loader's time."""
    pipeline = situation.pipeline
    if not pipeline.draw_ns or pipeline.draw_ns < pipeline.step_ns / 10:
        return
    yield Advice(
        "faster-sampler",
        "draw the indices of many batches at once, with one call of torch or NumPy, in the sampler's __iter__",
        f"The sampler takes {pipeline.draw_ns / 1e6:.3g} ms for each batch, in the main process, where no worker "
        "helps. A tenth of it is assumed to stay.",
        situation.gain_of(replace(pipeline, draw_ns=_FASTER_SAMPLER_LEFT * pipeline.draw_ns)),
    )


def find_join_arrays(situation: Situation) -> Iterator[Advice]:
    """Advise fewer, larger arrays if collation or sending limits, and the size of batches does not explain it."""
    moved_ns = _time_moving(situation)
    share = situation.share("collate") + situation.share("transport")
    # A copy takes about a nanosecond for 4 bytes or more; sending few arrays takes less than some milliseconds.
    is_slow = situation.share("collate") >= _JOIN_ARRAYS_MUCH or moved_ns >= _FEW_ARRAYS_NS
    nbytes = situation.batch_nbytes()
    if share < _JOIN_ARRAYS_MUCH or not is_slow or nbytes > moved_ns:
        return
    size = f" of {nbytes / 1e6:.2g} MB" if nbytes else ""
    changed = situation.pipeline.with_stage("collate", _JOIN_ARRAYS_LEFT).with_stage("transport", _JOIN_ARRAYS_LEFT)
    yield Advice(
        "join-arrays",
        "return one array for each type from the dataset, and split the batch",
        f"Collating and sending take {moved_ns / 1e6:.1f} ms for a batch{size}: many small arrays are stacked and sent "
        "one by one.",
        situation.gain_of(changed),
        trial=Change(joins=True),
        code="torch.cat([tensor.reshape(-1) for tensor in tensors])  # in __getitem__; batch.split(sizes, 1) after",
    )


def _time_moving(situation: Situation) -> float:
    """Return the time of collating, sending and receiving a batch, without waiting for cores."""
    works = [work for stage, work in situation.pipeline.build.items() if stage in {"collate", "transport"}]
    sent_ns = sum(float(work.cpu_ns.mean() + work.idle_ns.mean()) for work in works if len(work.cpu_ns))
    return sent_ns + situation.pipeline.receive_ns


def find_uint8_batches(situation: Situation) -> Iterator[Advice]:
    """Advise uint8 batches if batches are large, and sending, stacking or copying them takes much of the time."""
    steps = situation.steps
    moved = situation.share("transport") + situation.share("collate")
    nbytes = situation.batch_nbytes()
    if nbytes < _UINT8_BATCHES_LARGE or (moved < 0.2 and steps.copy_share < 0.1):
        return
    changed = situation.pipeline.with_stage("transport", 0.25).with_stage("collate", 0.25)
    yield Advice(
        "uint8",
        "send images as uint8, and normalise them on the device",
        f"A batch has {nbytes / 1e6:.0f} MB; as uint8 it has a quarter of float32's.",
        situation.gain_of(changed),
        trial=Change(narrows=True),
        code="images = images.to(device, non_blocking=True).float().sub_(mean).div_(std)",
    )
