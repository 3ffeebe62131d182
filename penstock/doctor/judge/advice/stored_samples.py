"""Samples that are stored in another way, or elsewhere, so that they are read and decoded in less time."""

from __future__ import annotations

import contextlib
import dis
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from penstock.doctor.judge.diagnosis import Advice
from penstock.doctor.judge.situation import Situation
from penstock.errors import PenstockError
from penstock.paths import COEFFICIENTS, IMAGE_SUFFIXES
from penstock.stores.base import Store
from penstock.stores.common.seek_table_file import seek_table_path

__all__ = [
    "find_packing",
    "find_readahead",
    "find_resize_when_packing",
    "find_scaled_decoding",
    "find_seek_tables",
]

_MUCH: Final = 1.1
"""What the absence of a stage brings, from which on a fact of it is told."""
_RESIZE_WHEN_PACKING_LARGE: Final = 300_000
_RESIZE_WHEN_PACKING_NEEDED: Final = 60_000
"""Encoded bytes of a photograph whose short side has 256 pixels, rounded up."""
_SCALED_DECODING_LARGE: Final = 150_000
_SCALED_DECODING_UNKNOWN: Final = 2_000
"""A worker that reads less for a sample has its files in memory: the bytes are those of its messages."""
_PICTURE_LIBRARIES: Final = frozenset({"PIL.Image", "cv2", "torchvision.io", "imageio", "simplejpeg", "turbojpeg"})
_JPEG_ENDINGS: Final = frozenset({".jpg", ".jpeg", ".jpe", ".jfif", ".mpo"})


def find_packing(situation: Situation) -> Iterator[Advice]:
    """Tell to pack the dataset if reading limits, and it is no store of penstock's already."""
    if situation.brings("read") < _MUCH or reads_a_store(situation):
        return
    if _loads_whole_arrays(situation.loader):
        yield Advice(
            "memory-map",
            "map the file: numpy.load(path, mmap_mode='r') in the place of numpy.load(path)",
            f"Reading takes {situation.mean_ns('read') / 1e6:.2g} ms of a sample: numpy.load reads the whole file for "
            "each one.",
            code="array = numpy.load(path, mmap_mode='r'); numpy.array(array[index])",
        )
        return
    progressive = " Progressive JPEGs decode as fast as others from a pack with --transcode coefficients."
    yield Advice(
        "packing",
        "pack the dataset into a store: penstock pack SRC DST.lmdb",
        f"Reading takes {situation.mean_ns('read') / 1e6:.2g} ms of a sample; one file is read "
        f"faster than many.{progressive if decodes_pictures(situation, _JPEG_ENDINGS) else ''}",
        code='dataset = penstock.StoreDataset(penstock.open("DST.lmdb"), ...)',
    )


def _loads_whole_arrays(loader: object) -> bool:
    """Return whether the dataset's own code calls ``numpy.load`` for each sample, and never maps a file."""
    code = getattr(getattr(type(getattr(loader, "dataset", None)), "__getitem__", None), "__code__", None)
    if code is None or "mmap_mode" in str(code.co_consts):  # names of keyword arguments are among the constants
        return False
    names = [instruction.argval for instruction in dis.get_instructions(code)]
    return any(owner in {"np", "numpy"} and name == "load" for owner, name in pairwise(names))


def reads_a_store(situation: Situation) -> bool:
    """Return whether the dataset reads a store of penstock's."""
    return situation.recording.settings.dataset == "StoreDataset"


def find_readahead(situation: Situation) -> Iterator[Advice]:
    """Tell a local disk if reading limits, and the dataset is on a rotating disk or in a network file system."""
    if situation.brings("read") < _MUCH or situation.idle_share("read") < 0.3 or situation.recording.remote:
        return
    for disk in situation.recording.machine.get("disks") or ():
        kind = str(disk.get("file_system") or "")
        is_remote = disk.get("kind") == "network"
        if not is_remote and not disk.get("is_rotational"):
            continue
        place = f"a network file system ({kind})" if is_remote else "a rotating disk"
        yield Advice(
            "readahead",
            "copy the dataset to a local solid-state disk, or read shards from their beginning",
            f"The dataset lies on {place}, where each single read waits.",
        )
        return


def find_seek_tables(situation: Situation) -> Iterator[Advice]:
    """Tell seek tables if decoding of a store of penstock's limits, and the store has none."""
    store = getattr(getattr(situation.loader, "dataset", None), "store", None)
    if situation.brings("decode") < _MUCH or not reads_a_store(situation) or not isinstance(store, Store):
        return
    if seek_table_path(store.location, "image").exists() or _holds_coefficients(store):
        return
    yield Advice(
        "seek-tables",
        "write decode indices beside the store: penstock index STORE",
        "Decoding of a crop begins at the start of the file. With an index it begins at the crop.",
        code="penstock index STORE",
    )


def _holds_coefficients(store: Store) -> bool:
    """Whether the first image is stored as coefficients, of which a crop reads a part without an index."""
    with contextlib.suppress(PenstockError):
        return bytes(store.blobs("image", [0])[0] or b"").startswith(COEFFICIENTS)
    return False


def find_resize_when_packing(situation: Situation) -> Iterator[Advice]:
    """Tell to resize if decoding limits, and files are far larger than a network's input needs."""
    nbytes = bytes_of_sample(situation)
    is_slow = situation.brings("decode") >= _MUCH and nbytes >= _RESIZE_WHEN_PACKING_LARGE
    if not is_slow or not decodes_pictures(situation):
        return
    yield Advice(
        "resize-when-packing",
        "store images at the size that is needed: resize them once, before they are packed",
        f"A sample has {nbytes / 1e3:.0f} kB, and decoding takes {situation.mean_ns('decode') / 1e6:.2g} ms of it; a "
        f"photograph whose short side has 256 pixels has some {_RESIZE_WHEN_PACKING_NEEDED // 1000} kB.",
        code="penstock pack SRC DST --resize 256",
    )


def decodes_pictures(situation: Situation, endings: frozenset[str] = IMAGE_SUFFIXES) -> bool:
    """Whether what is decoded may be pictures: by the endings of samples' names, or else by the libraries loaded."""
    suffixes = {Path(key).suffix.lower() for key in situation.recording.keys.values()} - {""}
    return not suffixes.isdisjoint(endings) if suffixes else not _PICTURE_LIBRARIES.isdisjoint(sys.modules)


def bytes_of_sample(situation: Situation) -> float:
    """Encoded bytes of one sample, by the bytes that workers read; 0 if unknown."""
    recording = situation.recording
    samples = float(recording.steps.samples[~recording.steps.replayed].sum())
    workers = [usage.read_calls_bytes for usage in recording.usage if usage.role.startswith("worker")]
    return sum(workers) / samples if samples and workers else 0.0


def find_scaled_decoding(situation: Situation) -> Iterator[Advice]:
    """Tell scaled decoding if decoding limits, and images are large, or their size is not known."""
    if (
        situation.brings("decode") < _MUCH
        or not decodes_pictures(situation, _JPEG_ENDINGS)
        or _SCALED_DECODING_UNKNOWN < bytes_of_sample(situation) < _SCALED_DECODING_LARGE
    ):
        return
    yield Advice(
        "scaled-decoding",
        "decode JPEGs at the size that is needed: image.draft('RGB', size) with Pillow, or penstock's pipelines",
        f"Decoding takes {situation.mean_ns('decode') / 1e6:.2g} ms of a sample, and less where images are larger than "
        "what the training uses.",
        code="image.draft('RGB', (256, 256))",
    )
