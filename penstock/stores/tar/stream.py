"""The ``tar`` stream: tar shards, compressed or not, read from their beginning as WebDataset reads them.

::

    train/0001.jpg  ┐ one record: key "train/0001", fields "image" and "label"
    train/0001.cls  ┘
    train/0002.jpg  ┐ the files of a record follow one another; a name is the key, a dot, and the suffix
    train/0002.cls  ┘

Nothing is extracted to disk or unpickled. :class:`~penstock.stores.tar.store.TarStore` reads shards by index.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import ClassVar, Final, Protocol

from penstock.errors import CorruptRecordError, StoreError, StoreFormatError, StoreNotFoundError
from penstock.paths import IMAGE_SUFFIXES
from penstock.sample import Record, Schema
from penstock.stores.common.compression import DecompressedFile, find_codec
from penstock.stores.common.regular_file import open_regular
from penstock.stores.location import Location
from penstock.stores.streams import ShardStream
from penstock.stores.tar.fields import (
    DECLARATION,
    FieldPlan,
    find_kind_by_contents,
    is_valid_suffix,
    parse_declaration,
    plan_fields,
)
from penstock.stores.tar.format import Member, MemberScan, is_metadata, split_name
from penstock.stores.tar.index import TarScan, group_members

__all__ = ["TarStream"]

_logger = logging.getLogger(__name__)
_PIECE_NBYTES: Final = 1 << 20
_MAX_COMPRESSED_NBYTES: Final = 1 << 30  # of one file in a compressed shard: it is read into memory


class TarStream(ShardStream):
    """Shards of WebDataset.

    Parameters
    ----------
    shards : str, path, Location, or sequence of these
        The tar files, or a pattern such as ``"train-{000..009}.tar"``. They may be compressed with gzip, bzip2 or xz.

    Notes
    -----
    Fields are named as in :class:`~penstock.stores.tar.store.TarStore`: by their suffix in lower case (``json``,
    ``seg.png``), the image ``image``, and ``cls`` ``label``. Numbers, texts, JSON and arrays of ``.npy`` files are
    parsed; all other fields are bytes. The first record of the first shard gives the schema, and every record must have
    its files. Links, sparse files, and files whose names have no suffix are ignored.
    """

    kind: ClassVar[str] = "tar"
    _plan: FieldPlan | None = None
    _suffixes: tuple[str, ...] | None = ()  # of the first record; None: the shards declare fields that may be missing

    @property
    def schema(self) -> Schema:
        """Fields of the first record of the first shard; read when it is first used.

        Raises
        ------
        StoreError
            If the first shard cannot be read, or has no records.
        """
        return self._get_plan().schema

    def read_shard(self, shard: Location, first: int = 0) -> Iterator[Record]:
        """The records of one shard; see :meth:`ShardStream.read_shard`. Records before ``first`` are skipped."""
        plan = self._get_plan()
        expected = set(self._suffixes or ())
        for index, key, files in _read_records(shard, TarScan(), first):
            try:
                if files.keys() != expected:
                    files = self._choose_files(files, plan)  # noqa: PLW2901  # with the name that the plan knows
                    if self._suffixes is not None and files.keys() != expected:
                        raise ValueError(  # noqa: TRY301  # one handler
                            f"it must have the files {', '.join(self._suffixes)}, as the first record, got "
                            f"{', '.join(files)}"
                        )
                fields = plan.read(files.items())
            except (ValueError, KeyError, TypeError, OverflowError) as error:
                raise CorruptRecordError(
                    f"the record cannot be used: {error}", store=str(shard), key=key, index=index
                ) from error
            yield Record(index, key, fields)

    def _get_plan(self) -> FieldPlan:
        plan = self._plan
        if plan is None:
            shard, found = self.shards[0], TarScan()
            with closing(_read_records(shard, found)) as records:
                first = next(records, None)
            if first is None:
                raise StoreFormatError("this shard has no records", store=str(shard))
            try:
                plan = _plan_first(first[2], found)
            except ValueError as error:
                raise StoreFormatError(f"the shard has no usable fields: {error}", store=str(shard)) from error
            self._suffixes = None if found.declared is not None else tuple(filter(is_valid_suffix, first[2]))
            self._plan = plan
        return plan

    @staticmethod
    def _choose_files(files: Mapping[str, bytes], plan: FieldPlan) -> Mapping[str, bytes]:
        """The files of a record that can be fields; its image under the suffix of the first record's image."""
        files = {suffix: content for suffix, content in files.items() if is_valid_suffix(suffix)}
        others = [suffix for suffix in files if f".{suffix}" in IMAGE_SUFFIXES]
        if len(others) != 1 or not plan.images or plan.images[0] in files or plan.knows(others[0]):
            return files
        return {plan.images[0] if suffix == others[0] else suffix: content for suffix, content in files.items()}


