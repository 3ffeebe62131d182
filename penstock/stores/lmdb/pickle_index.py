"""The ``lmdb-pickle-index`` store: an LMDB environment of numbered keys with pickled values.

::

    b"0"         pickle of (bytes, 3), or of an array, ...
    b"1"         ...
    b"__keys__"  pickle of [b"0", b"1", ...]: the order of the records
    b"__len__"   pickle of their number

Many scripts write folders of images so. Pickles are read by :mod:`.pickles.unpickler`: nothing in them runs.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, PenstockError, StoreFormatError
from penstock.fields.roles import Candidate, Stated, choose_roles
from penstock.sample import Blob, Field, Record, Schema
from penstock.stores.base import PathLike
from penstock.stores.common.keys import KeyList
from penstock.stores.common.mirrors import ByteRanges
from penstock.stores.fields.image_signatures import looks_like_image
from penstock.stores.fields.pixels import PixelLayout
from penstock.stores.fields.record_names import quote_names
from penstock.stores.lmdb.entries import LmdbEntries, ValuePlaces
from penstock.stores.lmdb.entry_keys import COUNT, KEYS, decode_key, list_entry_keys, name_numbers
from penstock.stores.lmdb.layout import LmdbLayoutStore, list_sampled
from penstock.stores.pickles.fields import ValueReader, describe_value, find_images, infer_field, name_values
from penstock.stores.pickles.templates import PickleReader
from penstock.stores.pickles.unpickler import is_pickle, restricted_loads
from penstock.wording import counted

__all__ = ["LmdbPickleIndexStore"]

_MOST_MISSING: Final = 1_000_000  # a number in a file allocates no more

Rows = NDArray[np.int64]


class LmdbPickleIndexStore(LmdbLayoutStore):
    """Numbered keys with pickled values, in the order of ``__keys__``.

    Parameters
    ----------
    path : str, path or Location
        The folder with ``data.mdb``, or the file.
    channels : {"RGB", "BGR"}, optional
        The order of the channels, where values are arrays of three or four channels; it must be given then.
    axes : {"HWC", "CHW"}, optional
        The order of the axes of arrays; by default HWC.
    shape : sequence of int, optional
        Height, width and channels, where the arrays of all records have the same.
    image, label : str, optional
        The keys of the image and of the label in dicts, their numbers in tuples (``"0"``); empty: there is none. By
        default they are found by what they hold and by their names.
    fields : sequence of str, optional
        Names of all items of the tuples that are pickled, or the keys of dicts to read.
    classes : sequence of str, optional
        Names of the labels, by number.
    missing : {"raise", "skip"}, optional
        What to do where a key of ``__keys__`` has no entry: refuse the environment (default), or leave the record out
        and list it in :attr:`problems`.

    Raises
    ------
    ArgumentError
        If an option is needed that was not given, or is none of the allowed ones.
    StoreFormatError
        If the environment is damaged or of another layout, or an entry is missing.
    """

    kind: ClassVar[str] = "lmdb-pickle-index"
    layout: ClassVar[str] = "pickle-index"
    choices: ClassVar[Mapping[str, Sequence[str]]] = {"missing": ("raise", "skip")}
    looked_up: ClassVar[tuple[bytes, ...]] = (KEYS, COUNT)

    def __init__(
        self,
        path: PathLike,
        *,
        channels: str | None = None,
        axes: str | None = None,
        shape: Sequence[int] | None = None,
        image: str | None = None,
        label: str | None = None,
        fields: Sequence[str] | None = None,
        classes: Sequence[str] | None = None,
        missing: str | None = None,
    ) -> None:
        self._load: Callable[[memoryview], object] = PickleReader().load
        self._order = ""
        self._is_pair = False
        self._form = ""
        self._names: tuple[str, ...] | None = None
        self._renamed: dict[str, str] = {}
        self._converters: tuple[tuple[str, ValueReader], ...] = ()
        super().__init__(
            path, channels=channels, axes=axes, shape=shape, image=image, label=label, fields=fields,
            classes=classes, missing=missing,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self._values)

    @classmethod
    def fits(cls, entries: LmdbEntries) -> bool:
        """Look for ``__keys__`` or ``__len__`` with a pickle; or for numbers with pickles, and few other keys."""
        special = [row for key in (KEYS, COUNT) if (row := entries.find(key)) is not None]
        if any(is_pickle(entries.value(row)) for row in special):
            return True
        numbers, _ = entries.parse_numbers()
        rows = np.flatnonzero(numbers >= 0)
        if not len(rows):
            rows = np.setdiff1d(np.arange(len(entries)), special)
            if _parse_binary(entries, rows)[:2].tolist() != [0, 1][: len(rows)]:
                return False
        others = len(entries) - len(special) - len(rows)
        return len(rows) > others and all(is_pickle(entries.value(row)) for row in (rows[0], rows[-1]))

    @property
    def description(self) -> str:
        """Order and form of the values."""
        return f"pickle-index: {counted(len(self), 'record')} by {self._order}, values are {self._form}"

    def find_values(self, index: int) -> Sequence[tuple[ValuePlaces, int]]:
        """The value of a record."""
        return ((self._values, index),)

    def read_record(self, opened: ByteRanges, index: int) -> Record:
        """Unpickle one value."""
        named = self._name_values(self._load(self._values.read(opened, index)))
        fields = {}
        for name, convert in self._converters:
            item = named.pop(name, None)
            fields[name] = None if item is None else convert(item)
        if named:
            raise ValueError(f"it has values that other records do not have: {quote_names([*named])}")
        return Record(index, self._keys[index], fields)

    def read_image(self, opened: ByteRanges, index: int) -> Blob:
        """Unpickle one value, and convert its image."""
        image = self._name_values(self._load(self._values.read(opened, index))).get("image")
        return None if image is None else dict(self._converters)["image"](image)

    def read_column(self, opened: ByteRanges, field: str) -> Iterable[object]:
        """A field of all records; images are not converted."""
        convert = dict(self._converters)[field]
        for index in self.iterate(opened):
            item = self._name_values(self._load(self._values.read(opened, index))).get(field)
            yield None if item is None else convert(item)

    def _name_values(self, value: object) -> dict[str, object]:
        """The values of a record by the names of their fields; those of the usual pair at once."""
        if self._is_pair and type(value) is tuple and len(value) == 2:
            return {"image": value[0], "label": value[1]}
        return name_values(value, self._names, self._renamed)

    def _arrange(self) -> None:
        stated = self._stated
        entries = self._entries
        names = stated.get("fields")
        self._names = None if names is None else tuple(map(str, names))
        try:
            rows = self._find_records(entries)
        except PenstockError:
            raise
        except ValueError as error:
            raise StoreFormatError(f"{error} (layout {self.layout})", store=self.url) from error
        self._values = ValuePlaces(entries, rows)
        self._schema = self._infer(PixelLayout(stated.get("channels"), stated.get("axes", "HWC"), stated.get("shape")))

    def _find_records(self, entries: LmdbEntries) -> Rows:
        """The row of each record, in order; sets the keys."""
        numbers, digits = entries.parse_numbers()
        special = {key: row for key in (KEYS, COUNT) if (row := entries.find(key)) is not None}
        count = _read_count(entries, special[COUNT]) if COUNT in special else None
        if KEYS in special:
            self._order = KEYS.decode()
            wanted = _load_keys(entries.value(special[KEYS]), int((numbers >= 0).sum()))
            if count is not None and count != len(wanted):
                raise ValueError(f"__len__ says {count}, and __keys__ has {counted(len(wanted), 'key')}")
            if not isinstance(wanted, range):
                return self._find_named(entries, wanted, set(special.values()))
            count = len(wanted)
        elif count is not None:
            self._order = f"number up to {COUNT.decode()}"
        else:
            self._order = "number"
        others = np.setdiff1d(np.arange(len(entries)), list(special.values()))
        if not (numbers >= 0).any() and np.array_equal(_parse_binary(entries, others), np.arange(count or len(others))):
            self._order = "big-endian number"
            self._keys = list_entry_keys(entries, others)
            return others
        return self._find_numbered(numbers, digits, count, set(special.values()))

    def _find_numbered(self, numbers: Rows, digits: Rows, count: int | None, special: set[int]) -> Rows:
        """Return the rows of the keys 0 .. count - 1, or 1 .. count."""
        rows = np.flatnonzero(numbers >= 0)
        rows = rows[np.argsort(numbers[rows], kind="stable")]
        found = numbers[rows]
        if (np.diff(found) == 0).any():
            raise ValueError(f"two keys are the number {found[:-1][np.diff(found) == 0][0]}")
        if len(found) and found[0] == 1 and count in {None, int(found[-1])}:
            found = found - 1  # numbered from 1
        total = int(found[-1]) + 1 if count is None and len(found) else count or 0
        if total > len(found) + _MOST_MISSING:
            raise ValueError(f"it must have {counted(total, 'record')}, and has {len(found)}")
        outside = found >= total
        if len(found) - int(outside.sum()) != total:
            self._leave_out([*map(str, np.setdiff1d(np.arange(total), found).tolist())])
        others = {*rows[outside].tolist(), *np.flatnonzero(numbers < 0).tolist()} - special
        self._note_problems(sorted(others), f"it is not in {self._order}")
        rows = rows[~outside]
        self._keys = name_numbers(numbers[rows], digits[rows])
        return rows

    def _find_named(self, entries: LmdbEntries, wanted: Sequence[bytes], special: set[int]) -> Rows:
        """Return the rows of the keys in ``__keys__``."""
        places = {key: row for row, key in enumerate(entries.iterate_keys())}
        rows = [places.get(key, -1) for key in wanted]
        if len(set(rows) - {-1}) != len(rows) - rows.count(-1):
            raise ValueError("__keys__ has a key twice")
        if -1 in rows:
            self._leave_out([decode_key(key) for key, row in zip(wanted, rows, strict=True) if row < 0])
        held = [(key, row) for key, row in zip(wanted, rows, strict=True) if row >= 0]
        self._keys = KeyList.from_names(decode_key(key).replace("\0", "\\x00") for key, _ in held)
        if len(held) + len(special) < len(entries):
            others = set(range(len(entries))) - {row for _, row in held} - special
            self._note_problems(sorted(others), f"it is not in {self._order}")
        return np.array([row for _, row in held], np.int64)

    def _leave_out(self, names: Sequence[str]) -> None:
        """Refuse names of records without an entry, or note them."""
        has = "has" if len(names) == 1 else "have"
        found = f"{counted(len(names), 'record')} of {self._order} {has} no entry"
        self._refuse_missing(found, names, f"it is in {self._order} and has no entry")

    def _infer(self, pixels: PixelLayout) -> Schema:
        """Return the fields, from some of the records; one that cannot be read says so when it is read."""
        samples = self._read_samples()
        self._form = describe_value(samples[0])
        found: dict[str, list[object]] = {}
        for sample in samples:
            for name, item in name_values(sample, self._names, {}).items():
                found.setdefault(name, []).append(item)
        is_dict = isinstance(samples[0], dict)
        if lacking := [name for name in self._names or () if is_dict and name not in found]:
            raise ArgumentError(
                f"fields must name keys of the dicts, got {lacking[0]!r}, which none has of those that were looked at; "
                f"the first value is {self._form}"
            )
        try:
            inferred = self._choose_roles(found, pixels, is_dict=is_dict)
        except PenstockError:
            raise
        except ValueError as error:
            raise StoreFormatError(str(error), store=self.url) from error
        self._converters = tuple((name, reader) for name, (_, reader) in inferred.items())
        self._is_pair = self._renamed == {"0": "image", "1": "label"}
        return Schema({name: field for name, (field, _) in inferred.items()})

    def _choose_roles(
        self, found: Mapping[str, list[object]], pixels: PixelLayout, *, is_dict: bool
    ) -> dict[str, tuple[Field, ValueReader]]:
        """The fields of dicts, by their names, or of tuples, by what their items hold; and how each is read."""
        names, image = self._names, self._stated.get("image")
        fields = names if is_dict or names is None else {name: str(place) for place, name in enumerate(names)}
        stated = Stated(image, self._stated.get("label"), "", fields, self._class_names or None)
        inferred = {path: infer_field(path, values, pixels) for path, values in found.items()}
        images = find_images(
            {path: field for path, (field, _) in inferred.items()}, found, stated.roles["image"], has_names=is_dict
        )
        candidates = [Candidate(path, field, path in images) for path, (field, _) in inferred.items()]
        chosen = choose_roles(candidates, stated).fields
        self._renamed = {each.path: name for name, each in chosen.items()}
        found_fields = {name: (each.field, inferred[each.path][1]) for name, each in chosen.items()}
        if "image" in chosen and chosen["image"].holds_images and image != "":
            found_fields["image"] = infer_field("image", found[chosen["image"].path], pixels, is_image=True)
        return found_fields

    def _read_samples(self) -> list[object]:
        """The values of the first records, one in the middle and the last one, as far as they can be read."""
        count = len(self)
        if not count:
            raise StoreFormatError("it has no records", store=self.url)
        opened = self.get_opened()
        first = self._values.read(opened, 0)
        if not is_pickle(first) and looks_like_image(first):
            self._load = _give  # only keys and count are pickled
        samples, errors = [], []
        for index in list_sampled(count):
            try:
                value = self._load(self._values.read(opened, index))
                name_values(value, self._names, {})
                samples.append(value)
            except PenstockError as error:
                errors.append(error.locate(key=self._keys[index], index=index))
            except (ValueError, KeyError) as error:
                errors.append(self.make_damage_error(index, error))
        if not samples:
            raise errors[0]
        return samples


def _read_count(entries: LmdbEntries, row: int) -> int:
    content = entries.value(row)
    text = bytes(content[:20])
    value = restricted_loads(content) if is_pickle(content) else int(text) if text.strip().isdigit() else text
    if type(value) is not int or not 0 <= value < 2**48:
        raise ValueError(f"__len__ must be a number of records, pickled or in decimal, got {value!r:.60}")
    return value


def _give(value: memoryview) -> memoryview:
    """Return the image of a value that is not pickled."""
    return value


def _parse_binary(entries: LmdbEntries, rows: Rows) -> Rows:
    """Return the big-endian numbers of 4 or 8 bytes that some keys are, in order; empty where they are none."""
    sizes = set(entries.key_sizes[rows].tolist())
    if sizes not in ({4}, {8}):
        return np.empty(0, np.int64)
    size = sizes.pop()
    keys = np.frombuffer(entries.whole, np.uint8)[entries.key_offsets[rows][:, None] + np.arange(size)]
    return keys.view(f">u{size}")[:, 0].astype(np.int64)


def _load_keys(content: memoryview, count: int) -> Sequence[bytes] | range:
    """Return the keys in ``__keys__``; a range, if they are the numbers from 0 on."""
    if is_pickle(content):
        for make in (b"%d".__mod__, "{}".format):  # what scripts write: far cheaper to compare than to read
            if count and pickle.dumps(list(map(make, range(count))), content[1]) == content:
                return range(count)
    keys = restricted_loads(content)
    if isinstance(keys, np.ndarray):
        keys = keys.tolist()
    if not isinstance(keys, list | tuple):
        raise ValueError(f"__keys__ must be a list, got {describe_value(keys)}")  # noqa: TRY004  # damage
    found = [key.encode() if isinstance(key, str) else b"%d" % key if type(key) is int else key for key in keys]
    wrong = [key for key in found if not isinstance(key, bytes)]
    if wrong:
        raise ValueError(f"__keys__ must have keys, got {describe_value(wrong[0])}")
    return found
