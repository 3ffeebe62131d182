"""What the stores of LMDB environments of other programs share: the file, its entries, keys, options.

::

    LmdbLayoutStore ──opened once──> LmdbEntries (places in the file)     layout of the subclass: which entry is what
                    ──per process──> the file, mapped
    .layout         options that the file does not say, where this package wrote it; beside the environment

A subclass is one layout. It says by a few entries whether an environment has it (:meth:`LmdbLayoutStore.fits`).
"""

from __future__ import annotations

import functools
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from penstock.errors import ArgumentError, PenstockError, StoreFormatError
from penstock.sample import Blob
from penstock.stores.base import PathLike, Skipped
from penstock.stores.common.mapped_files import open_source
from penstock.stores.common.mirrors import ByteRanges
from penstock.stores.container import ContainerStore
from penstock.stores.fields.record_names import check_classes, quote_names
from penstock.stores.lmdb.entries import (
    LmdbEntries,
    ValuePlaces,
    find_environment_file,
    peek_entries,
    scan_entries,
)
from penstock.stores.lmdb.entry_keys import decode_key

__all__ = [
    "LmdbLayoutStore",
    "describe_environment",
    "list_sampled",
]

_SAMPLED: Final = 16
_LAYOUTS: Final = (
    "pickle-index: __keys__ or __len__, and pickled values; pairs: keys i (pixels) and i_ (text); names: keys NAME.jpg "
    "and NAME.txt, or images alone; words: keys image-000000001, label-000000001, num-samples; datum: messages of Caffe"
)


def list_sampled(count: int) -> list[int]:
    """The records by which the fields are found: the first ones, one in the middle and the last one."""
    return sorted({*range(min(count, _SAMPLED)), count // 2, count - 1} if count else ())


def describe_environment(path: str | os.PathLike[str]) -> str:
    """Say why no layout fits the environment at ``path``: what was looked for, and a few of its keys."""
    entries = peek_entries(path)
    if entries is None:
        return "it contains named databases, or is damaged"
    rows = [*range(min(len(entries), 4)), *range(max(4, len(entries) - 2), len(entries))]
    keys = ", ".join(ascii(entries.key(row))[1:][:60] for row in rows)
    return f"no layout fits it ({_LAYOUTS}); its keys are such as {keys}" if rows else "it has no entries"


class LmdbLayoutStore(ContainerStore[ByteRanges]):
    """An LMDB environment of another program, as a folder or as one file.

    Parameters
    ----------
    path : str, path or Location
        The folder with ``data.mdb``, or the file.
    **options
        Options of the layout; None where one was not given.

    Raises
    ------
    StoreNotFoundError
        If nothing is there.
    StoreFormatError
        If it is truncated, damaged, or has another layout.
    """

    choices: ClassVar[Mapping[str, Sequence[str]]] = {}
    """What options may be, of those that are one of a few texts."""
    looked_up: ClassVar[tuple[bytes, ...]] = ()
    """Keys that :meth:`fits` must see, wherever they are."""

    def __init__(self, path: PathLike, **options: object) -> None:
        location = self.locate(path)
        file = find_environment_file(location.local_path)
        super().__init__(
            location, files=[file], **{name: value for name, value in options.items() if value is not None}
        )
        self._stated: Mapping[str, Any] = self.options
        for name, allowed in self.choices.items():
            value = self._stated.get(name)
            if value is not None and (type(value) is not str or value not in allowed):
                raise ArgumentError(f"{name} must be one of {', '.join(allowed)}, got {value!r:.80}")
        self._entries = scan_entries(file, self.get_opened(), self.url)
        self._problems: list[Skipped] = []
        self._keys: Sequence[str] = ()
        try:
            self._arrange()
        except PenstockError as error:
            error.locate(store=self.url)
            self.close()
            raise

    @abstractmethod
    def _arrange(self) -> None:
        """Find the records among the entries; set what the other methods need."""

    def _refuse_missing(self, found: str, names: Sequence[str], reason: str) -> None:
        """Refuse records of which an entry is missing, or note them as problems with ``missing="skip"``."""
        if self._stated.get("missing") != "skip":
            raise StoreFormatError(
                f'{found}: {quote_names(names)}; missing="skip" leaves such records out', store=self.url
            )
        self._problems += [Skipped(name, reason) for name in names]

    def _note_problems(self, rows: Iterable[int], reason: str) -> None:
        """Note entries that are no records."""
        self._problems += [Skipped(decode_key(self._entries.key(row)), reason) for row in rows]

    @classmethod
    @abstractmethod
    def fits(cls, entries: LmdbEntries) -> bool:
        """Return whether the first, the last and the looked-up entries are those of this layout."""

    @classmethod
    def recognises(cls, path: str) -> bool:
        """Recognise an LMDB environment whose first and last entries have this layout."""
        try:
            entries = peek_entries(path, cls.looked_up)
            return entries is not None and len(entries) > 0 and cls.fits(entries)
        except (ValueError, IndexError):
            return False

    @property
    def _class_names(self) -> tuple[str, ...]:
        """The classes that are stated."""
        classes = self._stated.get("classes")
        return () if classes is None else check_classes(classes)

    @abstractmethod
    def read_image(self, opened: ByteRanges, index: int) -> Blob:
        """The image of a record, as :meth:`read_record` gives it."""

    @abstractmethod
    def find_values(self, index: int) -> Sequence[tuple[ValuePlaces, int]]:
        """The values of a record."""

    def ranges_of(self, opened: ByteRanges, indices: Sequence[int]) -> Iterable[tuple[int, int, int]]:
        """The values of each record."""
        del opened
        return ((0, *places.range_of(at)) for index in indices for places, at in self.find_values(index))

    def make_blob_reader(self, opened: ByteRanges, field: str, indices: Sequence[int]) -> Callable[[int], Blob]:
        """Return what gives images without labels and keys."""
        if field != "image":
            return super().make_blob_reader(opened, field, indices)
        return functools.partial(self.read_image, opened)

    def open_files(self) -> ByteRanges:
        """Map the file."""
        return open_source(self._files[0]).ranges()

    def close(self) -> None:
        """Close the file. It stays mapped as long as a view of it is referenced."""
        super().close()
        self._entries = LmdbEntries(memoryview(b""))
        self._keys = ()
