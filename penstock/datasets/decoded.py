"""Decodes a store into arrays, once: what ``ArrayDataset.from_store`` does.

::

    budget? ──> SharedArrays ──> threads: StoreDataset.fill(rows) ──> sealed arrays
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Final

import numpy as np

from penstock import stores
from penstock.datasets.shared_arrays import SharedArrays
from penstock.datasets.store.dataset import StoreDataset
from penstock.errors import ArgumentError
from penstock.progress import ProgressReporter, make_reporter
from penstock.sample import ArraySpec, SampleKeys, Tree, Value
from penstock.stores.base import Store
from penstock.system.control_group import count_usable_cores

__all__ = ["MAX_NBYTES", "decode_store"]

MAX_NBYTES: Final = 2 << 30
"""The default budget of decoded records."""

_ROWS: Final = 64


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
    """By default the image and, if there is one, the label."""
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
