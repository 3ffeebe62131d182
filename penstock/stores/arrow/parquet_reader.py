"""What a Parquet store opens in each process: its files mapped, pages and row groups that were unpacked, small columns.

::

    get_reader("image") ──> PagedColumn ──> ChunkPages of the row group ──> PageValues ──> view
                                └ UnsupportedPageError ──> the column of the row group, decoded by pyarrow
    get_reader("label") ──> an ArrowColumn over the whole column, or row group by row group where it is large

Unpacked bytes are kept up to a number of bytes, those that were used last. Several threads may call everything.
"""

from __future__ import annotations

import contextlib
import mmap
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from penstock.sample import Field
from penstock.stores.arrow.columns import BinaryColumn
from penstock.stores.arrow.fields import ColumnField
from penstock.stores.arrow.parquet_files import LeafColumn, ParquetIndex, open_parquet
from penstock.stores.arrow.parquet_pages import ChunkPages, ColumnLayout, Decompress, PageValues, UnsupportedPageError
from penstock.stores.arrow.table import ColumnarReader, FieldReader, ImageFiles, make_reader
from penstock.stores.common.mapped_files import MappedFiles

__all__ = ["ParquetReader"]

_CODECS: Final = {"SNAPPY": "snappy", "GZIP": "gzip", "BROTLI": "brotli", "ZSTD": "zstd", "LZ4_RAW": "lz4_raw"}
_MAX_RESIDENT_NBYTES: Final = 1 << 28
"""Small columns of more bytes are read row group by row group."""
_MAX_ADVISED_NBYTES: Final = 1 << 25
_PEEKED_ROWS: Final = 64


