"""Whether the pixels of a user's pictures are those of other decoders: what ``penstock check --pixels`` prints.

::

    store ──encoded image──> each installed decoder, in its modes ──┐
                         └─> penstock, in the mode that equals it ──┴──> PixelRow: equal, largest difference, refused

One row for each decoder, mode and format. A file that a decoder refuses is counted and named, and the next one follows.
Called by :mod:`penstock.cli.check_command`; prints nothing.
"""

from __future__ import annotations

import importlib.metadata
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, DecodeError, OptionalPackageError, PenstockError
from penstock.registry import require
from penstock.stores.base import Store
from penstock.transforms.decoding.decode import decode
from penstock.transforms.decoding.image_formats import quiet, sniff

__all__ = ["PixelReport", "PixelRow", "compare_pixels"]

_Read = Callable[[bytes], object]
_Modes = Iterator[tuple[str, _Read, _Read]]
"""A mode, the other decoder's function, and penstock's."""


@dataclass(slots=True)
class PixelRow:
    """The pictures of one format, in one mode, beside one other decoder."""

    decoder: str  # its name and version
    mode: str  # the other decoder's word
    format: str
    files: int = 0
    equal: int = 0  # files whose pixels are equal to the bit
    largest: int = 0  # difference of any value; the whole range where shapes or dtypes differ
    differing: str = ""  # the key of the first file with this difference
    refused: int = 0  # files that only the other decoder refuses
    refused_here: int = 0  # files that only penstock refuses


@dataclass(slots=True)
class PixelReport:
    """What :func:`compare_pixels` found."""

    store: str
    pictures: int = 0
    rows: list[PixelRow] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)  # decoders that are not installed, and why
    damaged: dict[str, str] = field(default_factory=dict)  # by key, why penstock does not decode it

    def to_json(self) -> dict[str, object]:
        """The report as JSON has it."""
        names = ("ok", "store", "pictures", "rows", "absent", "damaged")
        return {name: getattr(self, name) for name in names}

    @property
    def ok(self) -> bool:
        """Whether penstock decodes all that the others decode, to equal pixels."""
        return not any(row.refused_here or row.equal + row.refused < row.files for row in self.rows)


def compare_pixels(store: Store, limit: int | None = None, report: Callable[..., None] | None = None) -> PixelReport:
    """Decode images of a store by penstock and by each decoder that is installed, and compare all values.

    Parameters
    ----------
    store : Store
        It has a field of encoded images.
    limit : int, optional
        At most so many images, evenly spaced.
    report : callable, optional
        Called with the images done, the number of all, and the bytes done.

    Returns
    -------
    PixelReport

    Raises
    ------
    ArgumentError
        If the store has no such field.
    """
    name = next((name for name, each in store.schema.fields.items() if each.is_image and each.pixels is None), None)
    if name is None:
        raise ArgumentError(f"check --pixels needs a store with encoded images, {store.url} has none")
    found = PixelReport(store.url, damaged={each.key: each.reason for each in store.skipped})
    decoders = [(title, list(modes())) for title, modes in _find_decoders(found.absent)]
    rows: dict[tuple[str, str, str], PixelRow] = {}
    total = len(store) if limit is None else min(limit, len(store))
    nbytes = 0
    for done, index in enumerate(np.linspace(0, len(store) - 1, total).astype(int).tolist(), 1):
        try:
            record = store.read([index])[0]
        except PenstockError as error:
            found.damaged[f"record {index}"] = str(error)
            continue
        encoded, key = record.fields[name], record.key
        found.pictures += 1
        nbytes += len(encoded or b"")
        if encoded:
            _compare(bytes(encoded), key, decoders, rows, found.damaged)
        if report is not None:
            report(done, total, nbytes)
    found.rows = [rows[place] for place in sorted(rows, key=lambda place: (place[2], place[0]))]
    return found


