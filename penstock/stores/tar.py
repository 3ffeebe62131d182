"""The ``tar`` stream: uncompressed tar shards, as WebDataset writes them.

::

    train/0001.jpg  ┐ one record: key "train/0001", fields "image" and "label"
    train/0001.cls  ┘
    train/0002.jpg  ┐ the files of a record follow one another; a name is the key, a dot, and the suffix
    train/0002.cls  ┘

The standard library reads the shards. Nothing is extracted to disk, decoded or unpickled. A header
that declares more bytes than the file has, or leads to an earlier header, is an error.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

from penstock.errors import CorruptRecordError, StoreError, StoreFormatError, StoreNotFoundError
from penstock.sample import Field, Record, Schema
from penstock.stores.listing import IMAGE_SUFFIXES
from penstock.stores.location import Location
from penstock.stores.regular_file import open_regular
from penstock.stores.shards import ShardStream

__all__ = ["TarStream"]

_NAME: Final = re.compile(r"((?:.*/)?[^./]+)\.([^/]+)")
_KINDS: Final = {
    **dict.fromkeys(("cls", "class"), "label"),
    **dict.fromkeys(("index", "inx", "id", "count"), "int"),
    **dict.fromkeys(("txt", "text", "transcript"), "text"),
}


class TarStream(ShardStream):
    """Shards of WebDataset.

    Parameters
    ----------
    shards : str, path, Location, or sequence of these
        The tar files, or a pattern such as ``"train-{000..009}.tar"``.

    Notes
    -----
    A field is named by its suffix in lower case (``json``, ``seg.png``); the first image is named ``image``, and
    ``cls`` is named ``label``, as in other stores. Numbers and texts are parsed; all other fields are bytes. The first
    record of the first shard gives the schema, and every record must have its fields. Links, sparse
    files, and files whose names have no suffix or begin with a dot are ignored.
    """

    kind: ClassVar[str] = "tar"
    _known: Mapping[str, tuple[str, str]] | None = None

    @property
    def schema(self) -> Schema:
        """Fields of the first record of the first shard; read when it is first used.

        Raises
        ------
        StoreError
            If the first shard cannot be read, or has no records.
        """
        return Schema({name: Field(kind) for name, kind in self._fields().values()})

    def read_shard(self, shard: Location, first: int = 0) -> Iterator[Record]:
        """The records of one shard; see :meth:`ShardStream.read_shard`. Records before ``first`` are skipped."""
        expected = self._fields()
        for index, key, files in _group_files(shard, first):
            try:
                if files.keys() != expected.keys():
                    raise ValueError(  # noqa: TRY301  # one handler
                        f"it must have the files {', '.join(expected)}, as the first record, got {', '.join(files)}"
                    )
                fields = {name: _parse(files[suffix], kind) for suffix, (name, kind) in expected.items()}
            except ValueError as error:
                raise CorruptRecordError(
                    f"the record cannot be used: {error}", store=str(shard), key=key, index=index
                ) from error
            yield Record(index, key, fields)

    def _fields(self) -> Mapping[str, tuple[str, str]]:
        """Name and kind of each field, by suffix."""
        known = self._known
        if known is None:
            shard = self.shards[0]
            first = next(_group_files(shard), None)
            if first is None:
                raise StoreFormatError("this shard has no records", store=str(shard))
            known = self._known = _name_fields(first[2])
        return known


class _ShardFile(io.BufferedReader):
    """A file that allocates no more than its size, whatever a header declares."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(io.FileIO(descriptor))
        self.nbytes = self.seek(0, io.SEEK_END)
        self.seek(0)

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(size if size is None else min(size, self.nbytes))


def _name_fields(files: Mapping[str, bytes]) -> Mapping[str, tuple[str, str]]:
    fields: dict[str, tuple[str, str]] = {}
    for suffix in files:
        kind = "image" if f".{suffix}" in IMAGE_SUFFIXES else _KINDS.get(suffix, "bytes")
        name = kind if kind in {"image", "label"} else suffix
        taken = {taken for taken, _ in fields.values()}
        fields[suffix] = (suffix if name in taken else name, kind)
    return fields


def _parse(content: bytes, kind: str) -> bytes | str | int:
    if kind == "text":
        return content.decode()
    return int(content) if kind in {"label", "int"} else content


def _group_files(shard: Location, first: int = 0) -> Iterator[tuple[int, str, dict[str, bytes]]]:
    """Number, key and files (by suffix) of each record of a shard from number ``first`` on."""
    index, key, files = -1, "", dict[str, bytes]()
    try:
        with _ShardFile(open_regular(shard.local_path)) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # or it keeps one object for each file
                if not 0 <= member.size <= file.nbytes - member.offset_data or tar.offset <= member.offset:
                    raise tarfile.ReadError(f"the header of {member.name!r:.200} declares {member.size} bytes")
                match = _NAME.fullmatch(member.name) if member.isreg() and not member.issparse() else None
                if match is None:
                    continue
                if match[1] != key:
                    if files:
                        yield index, key, files
                    index, key, files = index + 1, match[1], {}
                if index >= first:
                    suffix = match[2].lower()
                    if suffix in files:
                        raise CorruptRecordError(
                            f"a record must have one file of each suffix, got {suffix!r} twice",
                            store=str(shard),
                            key=key,
                            index=index,
                        )
                    content = tar.extractfile(member)
                    assert content is not None, "a regular file"
                    files[suffix] = content.read()
        if files:
            yield index, key, files
    except StoreError:
        raise
    except (tarfile.TarError, ValueError, EOFError) as error:
        raise StoreFormatError(
            f"this shard is no tar file, or damaged: {error}", store=str(shard), index=max(index, 0)
        ) from error
    except FileNotFoundError as error:
        raise StoreNotFoundError("there is no shard at this path", store=str(shard)) from error
    except OSError as error:
        raise StoreError(f"this shard cannot be read: {error.strerror or error}", store=str(shard)) from error
