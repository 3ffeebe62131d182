"""The kinds that are compared: containers of `golden_containers`, and what `pack`, transforms and the viewer take.

Text formats name paths of pictures that lie beside them. Each writer returns what `ps.open`, `ps.pack` or the reader of
predictions takes.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.foreign.golden_cases import PICTURES, Column
from tests.foreign.golden_containers import (
    CannotHold,
    Columns,
    flatten,
    is_encoded,
    make_dataset,
    rows_of,
    to_json,
    write_arrow,
    write_beton,
    write_dataset,
    write_datum,
    write_gridfs,
    write_hdf5,
    write_lance,
    write_litdata,
    write_litdata_tuples,
    write_mds,
    write_mongodb,
    write_parquet,
    write_pickles,
    write_recordio,
    write_tar,
    write_tfrecord,
    write_words,
)

__all__ = ["KINDS", "Kind", "name_pictures"]


@dataclass(frozen=True)
class Kind:
    """A kind of container: how it is written, and how it is read: ``open``, ``pack``, ``move`` or ``predict``."""

    write: Callable[[Path, Columns], Any]
    way: str = "open"
    needs: str = ""


def refuse_bytes(columns: Columns) -> None:
    """For text formats."""
    if any(isinstance(value, bytes) for column in flatten(columns, ".").values() for value in column):
        raise CannotHold("bytes")


def write_jsonl(folder: Path, columns: Columns) -> str:
    """A line of JSON for each record; encoded images are paths of pictures."""
    columns = name_pictures(columns)
    lines = [to_json(row) for row in rows_of(columns)]
    (folder / "case.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(folder / "case.jsonl")


def write_csv(folder: Path, columns: Columns) -> str:
    """Rows of CSV; lists and dicts are JSON, and encoded images paths of pictures."""
    columns = name_pictures(columns)
    with (folder / "case.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(columns)
        for row in rows_of(columns):
            table.writerow(
                to_json(value) if isinstance(value, list | dict | np.ndarray) else value for value in row.values()
            )
    return str(folder / "case.csv")


def name_pictures(columns: Columns) -> Columns:
    """Columns of encoded images as paths of them, as a table has them; the files are beside it."""
    found: dict[str, Column] = {}
    for number, (name, column) in enumerate(columns.items()):
        if all(map(is_encoded, column)):
            found[name] = [path.replace("/p", f"/{'abcdefgh'[number]}") for path in PICTURES]
        else:
            found[name] = column
    refuse_bytes(found)
    return found


def make_frame(folder: Path, columns: Columns) -> Any:
    """A dataframe of pandas; encoded images are paths of pictures."""
    import pandas as pd  # type: ignore[import-untyped]  # it has no types of its own

    return pd.DataFrame({name: list(column) for name, column in name_pictures(columns).items()})


def make_rows(folder: Path, columns: Columns) -> Any:
    """A list of dicts."""
    return [*rows_of(columns)]


def make_iterator(folder: Path, columns: Columns) -> Any:
    """An iterator of dicts."""
    return rows_of(columns)


def make_columns(folder: Path, columns: Columns) -> Any:
    """A mapping of columns: arrays where all values have one shape."""
    found: dict[str, Any] = {}
    for name, column in columns.items():
        is_array = isinstance(column[0], np.ndarray) and len({value.shape for value in column}) == 1
        is_number = all(isinstance(value, int | float) for value in column)
        found[name] = np.stack(column) if is_array else np.array(column) if is_number else list(column)
    return found


def make_tuples(folder: Path, columns: Columns) -> Any:
    """A list of tuples."""
    return [*zip(*columns.values(), strict=True)]


KINDS: Final = {
    "parquet": Kind(write_parquet),
    "arrow": Kind(write_arrow),
    "lance": Kind(write_lance, needs="lance"),
    "huggingface": Kind(write_dataset, needs="datasets"),
    "hdf5": Kind(write_hdf5),
    "mongodb": Kind(write_mongodb, needs="pymongo"),
    "gridfs": Kind(write_gridfs, needs="pymongo"),
    "mds": Kind(write_mds),
    "litdata": Kind(write_litdata),
    "beton": Kind(write_beton),
    "tfrecord": Kind(write_tfrecord),
    "tar": Kind(write_tar),
    "pickled dicts": Kind(lambda folder, columns: write_pickles(folder, [*rows_of(columns)])),
    "pickled tuples": Kind(lambda folder, columns: write_pickles(folder, [*zip(*columns.values(), strict=True)])),
    "litdata tuples": Kind(write_litdata_tuples),
    "lmdb-words": Kind(write_words),
    "lmdb-datum": Kind(write_datum),
    "recordio": Kind(write_recordio),
    "pack rows": Kind(make_rows, "pack"),
    "pack iterator": Kind(make_iterator, "pack"),
    "pack columns": Kind(make_columns, "pack"),
    "pack tuples": Kind(make_tuples, "pack"),
    "pack huggingface": Kind(lambda folder, columns: make_dataset(columns), "pack", needs="datasets"),
    "pack pandas": Kind(make_frame, "pack", needs="pandas"),
    "pack parquet": Kind(lambda folder, columns: write_parquet(folder, name_pictures(columns)), "pack"),
    "pack jsonl": Kind(write_jsonl, "pack"),
    "pack csv": Kind(write_csv, "pack"),
    "transforms": Kind(make_rows, "move"),
    "predictions": Kind(write_jsonl, "predict"),
}
"""What is compared, by name, in the order of the summary."""
