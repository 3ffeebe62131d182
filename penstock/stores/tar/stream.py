"""The ``tar`` stream: tar shards, compressed or not, read from their beginning as WebDataset reads them.

::

    train/0001.jpg  ┐ one record: key "train/0001", fields "image" and "label"
    train/0001.cls  ┘
    train/0002.jpg  ┐ the files of a record follow one another; a name is the key, a dot, and the suffix
    train/0002.cls  ┘

Nothing is extracted to disk or unpickled. :class:`~penstock.stores.tar.store.TarStore` reads shards by index.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import ClassVar, Final

from penstock.errors import CorruptRecordError, PenstockError, StoreError, StoreFormatError, StoreNotFoundError
from penstock.paths import IMAGE_SUFFIXES
from penstock.sample import Record, Schema
from penstock.stores.common.compression import DecompressedFile, find_codec
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
from penstock.stores.tar.format import BLOCK_NBYTES, Member, MemberScan
from penstock.stores.tar.index import TarScan, group_members, is_apart, warn_of_dots

__all__ = ["TarStream"]

_logger = logging.getLogger(__name__)
_PIECE_NBYTES: Final = 1 << 20
_MAX_COMPRESSED_NBYTES: Final = 1 << 30  # of one file in a compressed shard: it is read into memory


class TarStream(ShardStream):
    """Shards of WebDataset.

    Parameters
    ----------
    shards : str, path, Location, or sequence of these
        The tar files, or a pattern such as ``"train-{000..009}.tar"``, or URLs of these. They may be compressed with
        gzip, bzip2 or xz.
    dotted_keys, image : optional
        As for :class:`~penstock.stores.tar.store.TarStore`.
    storage_options, cache, cache_size
        For URLs; see :class:`~penstock.stores.streams.ShardStream`.

    Notes
    -----
    Fields are named as in :class:`~penstock.stores.tar.store.TarStore`: by their suffix in lower case (``json``,
    ``seg.png``), the image ``image``, and ``cls`` ``label``. Numbers, texts, JSON and arrays of ``.npy`` files are
    parsed; all other fields are bytes. The first record of the first shard gives the schema, and every record must have
    its files. Links, sparse files, and files whose names have no suffix are ignored. The files of a record must follow
    one another.
    """

    kind: ClassVar[str] = "tar"
    _plan: FieldPlan | None = None
    _suffixes: tuple[str, ...] | None = ()  # of the first record; None: the shards declare fields that may be missing

    def __init__(
        self,
        shards: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        dotted_keys: bool | None = None,
        image: str | None = None,
        storage_options: Mapping[str, object] | None = None,
        cache: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
    ) -> None:
        super().__init__(shards, storage_options=storage_options, cache=cache, cache_size=cache_size)
        self.dotted_keys, self.image = dotted_keys, image

    def __reduce__(self) -> tuple[object, ...]:
        return functools.partial(type(self), dotted_keys=self.dotted_keys, image=self.image), (self.shards,)

    def fingerprint(self) -> str:
        """Hash as :meth:`ShardStream.fingerprint`; another hash with ``dotted_keys`` or ``image``."""
        image = "" if self.image is None else f"-image={self.image}"
        return super().fingerprint() + ("-dotted" if self.dotted_keys else "") + image

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
        for index, key, files in _read_records(shard, TarScan(), first, dotted_keys=bool(self.dotted_keys)):
            try:
                if files.keys() != expected:
                    files = self._choose_files(files, plan)  # noqa: PLW2901  # with the name that the plan knows
                    if self._suffixes is not None and files.keys() != expected:
                        raise ValueError(  # noqa: TRY301  # one handler
                            f"it must have the files {', '.join(self._suffixes)}, as the first record, got "
                            f"{', '.join(files)}; penstock.open reads shards whose records differ"
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
            with closing(_read_records(shard, found, dotted_keys=bool(self.dotted_keys))) as records:
                first = next(records, None)
            if first is None:
                raise StoreFormatError("this shard has no records", store=str(shard))
            try:
                plan = _plan_first(first[2], found.declaration, self.image)
            except PenstockError as error:
                error.locate(store=str(shard))
                raise
            except ValueError as error:
                raise StoreFormatError(f"the shard has no usable fields: {error}", store=str(shard)) from error
            self._suffixes = None if found.declaration is not None else tuple(filter(is_valid_suffix, first[2]))
            self._plan = plan
            if self.dotted_keys is None and found.declaration is None:
                warn_of_dots(first[1], tuple(first[2]), (), 3)  # who asks for the schema
        return plan

    @staticmethod
    def _choose_files(files: Mapping[str, bytes], plan: FieldPlan) -> Mapping[str, bytes]:
        """The files of a record that can be fields; its image under the suffix of the first record's image."""
        files = {suffix: content for suffix, content in files.items() if is_valid_suffix(suffix)}
        others = [suffix for suffix in files if f".{suffix}" in IMAGE_SUFFIXES]
        if len(others) != 1 or not plan.images or plan.images[0] in files or plan.knows(others[0]):
            return files
        return {plan.images[0] if suffix == others[0] else suffix: content for suffix, content in files.items()}