def _plan_first(files: Mapping[str, bytes], found: TarScan) -> FieldPlan:
    """The fields of the first record."""
    suffixes = [suffix for suffix in files if is_valid_suffix(suffix)]
    kinds = {suffix: find_kind_by_contents(suffix, [files[suffix]]) for suffix in suffixes}
    for suffix, kind in kinds.items():
        dtype, is_array, axes = kind.partition("[")
        if is_array:
            kinds[suffix] = f"{dtype}[{','.join('*' for _ in axes.split(','))}]"
    declared = () if found.declared is None else parse_declaration(found.declared)
    return plan_fields(suffixes, [suffixes], kinds, declared)


class _Source(Protocol):
    """The bytes of an archive."""

    def read(self, at: int, nbytes: int) -> bytes: ...
    def read_member(self, member: Member) -> bytes: ...
    def read_rest(self) -> None: ...
    def close(self) -> None: ...


class _PlainSource:
    """Reads a file at any place."""

    def __init__(self, path: Path) -> None:
        self._file = open_regular(path)
        self.nbytes = os.fstat(self._file).st_size

    def read(self, at: int, nbytes: int) -> bytes:
        """Up to ``nbytes`` bytes."""
        return os.pread(self._file, nbytes, at)

    def read_member(self, member: Member) -> bytes:
        """All bytes of a member."""
        content = os.pread(self._file, member.nbytes, member.offset)
        while len(content) < member.nbytes:  # one read gives 2 GiB at most
            more = os.pread(self._file, member.nbytes - len(content), member.offset + len(content))
            if not more:
                raise EOFError("the file became shorter while it was read")
            content += more
        return content

    def read_rest(self) -> None:
        """Nothing: a plain file has no checksum at its end."""

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


class _ForwardSource:
    """Reads decompressed bytes in ascending order."""

    nbytes = None

    def __init__(self, file: DecompressedFile) -> None:
        self._file = file
        self._at = 0

    def read(self, at: int, nbytes: int) -> bytes:
        """Up to ``nbytes`` bytes; those before ``at`` are skipped."""
        while self._at < at:
            skipped = len(self._file.read(min(at - self._at, _PIECE_NBYTES)))
            if not skipped:
                raise EOFError("it ends inside a file; it was truncated")
            self._at += skipped
        pieces: list[bytes] = []
        while nbytes and (piece := self._file.read(min(nbytes, _PIECE_NBYTES))):
            pieces.append(piece)
            nbytes -= len(piece)
            self._at += len(piece)
        return b"".join(pieces)

    def read_member(self, member: Member) -> bytes:
        """All bytes of a member."""
        if member.nbytes > _MAX_COMPRESSED_NBYTES:
            raise ValueError(
                f"a file in a compressed shard must have at most {_MAX_COMPRESSED_NBYTES} bytes, got {member.nbytes}"
            )
        content = self.read(member.offset, member.nbytes)
        if len(content) < member.nbytes:
            raise EOFError("it ends inside a file; it was truncated")
        return content

    def read_rest(self) -> None:
        """Read to the end, where checksums are compared."""
        while self._file.read(_PIECE_NBYTES):
            pass

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _read_records(
    shard: Location, found: TarScan, first: int = 0
) -> Generator[tuple[int, str, Mapping[str, bytes]], None, None]:
    """Number, key and files (by suffix) of each record of a shard from number ``first`` on."""
    index = -1
    try:
        path = shard.local_path
        codec = find_codec(path)
        source = _ForwardSource(DecompressedFile(path, codec)) if codec else _PlainSource(path)
        with closing(source):
            scan = MemberScan(source.read, source.nbytes)
            contents: dict[int, bytes] = {}
            members = _read_ahead(scan, source, contents) if codec else scan
            for index, (key, files) in enumerate(group_members(members, found)):
                if found.declaration is not None and found.declared is None:
                    place = found.declaration
                    found.declared = contents[place.offset] if codec else source.read_member(place)
                if index >= first:
                    yield (
                        index,
                        key.decode(errors="backslashreplace"),
                        {
                            suffix: contents[member.offset] if codec else source.read_member(member)
                            for suffix, member in files.items()
                        },
                    )
                for offset in [offset for offset in contents if offset <= next(reversed(files.values())).offset]:
                    del contents[offset]
            source.read_rest()
            if not scan.has_end:
                _logger.warning("%s has no end of archive: it may have been truncated behind its last file", shard)
    except StoreError as error:
        error.locate(store=str(shard))
        raise
    except (ValueError, EOFError) as error:
        raise StoreFormatError(
            f"this shard is no tar file, or damaged: {error}", store=str(shard), index=max(index, 0)
        ) from error
    except FileNotFoundError as error:
        raise StoreNotFoundError("there is no shard at this path", store=str(shard)) from error
    except OSError as error:
        raise StoreError(f"this shard cannot be read: {error.strerror or error}", store=str(shard)) from error


def _read_ahead(scan: MemberScan, source: _Source, contents: dict[int, bytes]) -> Iterator[Member]:
    """The members of a source that cannot go back; their bytes are read as they come."""
    for member in scan:
        is_used = split_name(member.name) is not None and not is_metadata(member.name)
        if not member.problem and (is_used or member.name == DECLARATION):
            contents[member.offset] = source.read_member(member)
        yield member
