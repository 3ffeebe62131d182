"""Tables in memory as sources: dataframes of pandas, polars and others, and lists of dicts with paths of images.

They are read as the files of :mod:`.manifest` are, but their values have types, and NaN is a missing value. pandas is
not imported here; other libraries give their data to pyarrow.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Self

from penstock.errors import ArgumentError, PackError
from penstock.pack.sources.base import SourceOptions
from penstock.pack.sources.inference import INFERRED_FROM
from penstock.pack.sources.manifest import OPTIONS, ManifestSource, names_images
from penstock.registry import require
from penstock.sample import DatasetLike, Value
from penstock.stores.common.table_files import Table, TableRow
from penstock.transforms.inputs import is_pil

__all__ = ["FrameSource"]

_BATCH_ROWS: Final = 1024


class FrameTable(Table):
    """The rows of a dataframe or a list of dicts. A copy in a worker process has none: it is given rows."""

    def __init__(self, frame: Value) -> None:
        self.name, self.unit, self.is_text = type(frame).__name__, "row", False
        self._frame = frame if isinstance(frame, list) else _prepare(frame)
        self.categories = {} if isinstance(frame, list) else dict(_find_categories(self._frame))

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_frame": None}

    def rows(self) -> Iterator[TableRow]:
        """Yield the rows, in order; missing values are None."""
        for number, values in enumerate(_read_rows(self._frame)):
            if not isinstance(values, Mapping):
                raise PackError(f"row {number} must be a dict, as the first one is, got {type(values).__name__}")
            yield TableRow(number, {name: _simplify(name, value) for name, value in values.items()})


class FrameSource(ManifestSource):
    """The rows of a dataframe or a list of dicts, with the files that they name."""

    @classmethod
    def recognises(cls, src: object) -> bool:
        """A dataframe, by the protocols that it has; a list of dicts without images, some of them paths of images."""
        if isinstance(src, list):
            return names_images(src[:INFERRED_FROM])
        is_frame = hasattr(src, "__dataframe__") or hasattr(src, "iterrows")
        return (is_frame or hasattr(src, "__arrow_c_stream__")) and hasattr(src, "columns")

    @classmethod
    def open(cls, src: DatasetLike, options: SourceOptions) -> Self:
        """Look at every row, and at the files."""
        options.refuse_others(OPTIONS, "a list of dicts with paths" if isinstance(src, list) else "a dataframe")
        return cls(FrameTable(src), options, Path(options.root or "."))


def _prepare(frame: Value) -> Value:
    """Return the dataframe of pandas, with named indices as columns; another one as a table of Arrow.

    Raises ArgumentError if its columns have no names, or equal ones.
    """
    if hasattr(frame, "iterrows"):
        frame = frame.reset_index(drop=all(name is None for name in frame.index.names))
        names = list(frame.columns)
    else:
        arrow = require("pyarrow", extra="parquet", purpose="to read a dataframe")
        if hasattr(frame, "__arrow_c_stream__"):
            frame = arrow.table(frame)
        else:
            frame = require("pyarrow.interchange", extra="parquet").from_dataframe(frame)
        names = frame.column_names
    if len(set(names)) < len(names) or not all(isinstance(name, str) and name for name in names):
        raise ArgumentError(
            f"the columns of a dataframe must have different names, which are texts, got {names!r:.500}"
        )
    return frame


def _find_categories(frame: Value) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the columns of categories that are texts and have an order of their own, and the categories."""
    for name in frame.columns if hasattr(frame, "iterrows") else ():
        categories = list(getattr(frame[name].dtype, "categories", ()))
        if categories and all(isinstance(each, str) for each in categories):
            yield name, tuple(categories)
    for field in () if hasattr(frame, "iterrows") else frame.schema:
        if getattr(field.type, "ordered", False) and len(column := frame[field.name]):
            yield field.name, tuple(column.unify_dictionaries().chunk(0).dictionary.to_pylist())


def _read_rows(frame: Value) -> Iterator[object]:
    if isinstance(frame, list):
        yield from frame
    elif hasattr(frame, "iterrows"):
        for start in range(0, len(frame), _BATCH_ROWS):
            part = frame.iloc[start : start + _BATCH_ROWS]
            yield from part.astype(object).where(part.notna(), None).to_dict("records")
    else:
        for batch in frame.to_batches(max_chunksize=_BATCH_ROWS):
            yield from batch.to_pylist()


def _simplify(name: str, value: object) -> object:
    """Return a cell as a file would have it: NaN is missing, a path is text."""
    if isinstance(value, float | dt.datetime) and value != value:  # noqa: PLR0124  # NaN, NaT
        return None
    if is_pil(value):
        raise PackError(f"column {name!r} has pictures of Pillow; give an iterator of dicts instead of a dataframe")
    return os.fspath(value) if isinstance(value, os.PathLike) else value
