"""What a Parquet store opens in each process: its files mapped, pages and row groups that were unpacked, small columns.

::

    open_field("image") ──> pages of the column chunk of a row group (ChunkPages) ──> PageValues ──> view
                                └ UnsupportedPageError ──> the column of the row group, decoded by pyarrow
    open_field("label") ──> the whole column, or row group by row group where it is large

Unpacked bytes are kept up to a number of bytes, those that were used last. Several threads may call everything.
"""

from __future__ import annotations

import contextlib
import functools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.stores.arrow.columns import BinaryColumn
from penstock.stores.arrow.fields import ColumnField
from penstock.stores.arrow.parquet_files import ParquetIndex, open_parquet
from penstock.stores.arrow.parquet_pages import ChunkPages, Decompress, PageValues, UnsupportedPageError
from penstock.stores.arrow.table import ColumnarReader, GetBytes, GetValue, ImageFiles
from penstock.stores.common.kept_objects import KeptObjects
from penstock.stores.common.mapped_files import MappedFiles

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import parquet as pq

__all__ = ["ParquetChunks", "ParquetReader"]

T_value = TypeVar("T_value")
_CODECS: Final = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
"""Names in pyarrow of the codecs of Parquet; 0 is none."""
_MAX_RESIDENT_NBYTES: Final = 1 << 28
"""Small columns of more bytes are read row group by row group."""


class ParquetChunks:
    """The column chunks of some files, and what was unpacked of them. Several threads may call everything.

    Parameters
    ----------
    paths : sequence of Path
        The files.
    index : ParquetIndex
        Their row groups.
    memory_nbytes : int
        Bytes of unpacked pages and row groups to keep.
    check : bool
        Whether the checksums of pages are compared.
    is_remote : bool
        Whether they are copies of remote objects.
    """

    def __init__(
        self, paths: Sequence[Path], index: ParquetIndex, *, memory_nbytes: int, check: bool, is_remote: bool
    ) -> None:
        self.index, self._check, self.is_remote = index, check, is_remote
        self.cache = KeptObjects(memory_nbytes)
        self._mapped = MappedFiles(paths)
        self._paths = tuple(paths)
        self._metadata: dict[int, pq.FileMetaData] = {}

    def find(self, row: int) -> tuple[int, int]:
        """The row group of a row, and its number there."""
        group = bisect_right(self.index.starts, row) - 1
        return group, row - self.index.starts[group]

    def decode(self, column: str, path: Sequence[str], group: int | None = None) -> list[pa.Array]:
        """A column of one row group, or of all, decoded by pyarrow; of a struct only the child at ``path``."""
        index, name = self.index, ".".join([column, *path])
        wanted = [name if any(_is_below(leaf, name) for leaf in index.unpacked_nbytes) else column]
        begin, end = (0, len(index.groups)) if group is None else (group, group + 1)
        leaves = [leaf for leaf in index.spans if _is_below(leaf, wanted[0])]
        for each in range(begin, end) if self.is_remote else ():
            self.announce(each, [index.spans[leaf][each] for leaf in leaves])
        chunks: list[pa.Array] = []
        for number in range(len(self._paths)) if group is None else index.files[begin:end]:
            metadata = self._metadata.get(number)
            with open_parquet(self._paths[number], check=self._check, metadata=metadata) as file, _naming_damage():
                if group is None:
                    table = file.read(columns=wanted, use_threads=False)
                else:
                    self._metadata[number] = file.metadata
                    table = file.read_row_group(index.groups[group], columns=wanted, use_threads=False)
            chunks += table.column(column).chunks
        count, expected = sum(map(len, chunks)), index.starts[end] - index.starts[begin]
        if count != expected:
            raise ValueError(f"column {column!r} has {count} rows, and the footers say {expected}")
        return chunks

    def open(self, name: str, group: int) -> ChunkPages | None:
        """Return the pages of a column chunk; None if pyarrow must decode it."""
        leaf, starts = self.index.leaves[name], self.index.starts
        number, (begin, nbytes) = self.index.files[group], self.index.spans[name][group]
        view = self._mapped.ranges(number, begin, nbytes)
        rows = starts[group + 1] - starts[group]
        try:
            decompress = _make_decompress(leaf.codecs[group])
            return ChunkPages(view, rows, leaf.max_definition, leaf.value_nbytes, decompress, check=self._check)
        except UnsupportedPageError:
            return None

    def announce(self, group: int, spans: Iterable[tuple[int, int]]) -> None:
        """Begin to read ranges of the file of a row group."""
        self._mapped.announce((self.index.files[group], *span) for span in spans)

    def announce_parts(self, name: str, parts: Iterable[tuple[int, int, int]]) -> int:
        """Begin to read parts of column chunks: the number of the row group, where a part begins, its bytes."""
        files, spans = self.index.files, self.index.spans[name]
        return self._mapped.announce((files[group], spans[group][0] + at, nbytes) for group, at, nbytes in parts)

    def submit(self, group: int, call: Callable[[], object]) -> None:
        """Call it in another thread, once what was announced of the remote file of a row group is asked for."""
        self._mapped.source(self.index.files[group]).submit(call)


