"""The ``lmdb-words`` store: an LMDB environment of images of words with their texts, as text recognition has them.

::

    b"image-000000001"   an encoded image, numbered from 1 on
    b"label-000000001"   its text in UTF-8
    b"num-samples"       the number of records, in decimal

CRNN, deep-text-recognition-benchmark and PARSeq read and write these. Records are those from 1 to ``num-samples``, as
there. Other entries are problems.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.errors import StoreFormatError
from penstock.sample import Blob, Field, Record, Schema
from penstock.stores.base import PathLike
from penstock.stores.common.mirrors import ByteRanges
from penstock.stores.lmdb.entries import LmdbEntries, ValuePlaces
from penstock.stores.lmdb.entry_keys import decode_key, name_numbers
from penstock.stores.lmdb.layout import LmdbLayoutStore
from penstock.stores.lmdb.pair_texts import plan_classes
from penstock.wording import counted

__all__ = ["LmdbWordsStore"]

_COUNT: Final = b"num-samples"
_IMAGE, _LABEL = b"image-", b"label-"
_MOST_GAPS: Final = 100
"""The last number may be so many times the number of entries; a damaged one would take all memory."""
_KEY: Final = re.compile(rb"(?:image|label)-[0-9]{1,18}|num-samples")

Rows = NDArray[np.int64]


class LmdbWordsStore(LmdbLayoutStore):
    """Images of words, and their texts.

    Parameters
    ----------
    path : str, path or Location
        The folder with ``data.mdb``, or the file.
    classes : sequence of str, optional
        The texts that there are: labels are then their numbers. By default labels are texts.
    missing : {"raise", "skip"}, optional
        What to do where a number up to ``num-samples`` has no image, or no text where others have one: refuse the
        environment (default), or leave the record out and list it in :attr:`problems`.

    Raises
    ------
    ArgumentError
        If an option is none of the allowed ones.
    StoreFormatError
        If the environment is damaged or of another layout, ``num-samples`` is no number, or an entry is missing.
    """

    kind: ClassVar[str] = "lmdb-words"
    layout: ClassVar[str] = "words"
    choices: ClassVar[Mapping[str, Sequence[str]]] = {"missing": ("raise", "skip")}
    looked_up: ClassVar[tuple[bytes, ...]] = (_COUNT,)

    def __init__(self, path: PathLike, *, classes: Sequence[str] | None = None, missing: str | None = None) -> None:
        super().__init__(path, classes=classes, missing=missing)

    def __len__(self) -> int:
        return len(self._values[0])

    @classmethod
    def fits(cls, entries: LmdbEntries) -> bool:
        """Images by number, and their count or texts."""
        keys = [entries.key(row) for row in range(len(entries))]
        known = [key for key in keys if _KEY.fullmatch(key)]
        return 2 * len(known) > len(keys) and len({key[:6] for key in known}) > 1 and known[0].startswith(_IMAGE)

    @property
    def description(self) -> str:
        """Count, and whether there are texts."""
        return (
            f"words: {counted(len(self), 'record')} by number, {'with' if len(self._values) > 1 else 'without'} texts"
        )

    def find_values(self, index: int) -> Sequence[tuple[ValuePlaces, int]]:
        """The image of a record, and its text."""
        return [(places, index) for places in self._values]

    def read_record(self, opened: ByteRanges, index: int) -> Record:
        """The image and the text of one record."""
        fields: dict[str, object] = {"image": self.read_image(opened, index)}
        for texts in self._values[1:]:
            fields["label"] = self._parse(bytes(texts.read(opened, index)))
        return Record(index, self._keys[index], fields)

    def read_image(self, opened: ByteRanges, index: int) -> Blob:
        """The encoded image of one record."""
        return self._values[0].read(opened, index)

    def read_column(self, opened: ByteRanges, field: str) -> Iterable[object]:
        """Read texts, without the images."""
        del field
        texts, parse = self._values[1], self._parse
        return (parse(bytes(texts.read(opened, index))) for index in self.iterate(opened))

    def _arrange(self) -> None:
        entries, count = self._entries, self._read_count()
        images, texts = (self._find_rows(prefix, count) for prefix in (_IMAGE, _LABEL))
        last = max([0, *images.numbers[-1:].tolist(), *texts.numbers[-1:].tolist()])
        if not len(images.rows) or last > _MOST_GAPS * len(entries):
            found = f", and of {last}" if last else ""
            raise StoreFormatError(
                f"its keys must be those of the records 1, 2, ... (layout words), such as image-000000001; there are "
                f"{counted(len(images.rows), 'image')}{found}",
                store=self.url,
            )
        if count is not None and count > last:
            found = f"num-samples is {count}, and the last record that is there is {last}"
            self._refuse_missing(found, [_COUNT.decode()], found)
        parts = {"image": images, "label": texts} if len(texts.rows) else {"image": images}
        chosen, missing = np.arange(1, last + 1), []
        for name, part in parts.items():
            missing += [f"{name}-{number:09d}" for number in np.setdiff1d(chosen, part.numbers).tolist()]
        if missing:
            self._refuse_missing(
                f"{counted(len(missing), 'key')} of the records 1 to {last} missing", missing, "it is missing"
            )
            for part in parts.values():
                chosen = np.intersect1d(chosen, part.numbers)
        self._values = [
            ValuePlaces(entries, part.rows[np.searchsorted(part.numbers, chosen)]) for part in parts.values()
        ]
        self._keys = name_numbers(chosen, images.digits[np.searchsorted(images.numbers, chosen)])
        kind, self._parse = plan_classes(self._class_names)
        fields = {"image": Field("image"), "label": Field(kind, self._class_names)}
        self._schema = Schema({name: fields[name] for name in parts})
        others = np.setdiff1d(np.arange(len(entries)), np.concatenate([images.rows, texts.rows])).tolist()
        reason = f"it is no image or label of the records 1 to {last}"
        self._note_problems([row for row in others if entries.key(row) != _COUNT], reason)

    def _read_count(self) -> int | None:
        """Return what ``num-samples`` says; None without it."""
        row = self._entries.find(_COUNT)
        value = b"" if row is None else bytes(self._entries.value(row)[:20]).strip()
        if row is not None and not (value.isdigit() and len(value) < 19):
            raise StoreFormatError(f"num-samples must be the number of records, got {value!r}", store=self.url)
        return None if row is None else int(value)

    def _find_rows(self, prefix: bytes, count: int | None) -> _Numbered:
        """The entries of the records 1 to ``count`` whose keys are a prefix and a number."""
        entries = self._entries
        begin, end = (
            bisect.bisect_left(range(len(entries)), each, key=entries.key) for each in (prefix, prefix[:-1] + b".")
        )
        numbers, digits = (column[begin:end] for column in entries.parse_numbers(begins=len(prefix)))
        order = np.argsort(numbers, kind="stable")
        order = order[(numbers[order] > 0) & (numbers[order] <= (1 << 62 if count is None else count))]
        twice = np.flatnonzero(np.diff(numbers[order]) == 0)
        if len(twice):
            name = decode_key(entries.key(begin + int(order[twice[0]])))
            raise StoreFormatError(f"two keys have the number of {name!r}", store=self.url)
        return _Numbered(numbers[order], begin + order, digits[order])


class _Numbered(NamedTuple):
    """Entries by number: the numbers, the rows, and how many digits the number of each has."""

    numbers: Rows
    rows: Rows
    digits: Rows
