"""LMDB environments in the layouts of other programs, written as their scripts do: with py-lmdb and pickle alone.

The pictures are those of ``test_stores.py``: in ``folder / "photos"``, in the order of :data:`KEYS`.
"""

from __future__ import annotations

import io
import pickle
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import lmdb
import numpy as np
from PIL import Image

KEYS: Final = ("cats/2.jpg", "cats/10.jpg", "dogs/1.jpg", "dogs/2.jpg", "dogs/3.png")
LABELS: Final = (0, 0, 1, 1, 1)
NAME_KEYS: Final = tuple(f"{number}_{key}" for number, key in enumerate(KEYS))
PAIRS: Final = {"shape": (8, 9, 3), "channels": "BGR"}
WORDS: Final = {"classes": ("cats", "dogs")}
WORD_KEYS: Final = tuple(f"{number:09d}" for number in range(1, len(KEYS) + 1))
NAMES: Final = {"shape": (), "dtype": "int64"}


def read_photos(folder: Path) -> list[tuple[int, bytes]]:
    """Number and bytes of each picture that is there."""
    paths = [folder / "photos" / key for key in KEYS]
    return [(number, path.read_bytes()) for number, path in enumerate(paths) if path.exists()]


def crop(encoded: bytes) -> np.ndarray[Any, Any]:
    """The first 8 rows of 9 pixels, RGB."""
    with Image.open(io.BytesIO(encoded)) as image:
        return np.asarray(image.convert("RGB"))[:8, :9]


def write(path: Path, entries: Iterable[tuple[bytes, bytes]]) -> str:
    """An environment of these entries, in place of one that is there."""
    shutil.rmtree(path, ignore_errors=True)
    with lmdb.open(str(path), map_size=1 << 28) as environment, environment.begin(write=True) as transaction:
        for key, value in entries:
            assert transaction.put(key, value, overwrite=False)
    (path / "lock.mdb").unlink()
    return str(path)


def make_pickle_index(folder: Path) -> str:
    """Pickled (bytes, label), `__keys__` and `__len__`."""
    photos = read_photos(folder)
    keys = [b"%d" % row for row in range(len(photos))]
    values = [pickle.dumps((content, LABELS[number])) for number, content in photos]
    entries = zip(keys, values, strict=True)
    return write(
        folder / "index.lmdb", [*entries, (b"__keys__", pickle.dumps(keys)), (b"__len__", pickle.dumps(len(keys)))]
    )


def make_many_pickles(folder: Path, count: int, nbytes: int = 0) -> str:
    """Many images of at least ``nbytes``, with the labels 0 to 999, as :func:`make_pickle_index` writes them."""
    keys = [b"%d" % row for row in range(count)]
    values = (pickle.dumps((make_image(row, nbytes), row % 1000)) for row in range(count))
    end = [(b"__keys__", pickle.dumps(keys)), (b"__len__", pickle.dumps(count))]
    return write(folder / "many.lmdb", [*zip(keys, values, strict=True), *end])


def make_many_names(folder: Path, count: int, nbytes: int = 0) -> str:
    """The same, as :func:`make_names` writes them."""
    images = ((b"%06d.jpg" % row, make_image(row, nbytes)) for row in range(count))
    labels = ((b"%06d.txt" % row, np.array(row % 1000).tobytes()) for row in range(count))
    return write(folder / "many.names.lmdb", [*images, *labels])


def make_image(number: int, nbytes: int) -> bytes:
    """What looks like a JPEG file, another one for each number."""
    return (b"\xff\xd8\xff%d" % number).ljust(nbytes, b".")


def make_pairs(folder: Path) -> str:
    """BGR pixels and texts."""
    entries = []
    for row, (number, content) in enumerate(read_photos(folder)):
        entries.append((b"%d" % row, crop(content)[:, :, ::-1].tobytes()))
        entries.append((b"%d_" % row, f"{LABELS[number]},0.5 -0.25 0.1 {row}.5,".encode()))
    return write(folder / "pairs.lmdb", entries)


def make_words(folder: Path) -> str:
    """Images of words with their texts, as text recognition has them."""
    entries = [(b"num-samples", b"%d" % len(read_photos(folder)))]
    for row, (number, content) in enumerate(read_photos(folder), 1):
        entries.append((b"image-%09d" % row, content))
        entries.append((b"label-%09d" % row, WORDS["classes"][LABELS[number]].encode()))
    return write(folder / "words.lmdb", entries)


def make_names(folder: Path) -> str:
    """Images by name, the label beside each."""
    entries = []
    for number, content in read_photos(folder):
        stem, _, _ = NAME_KEYS[number].rpartition(".")
        entries.append((NAME_KEYS[number].encode(), content))
        entries.append((f"{stem}.txt".encode(), np.array(LABELS[number]).tobytes()))
    return write(folder / "names.lmdb", entries)


def varint(value: int) -> bytes:
    """A number as protobuf writes it."""
    value &= 0xFFFFFFFFFFFFFFFF
    content = bytearray()
    while value > 0x7F:
        content.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(content) + bytes([value])


def make_datum(folder: Path) -> str:
    """Caffe's messages with encoded images."""
    return write(
        folder / "datum.lmdb",
        [
            (
                NAME_KEYS[number].encode(),
                b"\x22" + varint(len(content)) + content + b"\x28" + varint(LABELS[number]) + b"\x38\x01",
            )
            for number, content in read_photos(folder)
        ],
    )