class ParquetReader(ColumnarReader):
    """Reads the fields of rows.

    ``chunks``: the files. ``image_files``: for images that are stored as their paths.
    """

    def __init__(self, chunks: ParquetChunks, fields: Sequence[ColumnField], image_files: ImageFiles) -> None:
        super().__init__(fields, chunks.decode, image_files)
        self._chunks = chunks

    def open_bytes(self, column: str, path: Sequence[str]) -> GetBytes:
        """Return what gives the values of a column of bytes: page by page, where it is no list."""
        if ".".join([column, *path]) not in self._chunks.index.leaves:
            return super().open_bytes(column, path)
        paged = self._large[column, *path] = _PagedColumn(self._chunks, column, path)
        return paged.get

    def close(self) -> None:
        """Let go of unpacked pages and of the maps. Views stay readable, and reads that are under way go on."""
        self._chunks.cache.clear()
        self._getters.clear()
        self._all = None
        self._large.clear()

    def _open_field(self, field: ColumnField) -> GetValue:
        index, name = self._chunks.index, ".".join([field.column, *field.path])
        is_paged = field.field.is_blob and name in index.leaves
        size = sum(nbytes for leaf, nbytes in index.unpacked_nbytes.items() if _is_below(leaf, field.column))
        if is_paged or size <= _MAX_RESIDENT_NBYTES:
            return super()._open_field(field)
        files = self._files

        def open_group(chunks: Sequence[pa.Array]) -> GetValue:
            return ColumnarReader([field], lambda _name, _path: chunks, files).open_field(field.name)

        return functools.partial(_read_from_group, self._chunks, field.column, (), open_group)


def _read_from_group(
    chunks: ParquetChunks,
    column: str,
    path: Sequence[str],
    open_group: Callable[[Sequence[pa.Array]], Callable[[int], T_value]],
    row: int,
) -> T_value:
    """Return the value of a row of a column that pyarrow decodes a row group at a time."""
    group, place = chunks.find(row)

    def decode() -> tuple[Callable[[int], T_value], int]:
        decoded = chunks.decode(column, path, group)
        return open_group(decoded), sum(chunk.nbytes for chunk in decoded)

    return chunks.cache.get((open_group, group), decode)(place)


class _PagedColumn:
    """A column of bytes that is read page by page; row groups with pages in other forms are decoded by pyarrow."""

    def __init__(self, chunks: ParquetChunks, column: str, path: Sequence[str]) -> None:
        self._chunks, self._name = chunks, ".".join([column, *path])
        self._pages: dict[int, ChunkPages | None] = {}
        self._column, self._path = column, path

    def get(self, row: int) -> memoryview | None:
        """Return the bytes of a row; None if it has none."""
        group, place = self._chunks.find(row)
        pages = self._pages[group] if group in self._pages else self._open(group)
        if pages is not None:
            number, place = pages.find(place)
            read = functools.partial(pages.read, number)
            try:
                return self._chunks.cache.get((self._name, group, number), read).get(place)
            except UnsupportedPageError:
                self._pages[group] = None
        return _read_from_group(self._chunks, self._column, self._path, self._open_group, row)

    def announce(self, rows: Sequence[int]) -> int:
        """Let the system read some rows ahead: their pages, or the whole chunk of a row group that was not read yet.

        Of pages whose values are known, which a mapped file has, the values alone: a page may have a hundred of them.
        """
        parts = set[tuple[int, int, int]]()
        unknown: dict[int, list[int]] = {}
        for row in rows:
            group, place = self._chunks.find(row)
            pages = self._pages.get(group)
            if pages is not None:
                number, place = pages.find(place)
                values = self._chunks.cache.find((self._name, group, number))
                span = values.get_span(place) if isinstance(values, PageValues) else pages.get_span(number)
                parts.add((group, *span))
            elif self._chunks.is_remote and group not in self._pages:
                unknown.setdefault(group, []).append(row)
            else:
                parts.add((group, 0, self._chunks.index.spans[self._name][group][1]))
        asked = self._chunks.announce_parts(self._name, sorted(parts))
        for group, wanted in unknown.items():
            self._chunks.submit(group, functools.partial(self._find_pages, group, wanted))
        return asked + len(unknown)

    def _find_pages(self, group: int, rows: Sequence[int]) -> None:
        """Fetch the pages of some rows of a remote row group whose pages are not known."""
        self._open(group)
        self.announce(rows)

    def _open(self, group: int) -> ChunkPages | None:
        pages = self._pages[group] = self._chunks.open(self._name, group)
        return pages

    def _open_group(self, decoded: Sequence[pa.Array]) -> Callable[[int], memoryview | None]:
        return BinaryColumn(decoded, self._path).get


def _make_decompress(codec: int) -> Decompress | None:
    """Return what unpacks the pages of a column chunk; None if they are not compressed.

    Raises UnsupportedPageError if the compression is left to pyarrow.
    """
    if codec == 0:
        return None
    import pyarrow as pa

    name = _CODECS.get(codec)
    if name is None or not pa.Codec.is_available(name):
        raise UnsupportedPageError(f"pages are compressed with codec {codec}")

    def decompress(content: memoryview, nbytes: int) -> memoryview:
        with _naming_damage():
            unpacked = pa.Codec(name).decompress(pa.py_buffer(content), nbytes)
        return memoryview(unpacked).toreadonly().cast("B")  # of signed bytes in Arrow

    return decompress


@contextlib.contextmanager
def _naming_damage() -> Iterator[None]:
    """Raise ValueError where pyarrow finds damage: its own errors are of many classes, OSError without a number too."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"pyarrow cannot decode it: {' '.join(str(error).split())}") from error


def _is_below(leaf: str, name: str) -> bool:
    return leaf == name or leaf.startswith(f"{name}.")
