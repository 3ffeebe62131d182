"""Containers that other libraries wrote, read as they lie: each record equals what its `expected.json` says.

The containers are outside the repository (`foreign` in the folder of collections); the tests are skipped without them.
`options.json` has the options that only people know: shapes, channel orders, names.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

import penstock as ps
from penstock import transforms as T

OPTIONS: Final[dict[str, dict[str, Any]]] = json.loads((Path(__file__).parent / "options.json").read_text())
FOLDERS: Final[tuple[str, ...]] = (
    "arrow-hf-save-to-disk",
    "ffcv",
    "hdf5-jpeg",
    "hdf5-pcam",
    "hdf5-pixels",
    "hdf5-pixels-gzip",
    "litdata",
    "lmdb-caffe-datum-encoded",
    "lmdb-caffe-datum-raw",
    "lmdb-names",
    "lmdb-pairs",
    "lmdb-pickle-array-numpy1-p4",
    "lmdb-pickle-array-numpy2-p4",
    "lmdb-pickle-array-numpy2-p5",
    "lmdb-pickle-index-dir-p2",
    "lmdb-pickle-index-dir-p4",
    "lmdb-pickle-index-file-p4",
    "mds",
    "parquet-binary",
    "parquet-hf",
    "parquet-struct",
    "recordio-detection",
    "recordio-insightface",
    "recordio-multilabel",
    "recordio-no-index",
    "recordio-scalar",
    "recordio-split",
    "tfrecord-boxes",
    "tfrecord-classes",
    "tfrecord-gzip",
    "webdataset-gnu-tar",
    "webdataset-gz",
    "webdataset-shards",
)


def options_of(name: str) -> dict[str, Any]:
    """The options of a container; lists are tuples, as people write shapes."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in OPTIONS.get(name, {}).items()}


def container_of(folder: Path, expected: dict[str, Any]) -> str | list[str]:
    """What ``ps.open`` takes."""
    container = expected["container"]
    return [str(folder / each) for each in container] if isinstance(container, list) else str(folder / container)


@pytest.fixture(params=FOLDERS)
def folder(request: pytest.FixtureRequest, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a container, copied: indexes may be written beside it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = data_dir / "foreign" / request.param
    if not source.is_dir():
        pytest.skip(f"no container {request.param} in {source.parent}")
    for path in source.rglob("*"):
        target = tmp_path / request.param / path.relative_to(source)
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    return tmp_path / str(request.param)


def check_record(record: ps.Record, expected: dict[str, Any]) -> None:
    """Compare a record with its entry."""
    fields = record.fields
    key = next((expected[name] for name in ("key", "name", "image") if name in expected), None)
    assert record.key.removeprefix("./") == str(key).removeprefix("./")
    if "sha256" in expected:
        assert len(fields["image"]) == expected.get("nbytes", len(fields["image"]))
        assert hashlib.sha256(fields["image"]).hexdigest() == expected["sha256"]
    else:
        pixels = fields["image"]
        assert pixels.dtype == np.uint8
        assert list(pixels.shape) == expected["shape"]
        assert hashlib.sha256(pixels.tobytes()).hexdigest() == expected["rgb_sha256"]
    if expected["label"] is None:
        assert fields.get("label") is None or math.isnan(fields["label"])
    else:
        np.testing.assert_allclose(fields["label"], expected["label"], rtol=1e-6)
    for name in ("boxes", "classes", "box", "landmarks"):
        if name in expected:
            np.testing.assert_allclose(
                np.asarray(fields[name], np.float64).ravel(), np.array(expected[name], np.float64).ravel(), atol=1e-3
            )


def test_every_record_is_what_was_written(folder: Path) -> None:
    """Key, image and targets of every record, in order, equal those of the container's own library."""
    expected = json.loads((folder / "expected.json").read_text())

    with ps.open(container_of(folder, expected), **options_of(folder.name)) as store:
        assert len(store) == expected["count"]
        for record, entry in zip(store, expected["records"], strict=True):
            check_record(record, entry)
        if "label" in store.schema and "class_names" in expected and store.schema["label"].classes:
            assert list(store.schema["label"].classes) == expected["class_names"]


def test_records_are_read_in_any_order_and_process(folder: Path) -> None:
    """A batch of records in another order, from the store that a worker unpickles, is the same."""
    expected = json.loads((folder / "expected.json").read_text())
    order = np.random.default_rng(5).permutation(expected["count"])[:16].tolist()

    with ps.open(container_of(folder, expected), **options_of(folder.name)) as store:
        pickled = pickle.dumps(store)
    with pickle.loads(pickled) as store:
        records = store.read(order)

    assert [record.index for record in records] == order
    for record in records:
        check_record(record, expected["records"][record.index])


def test_a_container_says_what_was_found(folder: Path) -> None:
    """`penstock info` can say in words what was detected."""
    expected = json.loads((folder / "expected.json").read_text())

    with ps.open(container_of(folder, expected), **options_of(folder.name)) as store:
        assert store.description
        assert os.fspath(folder) not in store.description


def test_samples_are_shown_before_and_after_augmentation(folder: Path) -> None:
    """A sheet has two tiles for each record of every container; arrays that look like targets are given a kind."""
    expected = json.loads((folder / "expected.json").read_text())
    augment = [T.Decode(), T.Letterbox(64), T.HorizontalFlip()]

    with ps.open(container_of(folder, expected), **options_of(folder.name)) as store:
        kinds = {name: kind for name, kind in {"box": "boxes", "landmarks": None}.items() if name in store.schema}
        sheet = ps.show(store, 2, augment=augment, tile=200, kinds=kinds, columns=2)

    assert sheet.width == 14 + 2 * (200 + 4 + 200 + 14)
