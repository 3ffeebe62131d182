"""Less work for samples and batches, by code of the user's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.doctor.judge.diagnosis import Advice
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

_LARGE: Final = 4 << 20
_MUCH: Final = 1.1
"""What the absence of a stage brings, from which on a fact of it is told."""


def find_slow_samples(situation: Situation) -> Iterator[Advice]:
    """Tell of samples to repair or leave out samples if few of them take a large part of the time."""
    stragglers = situation.find_stragglers()
    if stragglers is None:
        return
    keys = situation.recording.keys
    names = [keys.get(index) or f"index {index}" for index in stragglers.indices[:3]]
    yield Advice(
        "slow-samples",
        f"repair or leave out {', '.join(names)}",
        f"The slowest sample takes {stragglers.slow_ms:.0f} ms, the median one {stragglers.usual_ms:.2g} ms; batches "
        "behind it wait.",
    )


def find_native_augmentation(situation: Situation) -> Iterator[Advice]:
    """Tell that Python work on samples costs much."""
    if situation.brings("augment") >= _MUCH:
        yield Advice(
            "native-augmentation",
            "replace the slow operation: vectorise it, or use penstock.transforms or torchvision.transforms.v2",
            f"Work on a sample takes {situation.mean_ns('augment') / 1e6:.2g} ms{_place(situation.loader)}.",
        )


def _place(loader: object) -> str:
    """Return where the dataset makes a sample, in words; empty if that is not known."""
    kind = type(getattr(loader, "dataset", None))
    code = getattr(getattr(kind, "__getitem__", None), "__code__", None)
    return (
        ""
        if code is None
        else f", in {kind.__name__}.__getitem__ ({Path(code.co_filename).name}:{code.co_firstlineno})"
    )


def find_faster_collation(situation: Situation) -> Iterator[Advice]:
    """Tell that collation costs much."""
    if situation.brings("collate") >= _MUCH:
        yield Advice(
            "faster-collation",
            "build batches with few calls: torch.stack, or torch.nn.utils.rnn.pad_sequence, in place of loops in "
            "Python; what belongs to one sample goes to __getitem__",
            f"Collation takes {situation.mean_ns('collate') * situation.steps.samples / 1e6:.2g} ms of a batch.",
        )


def find_faster_sampler(situation: Situation) -> Iterator[Advice]:
    """Tell that the sampler takes a large part of the time."""
    draw_ns = situation.recording.draw_ns
    if draw_ns and draw_ns >= situation.shape.wall_ns / 10:
        yield Advice(
            "faster-sampler",
            "draw the indices of many batches at once, with one call of torch or NumPy, in the sampler's __iter__",
            f"The sampler takes {draw_ns / 1e6:.3g} ms for each batch, in the main process, where no worker helps.",
        )


def find_join_arrays(situation: Situation) -> Iterator[Advice]:
    """Try fewer, larger arrays if collating or sending small batches costs much."""
    nbytes = situation.batch_nbytes()
    if situation.brings("collate", "transport") < _MUCH or nbytes >= _LARGE:
        return
    size = f" of {nbytes / 1e6:.2g} MB" if nbytes else ""
    moved_ns = (situation.mean_ns("collate") + situation.mean_ns("transport")) * situation.steps.samples
    yield Advice(
        "join-arrays",
        "return one array for each type from the dataset, and split the batch",
        f"Collating and sending take {moved_ns / 1e6:.1f} ms for a batch{size}: many small arrays are stacked and sent "
        "one by one.",
        trial=Change(joins=True),
        code="torch.cat([tensor.reshape(-1) for tensor in tensors])  # in __getitem__; batch.split(sizes, 1) after",
    )


def find_uint8_batches(situation: Situation) -> Iterator[Advice]:
    """Try uint8 batches if batches are large, and sending, stacking or copying them costs much."""
    nbytes = situation.batch_nbytes()
    if nbytes < _LARGE or (situation.brings("collate", "transport") < _MUCH and situation.steps.copy_share < 0.1):
        return
    yield Advice(
        "uint8",
        "send images as uint8, and normalise them on the device",
        f"A batch has {nbytes / 1e6:.0f} MB; as uint8 it has a quarter of float32's.",
        trial=Change(narrows=True),
        code="images = images.to(device, non_blocking=True).float().sub_(mean).div_(std)",
    )
