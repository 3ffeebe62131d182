"""The files of an HDF5 store: opened with h5py for as long as headers or a column are read, and mapped for records.

::

    survey, columns     h5py, opened and closed: no lock of the file stays
    records             the mapped file; or :class:`LibraryFiles`, what h5py has open in this process
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import PenstockError, StoreError, StoreFormatError
from penstock.sample import Array
from penstock.stores.common.mapped_files import MappedFiles
from penstock.stores.hdf5.rows import LocateRow, ReadRow, open_rows, read_by_library, read_shards
from penstock.stores.hdf5.survey import LIBRARY_ERRORS, FoundDataset, Survey, open_library_file, survey_file
from penstock.stores.hdf5.virtual_sources import VirtualSources

if TYPE_CHECKING:
    import h5py

__all__ = ["Hdf5Files"]


class Hdf5Files:
    """The files of one store.

    ``paths``: the files. ``url``: the store, for errors. ``swmr``: whether another process writes them in SWMR mode.
    None: :meth:`survey` finds out.
    """

    def __init__(self, paths: Sequence[Path], url: str, *, swmr: bool | None) -> None:
        self._paths, self._url = tuple(paths), url
        self._may_be_swmr = swmr is None
        self.is_swmr = bool(swmr)
        self._mapped = MappedFiles(self._paths)

    def survey(self, layout: str) -> list[Survey]:
        """Return the datasets of each file; ``layout`` is the name of the dataset of penstock's own layout.

        Raises StoreError if a file cannot be opened, or is damaged.
        """
        return [self._survey_one(number, layout) for number in range(len(self._paths))]

    def read_all(self, dataset: FoundDataset) -> Array:
        """Return all values of a dataset, those of its shards one after another.

        Raises one of :data:`LIBRARY_ERRORS`.
        """
        parts = []
        for number, count in zip(dataset.files, dataset.counts, strict=True):
            with self._opened(number) as file:
                stored = file[dataset.name]
                is_row = len(stored.shape) > len(dataset.shape)  # a column of MATLAB
                parts.append((stored[0] if is_row else stored)[:count])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def open_rows(self, dataset: FoundDataset) -> tuple[ReadRow, LocateRow | None]:
        """Return what reads the records of a dataset, and where they are; raises one of :data:`LIBRARY_ERRORS`."""
        shards: list[tuple[ReadRow, LocateRow | None]] = []
        for number in dataset.files:
            if self.is_swmr:
                shards.append((read_by_library(number, dataset.name), None))
                continue
            with self._opened(number) as file:
                content = self._mapped.ranges(number)
                shards.append(open_rows(file[dataset.name], number, dataset.form, dataset.dtype, content))
        return read_shards(shards, dataset.counts)

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
            with contextlib.suppress(StoreError):
                return self._survey(number, layout)
            self.is_swmr = False
            raise

    def _survey(self, number: int, layout: str) -> Survey:
        with self._opened(number) as file:
            try:
                sources = VirtualSources(self._paths[number].parent, self._open_file, LIBRARY_ERRORS)
                return survey_file(file, number, layout, sources)
            except PenstockError:
                raise
            except LIBRARY_ERRORS as error:
                raise StoreFormatError(f"{self._paths[number].name} is damaged: {error}", store=self._url) from error

    def _opened(self, number: int) -> contextlib.closing[h5py.File]:
        return contextlib.closing(self._open_file(self._paths[number]))

    def _open_file(self, path: Path) -> h5py.File:
        return open_library_file(path, self._url, swmr=self.is_swmr)
