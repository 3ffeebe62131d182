"""The index of tar shards: where the files of each record lie, found by one scan, kept as arrays.

::

    shard 0    a.jpg  a.cls │ b.jpg  b.cls │ c.jpg          records 0, 1, 2     groups (jpg, cls), (jpg, cls), (jpg,)
    shard 1    c.jpg  c.cls                                 record 3: the same key in another shard is another record

The files of a record have one key. Those that do not follow one another are joined, at the place of the first one.
Called by the store of tar shards; the stream groups its files by :func:`group_members`, too.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import warnings
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.errors import CorruptRecordError, StoreError
from penstock.paths import IMAGE_SUFFIXES
from penstock.sample import Array
from penstock.stores.common.keys import KeyList
from penstock.stores.tar.fields import (
    ADVICE,
    DECLARATION,
    FieldPlan,
    find_kind_by_contents,
    is_valid_suffix,
    parse_declaration,
    plan_fields,
)
from penstock.stores.tar.format import Member, MemberScan, is_metadata, split_name
from penstock.stores.writing import Skipped

__all__ = ["RecordFiles", "TarIndex", "TarScan", "group_members", "is_apart", "scan_shards", "warn_of_dots"]

_MAX_SUFFIXES: Final = 1000
_MAX_PROBLEMS: Final = 1000
_RESERVED: Final = frozenset({"__key__", "__url__", "__local_path__"})  # what webdataset calls its own values
_MAX_DECLARATION_NBYTES: Final = 1 << 24
_TRAILING_NBYTES: Final = 1 << 20
_MANY: Final = 8
_NUMBERS: Final = re.compile(r"[0-9][0-9._-]*")


class RecordFiles(NamedTuple):
    """The files of a record: key, and by suffix in lower case where the bytes of each file are."""

    key: bytes
    files: dict[str, Member]


@dataclass(slots=True)
class TarScan:
    """What the scan of shards finds beside their records: entries that are none, and what declares their fields."""

    problems: list[Skipped] = field(default_factory=list)
    unreadable: list[Skipped] = field(default_factory=list)
    declaration: Member | None = None

    def note(self, name: str, reason: str, *, may_be_record: bool = False) -> None:
        """Keep an entry that is no file of a record."""
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(Skipped(name, reason))
        if may_be_record and len(self.unreadable) < _MAX_PROBLEMS:
            self.unreadable.append(Skipped(name, reason))


def group_members(
    members: Iterable[Member], found: TarScan, first: int = 0, *, dotted_keys: bool = False
) -> Iterator[RecordFiles]:
    """Group the files of a shard that follow one another into records, as webdataset does.

    ``first``: the number of its first record. ``dotted_keys``: as for :func:`split_name`. Raises CorruptRecordError if
    a record has two files of one suffix, or more than a thousand files.
    """
    key: bytes | None = None
    index = first - 1
    files: dict[str, Member] = {}
    suffixes: dict[bytes, str] = {}
    for member in members:
        name = member.name
        if member.problem:
            found.note(_show(name), member.problem, may_be_record="sparse" in member.problem)
            continue
        if name == DECLARATION:
            found.declaration = found.declaration or member
            continue
        split = split_name(name, dotted_keys=dotted_keys)
        if split is None or (name[:2] == b"__" and is_metadata(name)):
            if split is None and not is_metadata(name):
                found.note(_show(name), "its name has no suffix")
            continue
        if split[0] != key:
            if key is not None:
                yield RecordFiles(key, files)
            key, files, index = split[0], {}, index + 1
        suffix = suffixes.get(split[1])
        if suffix is None:
            suffix = suffixes[split[1]] = split[1].decode(errors="surrogateescape").lower()
        if suffix in files or suffix in _RESERVED:
            raise CorruptRecordError(
                f"a record must have one file of each suffix, got {suffix!r} twice", key=_show(split[0]), index=index
            )
        if len(files) >= _MAX_SUFFIXES:
            raise CorruptRecordError(
                f"a record must have at most {_MAX_SUFFIXES} files, such as {suffix!r:.100}; {ADVICE}",
                key=_show(split[0]),
                index=index,
            )
        files[suffix] = member
    if key is not None:
        yield RecordFiles(key, files)


def _show(name: bytes) -> str:
    return name.decode(errors="backslashreplace")


FILE: Final = np.dtype([("offset", np.int64), ("nbytes", np.int64)])
RECORD: Final = np.dtype([("group", np.uint32), ("shard", np.uint32)])


@dataclass(frozen=True)
class TarIndex:
    """Where the files of all records lie."""

    files: Array  # place and size of each file, record by record
    records: Array  # the group of suffixes of each record, and its shard
    keys: KeyList
    suffixes: tuple[tuple[str, ...], ...]  # the groups: suffixes of the files, in their order
    kinds: Mapping[str, str]  # kinds of suffixes by what their files hold
    declared: str  # what the shards declare of their fields, in JSON; empty if nothing
    problems: tuple[Skipped, ...]  # entries that are not files of records
    unreadable: tuple[Skipped, ...]  # those of the problems that may be files of records

    @functools.cached_property
    def begins(self) -> NDArray[np.int64]:
        """The first file of each record, and behind the last."""
        counts = np.array([len(group) for group in self.suffixes], np.int64)
        return np.append(0, np.cumsum(counts[self.records["group"]]))

    def make_plan(self, image: str | None = None) -> FieldPlan:
        """How the fields are read; ``image``: its name, if it is stated.

        Raises ValueError if the declaration is damaged. Raises ArgumentError as :func:`plan_fields`.
        """
        suffixes = dict.fromkeys(itertools.chain.from_iterable(self.suffixes))
        declared = parse_declaration(self.declared.encode()) if self.declared else ()
        return plan_fields(tuple(filter(is_valid_suffix, suffixes)), self.suffixes, self.kinds, declared, image)

    def to_arrays(self) -> dict[str, Array]:
        """Return the index for :func:`~penstock.stores.common.record_index.load_or_scan`."""
        texts = json.dumps([self.suffixes, dict(self.kinds), self.declared, self.problems, self.unreadable])
        joined = {"keys": self.keys.joined, "texts": texts.encode()}
        bytes_of = {name: np.frombuffer(content, np.uint8) for name, content in joined.items()}
        return {"members": self.files, "records": self.records, **bytes_of}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Array], shards: int) -> TarIndex:
        """Return the index of so many shards whose :meth:`to_arrays` returned ``arrays``.

        Raises ValueError, KeyError, IndexError or TypeError if they are other arrays.
        """
        files, records, keys = arrays["members"], arrays["records"], KeyList(arrays["keys"].tobytes())
        suffixes, kinds, declared, *others = json.loads(arrays["texts"].tobytes())
        problems, unreadable = (tuple(Skipped(*each) for each in skipped) for skipped in others)
        index = cls(files, records, keys, tuple(map(tuple, suffixes)), kinds, declared, problems, unreadable)
        if (files.dtype, records.dtype, records.shape) != (FILE, RECORD, (len(keys),)):
            raise ValueError("it has records of another kind, or of another number")
        if files.shape != (index.begins[-1],) or records["shard"].max(initial=0) >= shards:
            raise ValueError("its numbers of files or shards differ")
        return index


def scan_shards(
    names: Sequence[str], get_content: Callable[[int], memoryview], *, dotted_keys: bool = False
) -> TarIndex:
    """Scan some shards.

    ``names``: names of the shards, for messages. ``get_content``: returns the bytes of a shard by its number.
    ``dotted_keys``: as for :func:`split_name`. Raises ValueError if a shard is damaged, or the shards declare different
    fields.
    """
    builder = _IndexBuilder(dotted_keys=dotted_keys)
    for number, name in enumerate(names):
        try:
            builder.add_shard(number, name, get_content(number))
        except StoreError:
            raise
        except ValueError as error:
            raise ValueError(f"{name}: {error}" if len(names) > 1 else str(error)) from error
    return builder.build(get_content)


class _IndexBuilder:
    """Collects the records of shards."""

    def __init__(self, *, dotted_keys: bool) -> None:
        self._dotted_keys = dotted_keys
        self._files, self._records = array("q"), array("I")  # offset, nbytes, ...; group, shard, ...
        self._hashes = array("q")  # of shard and key of each record, by which keys that come again are found
        self._keys = bytearray()
        self._known: dict[tuple[str, ...], int] = {}
        self._suffixes: set[str] = set()
        self._declared: str | None = None
        self._found = TarScan()

    def add_shard(self, number: int, name: str, content: memoryview) -> None:
        """Scan one shard."""
        scan = MemberScan(lambda at, nbytes: content[at : at + nbytes], len(content))
        found = self._found
        found.declaration = None
        known, keys, files, records = self._known, self._keys, self._files, self._records
        groups = group_members(scan, found, len(records) // 2, dotted_keys=self._dotted_keys)
        for key, members in groups:
            keys += (key if key.isascii() else _encode_key(key)) + b"\0"
            suffixes = tuple(members)
            group = known.get(suffixes)
            if group is None:
                group = self._add_group(suffixes)
            records.append(group)
            records.append(number)
            self._hashes.append(hash((number, key)))
            for member in members.values():
                files.append(member.offset)
                files.append(member.nbytes)
        self._note_end(name, scan, content)
        self._note_declaration(found.declaration, content)

    def _add_group(self, suffixes: tuple[str, ...]) -> int:
        self._suffixes.update(suffixes)
        if len(self._suffixes) > _MAX_SUFFIXES:
            raise ValueError(f"there are more than {_MAX_SUFFIXES} suffixes, such as {suffixes[-1]!r:.100}; {ADVICE}")
        for suffix in suffixes:
            if not is_valid_suffix(suffix):
                shown = suffix.encode(errors="backslashreplace").decode()
                self._found.note(shown, "a suffix that names no field")
        return self._known.setdefault(suffixes, len(self._known))

    def _note_end(self, name: str, scan: MemberScan, content: memoryview) -> None:
        if not scan.has_end:
            reason = "the archive has no end: it may have been truncated behind its last file"
            self._found.note(name, reason, may_be_record=True)
        for at in range(scan.end, len(content), _TRAILING_NBYTES):
            if np.frombuffer(content, np.uint8, min(_TRAILING_NBYTES, len(content) - at), at).any():
                reason = f"{len(content) - scan.end} bytes follow the end of the archive, such as another archive"
                self._found.note(name, reason, may_be_record=True)
                break

    def _note_declaration(self, member: Member | None, content: memoryview) -> None:
        declared = ""
        if member is not None and member.nbytes <= _MAX_DECLARATION_NBYTES:
            declared = bytes(content[member.offset : member.offset + member.nbytes]).decode()
            parse_declaration(declared.encode())
        if self._declared is not None and self._declared != declared:
            raise ValueError(f"it declares other fields ({DECLARATION.decode()}) than the shards before it")
        self._declared = declared

    def build(self, get_content: Callable[[int], memoryview]) -> TarIndex:
        """Return the index of all shards."""
        kinds: dict[str, str] = {}
        files, records, keys = self._join_parts()
        index = TarIndex(
            files,
            records,
            keys,
            tuple(self._known),
            kinds,
            self._declared or "",
            tuple(self._found.problems),
            tuple(self._found.unreadable),
        )
        if not self._declared:
            for suffix in self._suffixes:
                kinds[suffix] = find_kind_by_contents(suffix, _contents(index, suffix, get_content))
        return index

    def _join_parts(self) -> tuple[Array, Array, KeyList]:
        """Files, records and keys, where files that do not follow the others of their record are joined to them.

        A key that comes again otherwise is another record, as in webdataset.
        """
        files, records = np.frombuffer(self._files, FILE), np.frombuffer(self._records, RECORD)
        keys, groups, hashes = KeyList(bytes(self._keys)), list(self._known), np.frombuffer(self._hashes, np.int64)
        if len(np.unique(hashes)) == len(records):
            return files, records, keys
        _, numbers, counts = np.unique(hashes, return_inverse=True, return_counts=True)
        owners, parts = np.arange(len(records)), {}
        last: dict[tuple[int, str], tuple[int, list[str]]] = {}  # the last record of a key, and its suffixes
        for row in np.flatnonzero(counts[numbers] > 1).tolist():
            group, name = list(groups[records["group"][row]]), (int(records["shard"][row]), keys[row])
            owner, held = last.get(name, (row, group))
            if owner == row or not is_apart(held, group, declared=bool(self._declared)):
                last[name] = row, group
                continue
            held += group
            owners[row], parts[owner] = owner, held
        sizes = np.array(list(map(len, groups)))[records["group"]]
        order = np.argsort(owners, kind="stable")
        begins, moved = np.cumsum(sizes) - sizes, sizes[order]
        places = np.repeat(begins[order] - (np.cumsum(moved) - moved), moved) + np.arange(len(files))
        records = records.copy()
        for owner, held in parts.items():
            records["group"][owner] = self._add_group(tuple(held))
        first = np.flatnonzero(owners == np.arange(len(owners)))
        return files[places], records[first], KeyList.from_names(map(keys.get, first.tolist()))


def warn_of_dots(key: str, group: Sequence[str], usual: Collection[str], stacklevel: int) -> bool:
    """Warn of a record that looks like several files whose names have dots; whether it does.

    It has files of one ending behind numbers (``05.01.jpg``, ``05.02.jpg``), or many of one ending; or images under
    suffixes that are not ``usual``, those of the records that have an image.
    """
    parts = [suffix.rpartition(".") for suffix in group]
    counts = Counter(ending for _, _, ending in parts)
    for (head, dot, ending), suffix in zip(parts, group, strict=True):
        is_number = _NUMBERS.fullmatch(head) and counts[ending] > 1
        is_unusual = usual and suffix not in usual and f".{ending}" in IMAGE_SUFFIXES
        if dot and (is_number or is_unusual or counts[ending] > _MANY):
            warnings.warn(
                f"the file {key}.{suffix} is one of {counts.total()} of the record {key!r}: a key ends at the first "
                "dot of a file's name. dotted_keys=True (--option dotted_keys=true) ends keys at the last dot, "
                "dotted_keys=False says that these files are one record",
                stacklevel=stacklevel + 1,
            )
            return True
    return False


def is_apart(held: Iterable[str], suffixes: Iterable[str], *, declared: bool) -> bool:
    """Whether files with these suffixes belong to the record of their key that holds others, before other records.

    They do unless a suffix comes again; where shards declare their fields, unless another image comes.
    """
    both = [
        {"image" if declared and f".{each}" in IMAGE_SUFFIXES else each for each in some} for some in (held, suffixes)
    ]
    return both[0].isdisjoint(both[1])


def _contents(index: TarIndex, suffix: str, get_content: Callable[[int], memoryview]) -> Iterator[memoryview]:
    """Yield the bytes of all files of a suffix."""
    for number, group in enumerate(index.suffixes):
        if suffix not in group:
            continue
        rows = np.flatnonzero(index.records["group"] == number)
        files = index.files[index.begins[rows] + group.index(suffix)]
        for shard, (offset, nbytes) in zip(index.records["shard"][rows].tolist(), files.tolist(), strict=True):
            yield get_content(shard)[offset : offset + nbytes]


def _encode_key(key: bytes) -> bytes:
    """Return a key in UTF-8; other bytes are replaced by their numbers."""
    return key.decode(errors="backslashreplace").encode()
