"""Reads Parquet files in any order: images page by page, small columns at once.

::

    read([7, 90210]) ── row group ── page ──> image: view of the mapped file, or of a page that was unpacked (kept: LRU)
                     └─ small columns (label, boxes, text): decoded by pyarrow once, read as Arrow buffers
                     └─ pages in a form that penstock does not read: their row group is decoded by pyarrow (kept: LRU)

The unit of Parquet's readers is a row group of some hundred images; a shuffled epoch would decode each of them for one
image. A page has about a megabyte, and a page that is not compressed (``datasets`` writes images so) is not copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from penstock.errors import ArgumentError
from penstock.sample import Schema
from penstock.stores.arrow.columnar import ColumnarStore, takes_columns
from penstock.stores.arrow.parquet_files import find_parquet_files, holds_parquet, read_footers
from penstock.stores.arrow.parquet_reader import ParquetChunks, ParquetReader
from penstock.stores.base import PathLike
from penstock.stores.container import LOOK_AHEAD
from penstock.stores.location import Location
from penstock.stores.writing import CommittedRecords, Writer
from penstock.wording import counted

if TYPE_CHECKING:
    from penstock.stores.arrow.parquet_writer import Prepared

__all__ = ["ParquetStore"]

_MEMORY_NBYTES: Final = 1 << 30


class ParquetStore(ColumnarStore[ParquetReader]):
    """Records of Parquet files: rows in the order of the files.

    Parameters
    ----------
    path : str, path or sequence of paths
        A file, a list of files, or a folder that has ``*.parquet`` itself or in ``data/``.
    split : str, optional
        Which split of a folder with several (``train-00000-of-00002.parquet``, ``test.parquet``).
    image : str, optional
        The column with the images; by default one that ``datasets`` declares as Image, or whose bytes are images.
    label : str, optional
        The column with the label; by default one named label, labels, target or y, or the only one with class names.
    key : str, optional
        The column with the keys, such as ``"id"`` or ``"image.path"``; by default the paths of the images, or a column
        of text named key, name, filename or id.
    fields : sequence of str, optional
        Columns to read; by default all.
    boxes : {"xyxy", "xywh"}, optional
        What the four numbers of a box are: corners, or corner and size (COCO). A column of boxes (``bbox``, or ``bbox``
        in ``objects``) is read as boxes only if it is stated.
    shape, dtype, channels : optional
        For pixels in the column ``image``: ``(height, width, channels)``, ``"uint8"``, and ``"RGB"`` or ``"BGR"``.
    allow_paths : bool
        Whether images that are stored as a path may be read from anywhere on this machine; by default only from
        beside the container.
    memory_nbytes : int
        Memory for unpacked pages and row groups, in each process.
    check : bool
        Whether checksums of pages are compared, where the file has them.

    Raises
    ------
    ArgumentError
        If an option names no column, or the folder has several splits.
    StoreFormatError
        If a file is damaged, a shard is missing, or the columns of two files differ.

    Notes
    -----
    Images are views of the mapped file where pages are not compressed, and else views of an unpacked page.
    """

    kind: ClassVar[str] = "parquet"
    takes_shards: ClassVar[bool] = True

    @takes_columns
    def __init__(
        self,
        path: PathLike,
        *,
        split: str | None = None,
        allow_paths: bool = False,
        memory_nbytes: int = _MEMORY_NBYTES,
        check: bool = True,
        **columns: object,
    ) -> None:
        if memory_nbytes < 0:
            raise ArgumentError(f"memory_nbytes must be at least 0, got {memory_nbytes}")
        defaults = {"split": None, "memory_nbytes": _MEMORY_NBYTES, "check": True}
        stated = {"split": split, "memory_nbytes": memory_nbytes, "check": check}
        location = self.locate(path)
        files = find_parquet_files(location.paths, split)
        given = {name: value for name, value in stated.items() if value != defaults[name]}
        folder = files[0].parent
        super().__init__(location, files=files, columns=columns, folder=folder, allow_paths=allow_paths, **given)
        if location.remote is not None:
            self.look_ahead = LOOK_AHEAD
        self._memory_nbytes, self._check = memory_nbytes, check
        self._index = read_footers(files)
        self._starts, self._file_of = self._index.starts, self._index.files
        self._set_plan(self._index.schema, self._starts[-1], self.open_files())

    @property
    def description(self) -> str:
        """What was found."""
        groups, count = counted(len(self._index.groups), "row group"), counted(len(self._files), "file")
        return f"parquet: {counted(len(self), 'row')} in {groups} of {count}, {self._plan.describe()}"

    @classmethod
    def recognises(cls, path: str) -> bool:
        """Recognise a Parquet file, or a folder of them that is no folder of images."""
        return holds_parquet(path)

    @classmethod
    def writer(  # type: ignore[override]  # its options are named
        cls,
        location: Location,
        schema: Schema,
        source: str,
        *,
        overwrite: bool = False,
        row_group_records: int = 100,
        shard_records: int | None = None,
    ) -> Writer[Prepared]:
        """Begin or resume a Parquet file, or a folder of them if ``shard_records`` is given.

        Parameters
        ----------
        location, schema, source, overwrite
            As for :meth:`Store.writer`.
        row_group_records : int
            Number of records of a row group; see :class:`.arrow.parquet_writer.ParquetWriter`.
        shard_records : int, optional
            Number of records of a file; see :class:`.arrow.parquet_shards.ParquetShardsWriter`.
        """
        from penstock.stores.arrow.parquet_shards import ParquetShardsWriter  # readers need not load them
        from penstock.stores.arrow.parquet_writer import ParquetWriter

        if shard_records is None:
            return ParquetWriter(location, schema, source, overwrite=overwrite, row_group_records=row_group_records)
        return ParquetShardsWriter(
            location,
            schema,
            source,
            overwrite=overwrite,
            shard_records=shard_records,
            row_group_records=row_group_records,
        )

    @classmethod
    def finished(cls, location: Location, schema: Schema, source: str) -> CommittedRecords | None:
        """Return what the finished file or folder holds, if it was written with this schema and source."""
        from penstock.stores.arrow.parquet_writer import read_written  # readers need not load it

        return read_written(location, schema, source)

    def open_files(self) -> ParquetReader:
        """Map the files."""
        is_remote, memory_nbytes = self.location.remote is not None, self._memory_nbytes
        chunks = ParquetChunks(
            self._files, self._index, memory_nbytes=memory_nbytes, check=self._check, is_remote=is_remote
        )
        return ParquetReader(chunks, self._plan.fields, self._image_files)

    def close_files(self, opened: ParquetReader) -> None:
        """Let go of unpacked pages; views stay readable."""
        opened.close()