class ParquetReader(ColumnarReader):
    """Reads the fields of rows.

    Parameters
    ----------
    paths : sequence of Path
        The files.
    index : ParquetIndex
        Their row groups.
    fields : sequence of ColumnField
        The fields.
    image_files : ImageFiles
        For images that are stored as their paths.
    memory_nbytes : int
        Bytes of unpacked pages and row groups to keep.
    check : bool
        Whether the checksums of pages are compared.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        index: ParquetIndex,
        fields: Sequence[ColumnField],
        image_files: ImageFiles,
        *,
        memory_nbytes: int,
        check: bool,
    ) -> None:
        super().__init__(fields, image_files)
        self.index, self.check = index, check
        self.starts: list[int] = index.starts.tolist()
        self.cache = _UnpackedCache(memory_nbytes)
        self.mapped = MappedFiles(paths)
        self._paths = tuple(paths)
        self._paged: list[PagedColumn] = []
        self._metadata: dict[int, Any] = {}

    def get_chunks(self, column: str, path: Sequence[str]) -> list[Any]:
        """A column of all files; of a struct only the child at ``path``."""
        name = ".".join([column, *path])
        wanted = name if any(_is_below(leaf, name) for leaf in self.index.unpacked_nbytes) else column
        chunks = []
        for path_of_file in self._paths:
            with open_parquet(path_of_file, check=self.check) as file, _damage_as_value_error():
                chunks += file.read(columns=[wanted], use_threads=False).column(column).chunks
        if sum(map(len, chunks)) != self.starts[-1]:
            raise ValueError(
                f"column {column!r} has {sum(map(len, chunks))} rows, and the footers say {self.starts[-1]}"
            )
        return chunks

    def read_group(self, group: int, column: str, path: Sequence[str]) -> tuple[list[Any], int]:
        """A column of one row group, decoded by pyarrow, and its bytes."""
        name = ".".join([column, *path])
        wanted = name if any(_is_below(leaf, name) for leaf in self.index.unpacked_nbytes) else column
        number = int(self.index.files[group])
        with open_parquet(self._paths[number], check=self.check, metadata=self._metadata.get(number)) as file:
            self._metadata[number] = file.metadata
            with _damage_as_value_error():
                table = file.read_row_group(int(self.index.groups[group]), columns=[wanted], use_threads=False)
        rows = self.starts[group + 1] - self.starts[group]
        if len(table) != rows:
            raise ValueError(f"row group {group} has {len(table)} rows, and the footer says {rows}")
        return table.column(column).chunks, table.nbytes

    def peek(self, column: str, path: Sequence[str]) -> bytes | None:
        """The first bytes of the first value of a column of bytes that is not null, among the first rows."""
        if len(self.starts) < 2:
            return None
        paged = PagedColumn(self, ColumnField("", Field("bytes"), column, tuple(path)))
        for row in range(min(_PEEKED_ROWS, self.starts[-1])):
            value = paged.get(row)
            if value is not None:
                return bytes(value[:64])
        return None

    def prefetch(self, rows: Sequence[int]) -> None:
        """Let the system read the pages of large fields ahead."""
        for paged in tuple(self._paged):
            paged.prefetch(rows)

    def close(self) -> None:
        """Let go of unpacked pages and of the maps. Views stay readable, and reads that are under way go on."""
        self.cache.clear()
        self._readers.clear()  # which refer to this reader
        self._getters = None
        self._paged.clear()

    def _make_reader(self, field: ColumnField) -> FieldReader:
        name = ".".join([field.column, *field.path])
        if field.form in {"bytes", "pixels"} and name in self.index.leaves:
            paged = PagedColumn(self, field)
            self._paged.append(paged)
            return make_reader(field, self.get_chunks, self._files, paged)
        size = sum(nbytes for leaf, nbytes in self.index.unpacked_nbytes.items() if _is_below(leaf, field.column))
        if size > _MAX_RESIDENT_NBYTES:
            return _GroupedColumn(self, field, self._files)
        return super()._make_reader(field)


class PagedColumn:
    """A column of bytes that is read page by page.

    Parameters
    ----------
    reader : ParquetReader
        The files and the cache.
    field : ColumnField
        Which column.
    """

    def __init__(self, reader: ParquetReader, field: ColumnField) -> None:
        self._reader, self._field = reader, field
        self._name = ".".join([field.column, *field.path])
        self._leaf: LeafColumn = reader.index.leaves[self._name]
        self._starts = reader.starts
        self._chunks: dict[int, ChunkPages | None] = {}
        self._mapped: dict[tuple[int, int], PageValues] = {}

    def get(self, row: int) -> memoryview | None:
        """The bytes of a row; None if it has none."""
        group = bisect_right(self._starts, row) - 1
        row -= self._starts[group]
        try:
            chunk = self._chunks[group]
        except KeyError:
            chunk = self._open_chunk(group)
        if chunk is None:
            return self._read_decoded(group, row)
        number, row_of_page = chunk.find(row)
        values = self._mapped.get((group, number)) or self._load_page(chunk, group, number)
        return self._read_decoded(group, row) if values is None else values.get(row_of_page)

    def prefetch(self, rows: Sequence[int]) -> None:
        """Let the system read the pages of some rows ahead: the whole chunk of a row group that was not read yet."""
        spans: set[tuple[int, int, int]] = set()
        for row in rows:
            if not 0 <= row < self._starts[-1]:
                continue
            group = bisect_right(self._starts, row) - 1
            file, begin, nbytes = self._find_chunk(group)
            chunk = self._chunks.get(group)
            if chunk is not None:
                offset, nbytes = chunk.get_span(chunk.find(row - self._starts[group])[0])
                begin += offset
            spans.add((file, begin, nbytes))
        for file, begin, nbytes in sorted(spans):
            _advise(self._reader.mapped, file, begin, nbytes)

    def _find_chunk(self, group: int) -> tuple[int, int, int]:
        """The file of a row group, where the chunk of this column begins there, and its number of bytes."""
        leaf = self._leaf
        return int(self._reader.index.files[group]), int(leaf.begins[group]), int(leaf.nbytes[group])

    def _open_chunk(self, group: int) -> ChunkPages | None:
        """The pages of a row group; None if pyarrow must decode it."""
        leaf, reader = self._leaf, self._reader
        chunk: ChunkPages | None = None
        try:
            decompress = _make_decompress(leaf.compressions[group])
            view = reader.mapped.view(*self._find_chunk(group))
            rows = self._starts[group + 1] - self._starts[group]
            layout = ColumnLayout(leaf.max_definition, leaf.value_nbytes)
            chunk = ChunkPages(view, rows, layout, decompress, check=reader.check)
        except UnsupportedPageError:
            pass
        self._chunks[group] = chunk
        return chunk

    def _load_page(self, chunk: ChunkPages, group: int, number: int) -> PageValues | None:
        """The values of a page, unpacked if it is packed; None if pyarrow must decode its row group."""
        if chunk.is_mapped:
            try:
                values = self._mapped[group, number] = chunk.read(number)
            except UnsupportedPageError:
                self._chunks[group] = None
                return None
            return values
        key = (self._name, group, number)
        found: PageValues | None = self._reader.cache.get(key)
        if found is None:
            try:
                found = chunk.read(number)
            except UnsupportedPageError:
                self._chunks[group] = None
                return None
            self._reader.cache.put(key, found, found.nbytes)
        return found

    def _read_decoded(self, group: int, row: int) -> memoryview | None:
        """The bytes of a row of a row group that pyarrow decodes."""
        key = (self._name, group)
        found: BinaryColumn | None = self._reader.cache.get(key)
        if found is None:
            chunks, nbytes = self._reader.read_group(group, self._field.column, self._field.path)
            found = BinaryColumn(chunks, self._field.path)
            self._reader.cache.put(key, found, nbytes)
        value: memoryview | None = found.get(row)
        return value


class _GroupedColumn:
    """A small field whose column is too large to be kept: read row group by row group."""

    def __init__(self, reader: ParquetReader, field: ColumnField, image_files: ImageFiles) -> None:
        self._reader, self._field, self._image_files = reader, field, image_files

    def get(self, row: int) -> Any:
        """The value of a row."""
        starts = self._reader.starts
        group = bisect_right(starts, row) - 1
        key = ("field", self._field.name, group)
        found: FieldReader | None = self._reader.cache.get(key)
        if found is None:
            chunks, nbytes = self._reader.read_group(group, self._field.column, ())
            found = make_reader(self._field, lambda _column, _path: chunks, self._image_files)
            self._reader.cache.put(key, found, nbytes)
        return found.get(row - starts[group])


class _UnpackedCache:
    """Objects by key, up to a number of bytes: those that were used last. The last one is kept, however large it is."""

    def __init__(self, nbytes: int) -> None:
        self._limit = nbytes
        self._nbytes = 0
        self._entries: OrderedDict[object, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: object) -> Any:
        """The object under a key, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def clear(self) -> None:
        """Forget all objects."""
        with self._lock:
            self._entries.clear()
            self._nbytes = 0

    def put(self, key: object, value: Any, nbytes: int) -> None:
        """Keep an object, in place of those that were not used for longest."""
        with self._lock:
            _, before = self._entries.pop(key, (None, 0))
            self._entries[key] = (value, nbytes)
            self._nbytes += nbytes - before
            while self._nbytes > self._limit and len(self._entries) > 1:
                _, (_, dropped) = self._entries.popitem(last=False)
                self._nbytes -= dropped


