"""NumPy arrays as a dataset: sample ``i`` is row ``i`` of each. A store is decoded into such arrays once.

::

    budget? ──> SharedArrays ──> threads: StoreDataset.fill(rows) ──> sealed arrays ──> ArrayDataset
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from penstock import stores
from penstock.datasets.base import Dataset, choose_rows_per_fill
from penstock.datasets.shared_arrays import SharedArrays
from penstock.datasets.store.dataset import StoreDataset
from penstock.errors import ArgumentError
from penstock.progress import ProgressReporter, make_reporter
from penstock.sample import Array, ArraySpec, Index, Sample, SampleKeys, Tree, Value
from penstock.stores.base import Store
from penstock.system.control_group import count_usable_cores
from penstock.trace import stage

__all__ = ["ArrayDataset"]

MAX_NBYTES: Final = 2 << 30
"""The default budget of decoded records."""

_ROWS: Final = 64


class ArrayDataset(Dataset[Sample]):
    """Rows of arrays of one length; fills batches without building samples.

    Parameters
    ----------
    *arrays : array_like
        Samples are tuples of their rows.
    **fields : array_like
        Samples are dicts of their rows. Give either positional or named arrays. Arrays and memory maps are not copied.

    Raises
    ------
    ArgumentError
        If there are no arrays, or both kinds, or their lengths differ.
    """

    def __init__(self, *arrays: object, **fields: object) -> None:
        if bool(arrays) == bool(fields):
            raise ArgumentError("ArrayDataset needs arrays, either by position (tuples) or by name (dicts)")
        self._shared: SharedArrays | None = None
        self.arrays: dict[str, Array] | tuple[Array, ...]
        self.arrays = (
            {name: np.asanyarray(array) for name, array in fields.items()}
            if fields
            else tuple(map(np.asanyarray, arrays))
        )
        lengths = [array.shape[:1] for array in self._columns()]
        if () in lengths or len(set(lengths)) > 1:
            raise ArgumentError(f"Size mismatch between arrays: shapes {[array.shape for array in self._columns()]}")

    @classmethod
    def from_store(
        cls,
        store: Store | str | os.PathLike[str],
        size: int | tuple[int, int] | None = None,
        fields: str | Sequence[str] | Mapping[str, str] | None = None,
        *,
        transform: object = None,
        max_nbytes: int = MAX_NBYTES,
        workers: int | None = None,
        progress: bool | Callable[[int, int], None] | None = None,
    ) -> Self:
        """Decode all records of a small store into memory, once.

        Parameters
        ----------
        store : Store, str or path
            The store.
        size : int or (int, int), optional
            Height and width to which images are resized; an int for both. None if all images of a pack have one size.
        fields : str, sequence or mapping of str, optional
            The structure of a sample, as for :class:`StoreDataset`; by default the image, and the label if there is
            one. They must have one shape.
        transform : Pipeline or list of ops, optional
            In place of ``size``. It is applied once, to each record, with the random numbers of epoch 0.
        max_nbytes : int
            The budget in bytes. More is refused before memory is allocated.
        workers : int, optional
            Number of threads that decode; by default one for each core.
        progress : bool or callable, optional
            True: a bar on the terminal. A callable gets the numbers of records done and of all.

        Returns
        -------
        ArrayDataset
            Its arrays are read-only, images uint8 HWC RGB unless ``transform`` makes something else. They are in shared
            memory: worker processes do not copy them, also if they are not forked.

        Raises
        ------
        ArgumentError
            If records have no common shape, or the budget is too small.
        BatchMemoryError
            If there is no memory.
        StoreError, DecodeError
            If a record cannot be read or decoded; names store, key and index.
        """
        rows, shared = decode_store(store, size, fields, transform, max_nbytes, workers, progress)
        dataset = cls(**rows) if isinstance(rows, dict) else cls(*rows)
        dataset._shared = shared  # noqa: SLF001  # a constructor of the class
        return dataset

    def __getstate__(self) -> dict[str, Value]:
        state = self.__dict__.copy()
        if self._shared is not None:
            state["arrays"] = list(self.arrays) if isinstance(self.arrays, dict) else None
        return state

    def __setstate__(self, state: dict[str, Value]) -> None:
        self.__dict__.update(state)
        if self._shared is not None:
            names, arrays = state["arrays"], self._shared.arrays
            self.arrays = tuple(arrays) if names is None else dict(zip(names, arrays, strict=True))

    def _columns(self) -> list[Array]:
        return list(self.arrays.values() if isinstance(self.arrays, dict) else self.arrays)

    def __len__(self) -> int:
        return len(self._columns()[0])

    def __getitem__(self, index: Index) -> Sample:
        if isinstance(self.arrays, dict):
            return {name: array[index] for name, array in self.arrays.items()}
        return tuple(array[index] for array in self.arrays)

    def spec(self) -> Tree | None:
        """Return the shapes and dtypes of a row; None if an array holds text or objects."""
        if any(array.dtype.kind in "OSUV" for array in self._columns()):
            return None
        if isinstance(self.arrays, dict):
            return {name: ArraySpec(array.shape[1:], array.dtype) for name, array in self.arrays.items()}
        return tuple(ArraySpec(array.shape[1:], array.dtype) for array in self.arrays)

    @property
    def rows_per_fill(self) -> int:
        """Most rows of a call of :meth:`fill`: many, because rows are only copied."""
        return choose_rows_per_fill(self.spec())

    def fill(
        self, indices: NDArray[np.int64], out: Tree, keys: SampleKeys, rows: NDArray[np.int64] | None = None
    ) -> None:
        """Copy rows ``indices``; see :class:`~penstock.datasets.base.Filler`."""
        target: slice | NDArray[np.int64] = slice(len(keys)) if rows is None else rows
        names = self.arrays if isinstance(self.arrays, dict) else range(len(self.arrays))
        with stage("read", len(keys)):
            for name in names:
                out[name][target] = self.arrays[name][indices]  # type: ignore[index]  # names are keys or positions alike


def decode_store(
    store: Store | str | os.PathLike[str],
    size: int | tuple[int, int] | None,
    fields: object,
    transform: object,
    max_nbytes: int,
    workers: int | None,
    progress: bool | Callable[[int, int], None] | None,
) -> tuple[Tree, SharedArrays]:
    """The rows of a store in the structure of a sample, and the memory that holds them.

    See :meth:`penstock.ArrayDataset.from_store` for parameters and what is raised.
    """
    with ExitStack() as stack:
        opened = store if isinstance(store, Store) else stack.enter_context(stores.open(store))
        dataset = StoreDataset(opened, _choose_fields(opened, fields), _make_transform(opened, size, transform))
        spec, count = dataset.spec(), len(dataset)
        if spec is None:
            raise ArgumentError(f"records must have one shape to be kept as arrays: {dataset.why_not_filled()}")
        names = list(spec) if isinstance(spec, Mapping) else list(range(len(spec))) if isinstance(spec, tuple) else []
        specs = [spec[name] for name in names]
        _refuse_spec(spec, specs)
        _refuse_over_budget(specs, count, max_nbytes)
        shared = SharedArrays(specs, count)
        out = dict(zip(names, shared.arrays, strict=True)) if isinstance(spec, Mapping) else tuple(shared.arrays)
        report = make_reporter(progress, "decoding", stack)
        _fill(dataset, out, count, workers or count_usable_cores(), report)
        shared.seal()
        return out, shared


def _choose_fields(store: Store, fields: Value) -> Value:
    """Return the default: the image and, if there is one, the label."""
    if fields is not None:
        return (fields,) if isinstance(fields, str) else tuple(fields) if isinstance(fields, list) else fields
    images = [name for name in store.schema.blobs if store.schema[name].is_image]
    if len(images) != 1:
        raise ArgumentError(f"fields must name what is kept: the store has {len(images)} fields of images")
    return (*images, *(["label"] if "label" in store.schema else []))


def _make_transform(store: Store, size: int | tuple[int, int] | None, transform: Value) -> Value:
    from penstock import transforms as T  # imports the native core

    if transform is not None:
        if size is not None:
            raise ArgumentError("size is for images without a transform; put T.Resize(size) into the transform")
        return transform
    if size is None:
        size = _find_common_size(store)
    return [T.Decode(), T.Resize((size, size) if isinstance(size, int) else size)]


def _find_common_size(store: Store) -> tuple[int, int]:
    """Height and width of all images, by the columns of a pack."""
    if "width" in store.schema and "height" in store.schema and len(store):
        heights, widths = store.column("height"), store.column("width")
        if heights.min() == heights.max() and widths.min() == widths.max():
            return int(heights[0]), int(widths[0])
    raise ArgumentError(
        "size must be given, as (height, width): the images have different sizes, or the store has no columns "
        "'width' and 'height' that say them"
    )


def _refuse_spec(spec: Tree, specs: Sequence[object]) -> None:
    if not specs or not all(isinstance(each, ArraySpec) for each in specs):
        raise ArgumentError(
            f"fields must be names, or a mapping of names, of fields of one shape; their shapes are {spec!r:.300}"
        )


def _refuse_over_budget(specs: Sequence[ArraySpec], count: int, max_nbytes: int) -> None:
    nbytes = sum(spec.nbytes for spec in specs) * count
    if nbytes > max_nbytes:
        shapes = ", ".join(f"{spec.dtype} {spec.shape}" for spec in specs)
        raise ArgumentError(
            f"{count} decoded records of {shapes} need {nbytes} bytes, and max_nbytes is {max_nbytes}; give a smaller "
            "size, a larger max_nbytes, or use a StoreDataset, which decodes batch by batch"
        )


def _fill(dataset: StoreDataset, out: Tree, count: int, workers: int, report: ProgressReporter) -> None:
    def fill(first: int) -> int:
        indices = np.arange(first, min(first + _ROWS, count), dtype=np.int64)
        dataset.fill(indices, out, SampleKeys(0, 0, indices), indices)
        return len(indices)

    done = 0
    with ThreadPoolExecutor(workers, thread_name_prefix="penstock-decode") as pool:
        try:
            for filled in pool.map(fill, range(0, count, _ROWS)):
                done += filled
                report(done, count, 0)
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
