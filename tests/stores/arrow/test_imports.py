"""What reading columns imports: no library that takes seconds in each worker and is not needed."""

from __future__ import annotations

import datetime as dt
import decimal
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pandas")

_READ: Final = """
import sys
import penstock as ps
from penstock.sheets.info import info
store = ps.open(sys.argv[1])
records = store.read([1, 0])
for name, field in store.schema.fields.items():
    if not field.is_blob and field.kind != "json" and (field.array is None or field.array.shape):
        store.column(name)
info(store), store.description, store.fingerprint(), list(store.keys())
next(iter(ps.DataLoader(ps.StoreDataset(store, ["count", "score", "pair"]), batch_sampler=[[0]])))
print({name for name in ("pandas", "datasets", "scipy", "matplotlib", "pyarrow.dataset") if name in sys.modules})
"""


def make_columns() -> dict[str, Any]:
    """A column of each type, with nulls."""
    moment = dt.datetime(2024, 5, 6, 7, 8, 9, 10, tzinfo=dt.UTC)
    return {
        "image": pa.array([b"\xff\xd8\xff1", None]),
        "fixed": pa.array([b"1234", None], pa.binary(4)),
        "count": pa.array([3, None]),
        "half": pa.array([0.5, None], pa.float32()),
        "score": pa.array([0.5, None]),
        "flag": pa.array([True, None]),
        "word": pa.array(["a", None]),
        "words": pa.array(["a", None]).dictionary_encode(),
        "codes": pa.array([7, None]).dictionary_encode(),
        "nothing": pa.nulls(2),
        **{f"at_{unit}": pa.array([moment, None], pa.timestamp(unit)) for unit in ("ms", "us", "ns")},
        "at_zone": pa.array([moment, None], pa.timestamp("ns", "Europe/Berlin")),
        "day": pa.array([moment.date(), None]),
        "time": pa.array([moment.time(), None], pa.time64("ns")),
        "wait": pa.array([dt.timedelta(seconds=3), None], pa.duration("ns")),
        "price": pa.array([decimal.Decimal("1.5"), None]),
        "pair": pa.array([[1, 2], None], pa.list_(pa.int64(), 2)),
        "list": pa.array([[1.5, None], None]),
        "nested": pa.array([[[1, 2], [3, 4]], None], pa.list_(pa.list_(pa.float32()))),
        "flags": pa.array([[True], None]),
        "times": pa.array([[moment], None], pa.list_(pa.timestamp("ns"))),
        "struct": pa.array([{"at": moment, "n": 1}, None], pa.struct([("at", pa.timestamp("ns")), ("n", pa.int8())])),
    }


@pytest.mark.parametrize("kind", ["parquet", "arrow", "stream"])
def test_reading_columns_does_not_import_pandas(tmp_path: Path, kind: str) -> None:
    """Neither records nor columns, batches or descriptions import what pyarrow would, whatever the types are."""
    table, path = pa.table(make_columns()), tmp_path / f"rows.{'arrow' if kind == 'stream' else kind}"
    if kind == "parquet":
        from pyarrow import parquet

        parquet.write_table(table, path)
    else:
        make_writer = pa.ipc.new_stream if kind == "stream" else pa.ipc.new_file
        with pa.OSFile(str(path), "wb") as file, make_writer(file, table.schema) as writer:
            writer.write_table(table)

    done = subprocess.run([sys.executable, "-c", _READ, str(path)], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "set()\n", "")