def _plan_first(files: Mapping[str, bytes], declaration: Member | None, image: str | None) -> FieldPlan:
    """The fields of the first record."""
    suffixes = [suffix for suffix in files if is_valid_suffix(suffix)]
    kinds = {suffix: find_kind_by_contents(suffix, [files[suffix]]) for suffix in suffixes}
    for suffix, kind in kinds.items():
        dtype, is_array, axes = kind.partition("[")
        if is_array:
            kinds[suffix] = f"{dtype}[{','.join('*' for _ in axes.split(','))}]"
    declared = () if declaration is None else parse_declaration(declaration.content)
    return plan_fields(suffixes, [suffixes], kinds, declared, image)


class _ShardFile:
    """The bytes of a shard, decompressed, in ascending order; ``nbytes``: their number, where it is known."""

    def __init__(self, path: Path) -> None:
        self._codec = find_codec(path)
        self._file = DecompressedFile(path, self._codec)
        self.nbytes = None if self._codec else path.stat().st_size
        self._at = 0

    def read(self, at: int, nbytes: int) -> bytes:
        """Read up to ``nbytes`` bytes; those before ``at`` are skipped. The padding of the last file may be missing."""
        while self._at < at:
            skipped = len(self._file.read(min(at - self._at, _PIECE_NBYTES)))
            if not skipped and at - self._at >= BLOCK_NBYTES:
                raise EOFError("it ends inside a file; it was truncated")
            self._at += skipped or at - self._at
        content = self._file.read(nbytes)
        self._at += len(content)
        return content

    def read_members(self, scan: MemberScan) -> Iterator[Member]:
        """The members of a scan that reads this file; those whose names may have a suffix have their bytes."""
        for member in scan:
            if member.problem or (b"." not in member.name and member.name != DECLARATION):
                yield member
                continue
            if self._codec and member.nbytes > _MAX_COMPRESSED_NBYTES:
                raise ValueError(
                    f"a file in a compressed shard must have at most {_MAX_COMPRESSED_NBYTES} bytes, got "
                    f"{member.nbytes}"
                )
            content = self.read(member.offset, member.nbytes)
            if len(content) < member.nbytes:
                raise EOFError("it ends inside a file; it was truncated")
            yield member._replace(content=content)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read_rest(self) -> None:
        """Read a compressed file to its end, where checksums are compared."""
        while self._codec and self._file.read(_PIECE_NBYTES):
            pass


def _read_records(
    shard: Location, found: TarScan, first: int = 0, *, dotted_keys: bool = False
) -> Generator[tuple[int, str, Mapping[str, bytes]], None, None]:
    """Number, key and files (by suffix) of each record of a shard from number ``first`` on."""
    known: dict[frozenset[str], frozenset[str]] = {}
    seen: dict[int, frozenset[str]] = {}  # by the hash of a key, the suffixes of its record
    index, own = -1, shard.renew()  # copies of remote shards are let go of when they are read
    try:
        with closing(_ShardFile(own.local_path)) as file:
            scan = MemberScan(file.read, file.nbytes)
            members = file.read_members(scan)
            for index, (key, files) in enumerate(group_members(members, found, dotted_keys=dotted_keys)):
                suffixes = frozenset(files)
                before = seen.setdefault(hash(key), known.setdefault(suffixes, suffixes))
                if before is not suffixes and is_apart(before, suffixes, declared=found.declaration is not None):
                    name = next(iter(files.values())).name.decode(errors="backslashreplace")
                    raise CorruptRecordError(
                        f"the file {name!r} must follow the other files of its record, which come before other records "
                        "of this shard; penstock.open joins them",
                        key=key.decode(errors="backslashreplace"),
                        index=index,
                    )
                if index >= first:
                    contents = {suffix: member.content for suffix, member in files.items()}
                    yield index, key.decode(errors="backslashreplace"), contents
            file.read_rest()
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
