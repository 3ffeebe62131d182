"""The files of an HDF5 store: opened with h5py for as long as headers or a column are read, and mapped for records.

::

    survey, columns     h5py, opened and closed: no lock of the file stays
    records             the mapped file; or :class:`OpenHdf5Files`, what h5py has open in this process
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import PenstockError, StoreError, StoreFormatError
from penstock.sample import Array
from penstock.stores.common.mapped_files import MappedFiles
from penstock.stores.hdf5.rows import LibraryRows, RowReader, ShardRows, open_rows
from penstock.stores.hdf5.survey import (
    LIBRARY_ERRORS,
    FoundDataset,
    LibraryFile,
    Survey,
    open_library_file,
    survey_file,
)

__all__ = ["Hdf5Files", "OpenHdf5Files"]


class OpenHdf5Files:
    """Files that this process keeps open with h5py; each is opened when it is first needed."""

    def __init__(self, paths: Sequence[Path], url: str, *, swmr: bool) -> None:
        self._paths, self._url, self._swmr = paths, url, swmr
        self._files: dict[int, LibraryFile] = {}
        self._datasets: dict[tuple[int, str], Any] = {}

    def get_dataset(self, number: int, name: str) -> Any:
        """An ``h5py.Dataset``; looking one up takes as long as reading a record.

        Of a file in SWMR mode none is kept open: HDF5 2.0 reads wrong chunks of a dataset that another store refreshes.
        """
        if self._swmr:
            return self.get(number)[name]
        found = self._datasets.get((number, name))
        if found is None:
            found = self._datasets[number, name] = self.get(number)[name]
        return found

    def get(self, number: int) -> LibraryFile:
        """An ``h5py.File``."""
        found = self._files.get(number)
        if found is None:
            opened = open_library_file(self._paths[number], self._url, swmr=self._swmr)
            found = self._files.setdefault(number, opened)  # another thread may have been faster
        return found

    def close(self) -> None:
        """Close them."""
        self._datasets.clear()
        while self._files:
            self._files.popitem()[1].close()


class Hdf5Files:
    """The files of one store.

    Parameters
    ----------
    paths : sequence of Path
        The files.
    url : str
        The store, for errors.
    swmr : bool, optional
        Whether another process writes them in SWMR mode. None: :meth:`survey` finds out.
    """

    def __init__(self, paths: Sequence[Path], url: str, *, swmr: bool | None) -> None:
        self._paths, self._url = tuple(paths), url
        self._may_be_swmr = swmr is None
        self.is_swmr = bool(swmr)
        self._mapped = MappedFiles(self._paths)

    def open(self) -> OpenHdf5Files:
        """Files to be kept open; none is opened yet."""
        return OpenHdf5Files(self._paths, self._url, swmr=self.is_swmr)

    def survey(self, layout: str) -> list[Survey]:
        """The datasets of each file; ``layout`` is the name of the dataset of penstock's own layout.

        Raises
        ------
        StoreError
            If a file cannot be opened, or is damaged.
        """
        return [self._survey_one(number, layout) for number in range(len(self._paths))]

    def read_all(self, dataset: FoundDataset) -> Array:
        """All values of a dataset, those of its shards one after another; raises one of :data:`LIBRARY_ERRORS`."""
        parts = []
        for number, count in zip(dataset.files, dataset.counts, strict=True):
            with self._opened(number) as file:
                stored = file[dataset.name]
                is_row = len(stored.shape) > len(dataset.shape)  # a column of MATLAB
                parts.append((stored[0] if is_row else stored)[:count])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def open_rows(self, dataset: FoundDataset) -> RowReader:
        """What reads the records of a dataset; raises one of :data:`LIBRARY_ERRORS`."""
        shards: list[RowReader] = []
        for number in dataset.files:
            if self.is_swmr:
                shards.append(LibraryRows(number, dataset.name))
                continue
            with self._opened(number) as file:
                whole = self._mapped.whole(number)
                shards.append(open_rows(file[dataset.name], number, dataset.form, dataset.dtype, whole))
        return shards[0] if len(shards) == 1 else ShardRows(shards, dataset.counts)

    def unmap(self) -> None:
        """Give up the maps; a file is unmapped when the last view of it is deleted."""
        self._mapped = MappedFiles(self._paths)

    def _survey_one(self, number: int, layout: str) -> Survey:
        try:
            return self._survey(number, layout)
        except StoreError:
            if not self._may_be_swmr or self.is_swmr:
                raise
            self.is_swmr = True  # a file that a process writes in SWMR mode can only be opened so
            try:
                return self._survey(number, layout)
            except StoreError:
                self.is_swmr = False
            raise

    def _survey(self, number: int, layout: str) -> Survey:
        with self._opened(number) as file:
            try:
                return survey_file(file, number, layout)
            except PenstockError:
                raise
            except LIBRARY_ERRORS as error:
                raise StoreFormatError(f"{self._paths[number].name} is damaged: {error}", store=self._url) from error

    @contextlib.contextmanager
    def _opened(self, number: int) -> Iterator[LibraryFile]:
        file = open_library_file(self._paths[number], self._url, swmr=self.is_swmr)
        try:
            yield file
        finally:
            file.close()
