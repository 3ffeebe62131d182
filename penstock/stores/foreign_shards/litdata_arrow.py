r"""LitData's folders of chunks whose samples are rows of Arrow record batches, read where they are.

::

    chunk    number of samples, their offsets (all equal: there is nothing between them)
             an Arrow file │ its length, u32 │ "LDARW01\0"

LitData writes dicts of numbers, texts and bytes in this way; other samples one after another
(:mod:`penstock.stores.foreign_shards.litdata`). Source: LitData's writer and item loader.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from penstock.errors import StoreFormatError
from penstock.stores.arrow.files import ArrowStore
from penstock.stores.common.mapped_files import MappedFiles
from penstock.stores.common.regular_file import open_file
from penstock.stores.foreign_shards.litdata import LitDataStore
from penstock.stores.foreign_shards.shard_index import join_inside, read_index_head, read_index_json, refuse_parts
from penstock.stores.location import Location

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LitDataArrowStore"]

_END: Final = b"LDARW01\0"
_LENGTH: Final = struct.Struct("<I")
_OFFSETS: Final = struct.Struct("<III")  # number of samples, and the offsets of the first two


class LitDataArrowStore(ArrowStore):
    """Samples of LitData that are rows of record batches; the parameters are those of :class:`ArrowStore`.

    ``split`` names the part of a folder with several (``train``).
    """

    kind: ClassVar[str] = "litdata-arrow"
    takes_shards: ClassVar[bool] = False

    @classmethod
    def recognises(cls, path: str) -> bool:
        """A folder with an index of LitData whose first chunk ends in an Arrow file, and holds nothing else."""
        if not LitDataStore.is_index(read_index_head(path)):
            return False
        try:
            files = _list_chunks(Path(path))
        except (OSError, ValueError):
            return False
        return bool(files) and _holds_rows_only(files[0])

    @staticmethod
    def find_files(paths: Sequence[Path], split: str | None) -> tuple[Path, list[Path]]:
        """Return the chunks that ``index.json`` lists."""
        folder = paths[0]
        if split is not None:
            folder = join_inside(folder, split)
        refuse_parts(Location.from_path("litdata-arrow", folder), LitDataStore.is_index)
        return folder, _list_chunks(folder)

    @staticmethod
    def map_table(path: Path) -> pa.Table:
        """Return the rows of a chunk, whose buffers are pages of the mapped file."""
        import pyarrow as pa

        whole = MappedFiles([path]).whole(0)
        begin, end = _find_arrow(whole, path)
        table = pa.ipc.open_file(pa.py_buffer(whole[begin:end])).read_all()
        table.validate()
        return table


def _list_chunks(folder: Path) -> list[Path]:
    index = read_index_json(Location.from_path("litdata-arrow", folder))
    try:
        return [join_inside(folder, chunk["filename"]) for chunk in index["chunks"]]
    except (KeyError, TypeError, ValueError) as error:
        raise StoreFormatError(f"index.json does not list the chunks: {error}", store=str(folder)) from error


def _find_arrow(whole: memoryview, path: Path) -> tuple[int, int]:
    """Return where the Arrow file of a chunk begins and ends."""
    end = len(whole) - len(_END) - _LENGTH.size
    if end < 0 or bytes(whole[-len(_END) :]) != _END:
        raise StoreFormatError(f"the chunk {path.name} does not end in an Arrow file", store=str(path.parent))
    begin = end - int(_LENGTH.unpack_from(whole, end)[0])
    if begin < 0:
        raise StoreFormatError(f"the Arrow file of {path.name} is longer than the chunk", store=str(path.parent))
    return begin, end


def _holds_rows_only(path: Path) -> bool:
    try:
        with open_file(path) as file:
            head = file.read(_OFFSETS.size)
            file.seek(-len(_END), os.SEEK_END)
            tail = file.read()
    except OSError:
        return False
    if len(head) < _OFFSETS.size or tail != _END:
        return False
    _, first, second = _OFFSETS.unpack(head)
    return bool(first == second)