def _compare(
    encoded: bytes,
    key: str,
    decoders: list[tuple[str, list[tuple[str, _Read, _Read]]]],
    rows: dict[tuple[str, str, str], PixelRow],
    damaged: dict[str, str],
) -> None:
    try:
        kind = sniff(encoded[:32])
    except DecodeError as error:
        damaged[key] = error.message
        return
    for title, modes in decoders:
        for mode, theirs, ours in modes:
            row = rows.setdefault((title, mode, kind), PixelRow(title, mode, kind))
            row.files += 1
            expected, given = _read(theirs, encoded), _read(ours, encoded)
            if isinstance(given, str):
                damaged[key] = given
            if isinstance(expected, str) or isinstance(given, str):
                row.refused += isinstance(expected, str)
                row.refused_here += not isinstance(expected, str)
                continue
            difference = _measure(expected, given)
            row.equal += difference == 0
            if difference > row.largest:
                row.largest, row.differing = difference, key


def _read(read: _Read, encoded: bytes) -> NDArray[np.generic] | str:
    """The pixels, or why there are none."""
    try:
        with quiet():
            return np.asarray(read(encoded))
    except Exception as error:  # noqa: BLE001  # decoders raise errors of any type on damaged bytes
        return getattr(error, "message", "") or str(error) or type(error).__name__


def _measure(expected: NDArray[np.generic], given: NDArray[np.generic]) -> int:
    if expected.shape != given.shape or expected.dtype != given.dtype:
        return int(np.iinfo(expected.dtype.name).max)
    if np.array_equal(expected, given):
        return 0
    return int(np.abs(expected.astype(np.int64) - given.astype(np.int64)).max())


def _find_decoders(absent: list[str]) -> Iterator[tuple[str, Callable[[], _Modes]]]:
    """The decoders that can be imported; the others are added to ``absent``."""
    for title, package, modes in _DECODERS:
        try:
            module = require(package)
            version = getattr(module, "__version__", "") or importlib.metadata.version(package)
            list(modes())  # imports what it calls
        except OptionalPackageError:
            absent.append(f"{title}, which is not installed")
            continue
        except (ImportError, OSError, RuntimeError) as error:  # a library that it needs is missing
            absent.append(f"{title}: {str(error).splitlines()[0]}")
            continue
        yield f"{title} {version}", modes


def _list_pillow() -> _Modes:
    from PIL import Image

    def convert(encoded: bytes, mode: str) -> NDArray[np.generic]:
        with Image.open(io.BytesIO(encoded)) as image:
            return np.asarray(image.convert(mode))

    for mode in ("RGB", "L", "RGBA"):
        yield mode, lambda e, mode=mode: convert(e, mode), lambda e, mode=mode: decode(e, mode=mode)  # type: ignore[misc]


def _list_torchcodec() -> _Modes:
    decoders = require("torchcodec.decoders")
    from penstock.torch.decoders import decode_image

    for mode in ("RGB", "GRAY", "UNCHANGED"):
        yield (
            mode,
            lambda e, mode=mode: decoders.decode_image(e, mode=mode, output_dtype="auto"),  # type: ignore[misc]
            lambda e, mode=mode: decode_image(e, mode=mode, output_dtype="auto"),  # type: ignore[misc]
        )


def _list_opencv() -> _Modes:
    cv2 = require("cv2")

    def imdecode(encoded: bytes) -> NDArray[np.generic]:
        pixels: NDArray[np.generic] | None = cv2.imdecode(np.frombuffer(encoded, np.uint8), cv2.IMREAD_COLOR)
        if pixels is None:
            raise DecodeError("imdecode returned None")
        return pixels

    yield "BGR", imdecode, lambda encoded: decode(encoded, mode="BGR", orient=True)


_DECODERS: Final = (
    ("Pillow", "PIL", _list_pillow),
    ("TorchCodec", "torchcodec", _list_torchcodec),
    ("OpenCV", "cv2", _list_opencv),
)
"""Name, module, and the modes that penstock has too."""
