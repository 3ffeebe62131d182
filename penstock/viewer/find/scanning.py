"""The scan of all records: facts that no column has, measured in threads of their own while the viewer is used.

::

    filter, order, panel ──start()──> threads ──read 16 records, measure──> facts, a row for each record

A picture is measured for its header, and for how its pixels look, decoded at a fraction of the size, as gray. Nothing
is kept beside the store. A scan that was stopped goes on where it was when it is started again.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from penstock.errors import DecodeError, ImageTooLargeError, PenstockError, UnsupportedImageError
from penstock.sample import Array, Blob, Record
from penstock.sheets.canvas import as_rgb
from penstock.stores.problems import DAMAGE
from penstock.transforms.decoding.decode import MAX_PIXELS, as_bytes, decode, read_orientations, sizes
from penstock.transforms.decoding.image_formats import sniff
from penstock.viewer.browse.collection import Collection

__all__ = ["FORMATS", "REPAIRED", "UNREADABLE", "Facts", "Scan", "measure"]

UNREADABLE: Final = 1
REPAIRED: Final = 2
"""What may be wrong with the bytes of a picture; repaired: damaged, but decoded as far as possible."""

FORMATS: Final = (
    "", "JPEG", "PNG", "GIF", "WebP", "BMP", "TIFF", "PPM", "AVIF", "HEIC", "JPEG XL", "pixels", "unsupported",
)  # fmt: skip
"""Names of what is kept as a number; the empty one where it is not known."""

_LONG_SIDE: Final = 256
_LUMA: Final = np.array([0.299, 0.587, 0.114], np.float32)
_ROWS, _COLUMNS = np.mgrid[0:8, 0:8]
_HASH_ORDER: Final = np.argsort((_ROWS + _COLUMNS).ravel() % 4, kind="stable")
"""The order of the bits of a hash: each 16 of them lie all over the picture, so that a border of one colour does not
make them equal (see :func:`.problems.find_duplicates`)."""

_CHUNK: Final = 16
_MOST_THREADS: Final = 8
_FAILURES: Final = (PenstockError, OSError, MemoryError, *DAMAGE)
_RENEWAL_S: Final = 1.0
"""Filters that need facts of the scan are evaluated again after this time, while it goes on."""


class Facts(NamedTuple):
    """What is kept of a record.

    Brightness and contrast are the mean and the standard deviation of gray values, 0 to 255; sharpness is the variance
    of the Laplacian. Both are taken of the picture reduced to at most 256 pixels a side. NaN: not measured.
    """

    known: bool = True
    format: int = 0
    orientation: int = 1
    broken: int = 0
    width: int = 0
    height: int = 0
    nbytes: int = 0
    brightness: float = np.nan
    contrast: float = np.nan
    sharpness: float = np.nan
    hash: int = 0


_DTYPES: Final = ("?", "u1", "u1", "u1", "i4", "i4", "u4", "f4", "f4", "f4", "u8")
_FACTS: Final = np.dtype([*zip(Facts._fields, _DTYPES, strict=True)])
_NOTHING: Final = Facts(broken=UNREADABLE)
"""Those of a record that cannot be read."""


class Scan:
    """Measures the records of a collection in the background.

    ``facts``, (n,), has what is known; rows are written while others read. ``generation`` changes when there are new
    facts, at most once a second.
    """

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self.facts = np.full(collection.total, np.array(Facts(known=False), _FACTS))
        self.generation, self._renewed = 0, time.monotonic()
        self._lock = threading.Lock()
        self._next = 0
        self._threads: set[threading.Thread] = set()
        self._is_stopped = self._is_closed = False

    def start(self, *, after_stop: bool = True) -> None:
        """Begin to measure all records, or go on; ``after_stop``: also if it was stopped. Returns at once."""
        with self._lock:
            if self._is_closed or (self._is_stopped and not after_stop):
                return
            self._is_stopped = False
            count = min(_MOST_THREADS, max(1, (os.cpu_count() or 1) - 1)) if self._next < len(self.facts) else 0
            for _ in range(count - len(self._threads)):
                thread = threading.Thread(target=self._run, name="penstock-view-scan", daemon=True)
                self._threads.add(thread)
                thread.start()

    def stop(self) -> None:
        """Measure no further records, until :meth:`start` is called."""
        self._is_stopped = True

    def close(self) -> None:
        """Stop, and wait for the threads, each of which ends after the picture that it decodes."""
        with self._lock:
            self._is_stopped = self._is_closed = True
        self.wait()

    def wait(self) -> None:
        """Return when nothing is measured any more."""
        while threads := list(self._threads):
            threads[0].join()

    @property
    def is_running(self) -> bool:
        """Whether records are measured now."""
        return bool(self._threads) and not self._is_stopped

    def progress(self) -> dict[str, float]:
        """Return ``{running, stopped, total, measured, known}``; ``known``: the part that was measured, 0 to 1."""
        total, measured = len(self.facts), int(np.count_nonzero(self.facts["known"]))
        return {
            "running": self.is_running, "stopped": self._is_stopped, "total": total, "measured": measured,
            "known": measured / total if total else 1.0,
        }  # fmt: skip

    def _run(self) -> None:
        while indices := self._take():
            try:
                records = dict(zip(indices, self._collection.store.read(indices), strict=True))
            except _FAILURES:
                records = {}  # they are read one by one
            for index in indices:
                if self._is_stopped:
                    with self._lock:  # these records are taken again
                        self._next = min(self._next, index)
                    break
                self._measure(index, records.get(index))

    def _take(self) -> list[int]:
        """The next records; empty: there are none, and this thread ends."""
        with self._lock:
            indices: list[int] = []
            while not indices and not self._is_stopped and self._next < len(self.facts):
                begin, self._next = self._next, self._next + _CHUNK
                indices = (begin + np.flatnonzero(~self.facts["known"][begin : self._next])).tolist()
            if not indices:
                self._threads.discard(threading.current_thread())
            if not indices or time.monotonic() - self._renewed > _RENEWAL_S:
                self.generation, self._renewed = self.generation + 1, time.monotonic()
            return indices

    def _measure(self, index: int, record: Record | None) -> None:
        try:
            fields = (self._collection.store.read([index])[0] if record is None else record).fields
            self.facts[index] = measure(fields.get(self._collection.image_field))
        except _FAILURES:  # also of values that are no picture at all
            self.facts[index] = _NOTHING


def measure(image: Blob | Array | None) -> Facts:
    """Return the facts of a picture: a file, or pixels (height, width, channels); None: the record has no picture."""
    if image is None:
        return Facts()
    if isinstance(image, np.ndarray) and image.ndim == 3:
        height, width, _ = image.shape
        facts = Facts(True, FORMATS.index("pixels"), 1, 0, width, height, min(image.nbytes, 0xFFFFFFFF))
        step = max(1, max(width, height) // (2 * _LONG_SIDE))
        return facts if 0 in image.shape else _add_look(facts, as_rgb(image[::step, ::step]) @ _LUMA)
    encoded = as_bytes(image)
    facts = Facts(nbytes=min(len(encoded), 0xFFFFFFFF))
    try:
        form = sniff(encoded[:32])
        width, height = (int(side) for side in sizes([encoded])[0])
        orientation = int(read_orientations([encoded], MAX_PIXELS)[0])
    except DecodeError as error:
        is_image = isinstance(error, UnsupportedImageError | ImageTooLargeError)
        return facts._replace(broken=UNREADABLE, format=FORMATS.index("unsupported" if is_image else ""))
    facts = facts._replace(format=FORMATS.index(form), orientation=orientation, width=width, height=height)
    scale = next((each for each in (8, 4, 2) if max(width, height) >= each * _LONG_SIDE
                  and min(width, height) >= each * 9), 1)  # fmt: skip
    for broken, on_truncated in ((0, None), (REPAIRED, "repair")):
        try:
            gray = decode(encoded, scale=scale, mode="L", orient=True, on_truncated=on_truncated)
        except DecodeError:
            continue
        return _add_look(facts._replace(broken=broken), gray)
    return facts._replace(broken=UNREADABLE)


def _add_look(facts: Facts, gray: Array) -> Facts:
    height, width = gray.shape
    ratio = max(1.0, max(height, width) / _LONG_SIDE)
    small = _resize(gray, max(1, round(height / ratio)), max(1, round(width / ratio)))
    laplacian = small[:-2, 1:-1] + small[2:, 1:-1] + small[1:-1, :-2] + small[1:-1, 2:] - 4 * small[1:-1, 1:-1]
    return facts._replace(
        brightness=float(small.mean()), contrast=float(small.std()),
        sharpness=float(laplacian.var()) if laplacian.size else np.nan, hash=_hash(small),
    )  # fmt: skip


def _resize(gray: Array, height: int, width: int) -> NDArray[np.float32]:
    """Make a small picture of means of blocks."""
    picture = Image.fromarray(gray.astype(np.float32))
    return np.asarray(picture.resize((width, height), Image.Resampling.BOX), np.float32)


def _hash(gray: NDArray[np.float32]) -> int:
    """Hash to 64 bits: whether gray falls from each of 9 x 8 blocks to the one right of it (dHash, N. Krawetz 2013).

    Pictures that differ by compression, size or a little colour differ by a few bits.
    """
    blocks = _resize(gray, 8, 9)
    bits = (blocks[:, :-1] > blocks[:, 1:] + 0.5).ravel()[_HASH_ORDER]
    return int.from_bytes(np.packbits(bits).tobytes(), "big")