def _make_decompress(compression: str) -> Decompress | None:
    """What unpacks the pages of a column chunk; None if they are not compressed.

    Raises
    ------
    UnsupportedPageError
        If the compression is left to pyarrow.
    """
    if compression == "UNCOMPRESSED":
        return None
    if compression not in _CODECS:
        raise UnsupportedPageError(f"pages are compressed with {compression}")
    import pyarrow as pa

    name = _CODECS[compression]
    if not pa.Codec.is_available(name):
        raise UnsupportedPageError(f"this pyarrow has no {name}")

    def decompress(content: memoryview, nbytes: int) -> memoryview:
        try:
            unpacked = pa.Codec(name).decompress(pa.py_buffer(content), nbytes)
        except (pa.ArrowException, OSError) as error:  # damaged bytes are an error of the file system in Arrow
            raise ValueError(f"a page cannot be unpacked ({name}): {error}") from error
        return memoryview(unpacked).toreadonly().cast("B")  # of signed bytes in Arrow

    return decompress


@contextlib.contextmanager
def _damage_as_value_error() -> Iterator[None]:
    """Raise ValueError where pyarrow finds damage: its own errors are of many classes, OSError without a number too."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(f"pyarrow cannot decode it: {' '.join(str(error).split())}") from error


def _advise(mapped: MappedFiles, file: int, begin: int, nbytes: int) -> None:
    whole = mapped.whole(file)
    end = min(begin + min(nbytes, _MAX_ADVISED_NBYTES), len(whole))
    begin -= begin % mmap.PAGESIZE
    if isinstance(whole.obj, mmap.mmap) and 0 <= begin < end:
        whole.obj.madvise(mmap.MADV_WILLNEED, begin, end - begin)


def _is_below(leaf: str, name: str) -> bool:
    return leaf == name or leaf.startswith(f"{name}.")
