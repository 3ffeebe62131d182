"""The stores under test: five pictures, and how a store is made of them."""

from __future__ import annotations

import gc
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

from penstock import stores
from penstock.sample import Array
from penstock.stores.base import Store

__all__ = ["KEYS", "LABELS", "MadeStore", "StoreMaker", "read_photos", "write_photos"]

KEYS: Final = ("cats/2.jpg", "cats/10.jpg", "dogs/1.jpg", "dogs/2.jpg", "dogs/3.png")
"""The names of the pictures, in order."""
LABELS: Final = (0, 0, 1, 1, 1)
"""Their labels."""


def write_photos(folder: Path) -> dict[str, bytes]:
    """Write the five pictures, each another one of another size; gives their bytes by key."""
    rng = np.random.default_rng(7)
    contents = {}
    for number, key in enumerate(KEYS):
        file = io.BytesIO()
        pixels = rng.integers(0, 256, (8 + number, 9 + 3 * number, 3), np.uint8)
        Image.fromarray(pixels).save(file, "PNG" if key.endswith("png") else "JPEG")
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(file.getvalue())
        contents[key] = file.getvalue()
    return contents


def read_photos(folder: Path) -> list[tuple[str, bytes, int]]:
    """Key, bytes and label of each picture that is in ``folder / "photos"``, in order: tests change and remove some."""
    entries = zip(KEYS, LABELS, strict=True)
    return [(key, path.read_bytes(), label) for key, label in entries if (path := folder / "photos" / key).exists()]


@dataclass(frozen=True)
class StoreMaker:
    """How a store of one kind is made of the pictures in a folder, and what it gives.

    Parameters
    ----------
    make : callable
        Writes a store of :func:`read_photos` of a folder into that folder, in place of one that is there, and returns
        what :func:`penstock.open` takes. Its records have the fields ``image`` and ``label``.
    options : mapping
        Options with which it is opened.
    keys : sequence of str, optional
        The keys that the kind gives, in order; None: the numbers of the records.
    classes : tuple of str
        The names of the labels; empty where the kind stores none.
    decoded : callable, optional
        Converts the bytes of a picture to the pixels that the store gives; None: it gives the bytes.
    checks : bool
        Whether the format has checksums: then no changed bit gives another picture or label.
    may_crash : str
        Why a damaged store may end the process: a fault of the library that reads the kind; empty: it may not.
    survives_fork : bool
        Whether the library that reads the kind works in a forked child; else a StoreError refuses such a child.
    many : callable, optional
        Writes a store of a number of small records, with the labels 0 to 999, and returns what is opened.
    missing : callable, optional
        The URL of a store that is not there, for a folder; by default that of a path in it.
    """

    make: Callable[[Path], str | list[str]]
    options: Mapping[str, Any] = field(default_factory=dict)
    keys: Sequence[str] | None = KEYS
    classes: tuple[str, ...] = ("cats", "dogs")
    decoded: Callable[[bytes], Array] | None = None
    checks: bool = False
    may_crash: str = ""
    survives_fork: bool = True
    many: Callable[[Path, int], str | list[str]] | None = None
    missing: Callable[[Path], str] | None = None


@dataclass(frozen=True)
class MadeStore:
    """A store under test: what is opened, with which options, and what it must give."""

    url: str | list[str]
    maker: StoreMaker
    contents: Mapping[str, bytes]
    folder: Path
    rounds: int = 10
    """How often each of several threads opens it."""

    @classmethod
    def make(cls, maker: StoreMaker, folder: Path) -> MadeStore:
        """Write the pictures, and a store of them, into a folder."""
        contents = write_photos(folder / "photos")
        return cls(maker.make(folder), maker, contents, folder)

    @property
    def keys(self) -> list[str]:
        """The keys, in order."""
        return [str(number) for number in range(len(KEYS))] if self.maker.keys is None else list(self.maker.keys)

    def open(self) -> Store:
        """Open it."""
        return stores.open(self.url, **self.maker.options)

    def list_paths(self) -> list[Path]:
        """Return its file or folder, or its files; none if it is on a server."""
        _, location = stores.find(self.url, layout=self.maker.options.get("layout"))
        return list(location.paths) if location.is_local else []

    def is_picture(self, value: Any, index: int) -> bool:
        """Return whether ``value`` is what record ``index`` holds: the bytes of the picture, or its pixels."""
        encoded = self.contents[KEYS[index]]
        if self.maker.decoded is None:
            return bytes(value) == encoded
        return np.array_equal(value, self.maker.decoded(encoded))

    def remake(self) -> None:
        """Write the store again, of the pictures as they are now."""
        gc.collect()
        assert self.maker.make(self.folder) == self.url
