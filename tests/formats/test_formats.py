"""Files that every version of every format wrote are read, whole and right; a format changes only with new files."""

from __future__ import annotations

import importlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock import _native
from penstock.doctor.reports import json_report
from penstock.stores.common.seek_table_file import SeekTableFile, seek_table_path
from tests.formats.loaders import make_loader, take
from tests.formats.writing import describe_records

HERE = Path(__file__).parent
PACKAGE = Path(ps.__file__).parent

FORMATS: dict[str, dict[object, str]] = {
    "datasets/mixture/streams.py _VERSION": {1: "state-1"},
    "datasets/splits/splits.py _FORMAT": {"penstock-split": "split-1"},
    "datasets/streams/division.py VERSION": {1: "state-1"},
    "doctor/reports/json_report.py FORMAT": {"penstock-doctor": "doctor-report-1"},
    "doctor/reports/json_report.py VERSIONS": {1: "doctor-report-1", 2: "doctor-report-2"},
    "loader/state.py VERSION": {1: "state-1"},
    "stores/common/seek_table_file.py _MAGIC": {b"penstock.index\r\n": "decode-index-1"},
    "stores/common/seek_table_file.py _VERSION": {1: "decode-index-1"},
    "stores/hdf5/format.py _VERSION": {1: "tables-1"},
    "stores/lmdb_pack/blocks.py _MAGIC": {b"PSB\x01": "pack-2"},
    "stores/lmdb_pack/format.py _MAGIC": {b"PSR\x01": "pack-1"},
    "stores/lmdb_pack/manifest.py _FORMAT": {"penstock sharded pack": "sharded-pack-1"},
    "stores/lmdb_pack/manifest.py _VERSION": {1: "sharded-pack-1"},
    "stores/lmdb_pack/meta.py FORMAT": {"penstock-lmdb": "pack-1"},
    "stores/lmdb_pack/meta.py VERSIONS": {1: "pack-1", 2: "pack-2", 3: "pack-3"},
    "stores/lmdb_pack/page_hashes.py _MAGIC": {b"PSSEAL\x01\n": "pack-1"},
    "stores/kinds.py MANIFEST_MAGIC": {b'{"format": "penstock sharded pack"': "sharded-pack-1"},
    "stores/tar/fields.py _VERSION": {1: "tables-1"},
    "torch/loader/state.py VERSION": {1: "state-1"},
}
"""The versions of each format that are read, by the constant that says them, and the files of each."""

ELSEWHERE = {
    "stores/common/file_writer.py _JOURNAL_VERSION": "journals: tests/stores/written_before",
    "stores/recordio/store.py _VERSION": "a cache that is made again",
    "stores/tar/store.py _VERSION": "a cache that is made again",
    "stores/tfrecord/store.py _VERSION": "a cache that is made again",
    "stores/arrow/files.py _MAGIC": "another program's format",
    "stores/arrow/parquet_files.py _MAGIC": "another program's format",
    "stores/arrow/parquet_writer.py _MAGIC": "another program's format",
    "stores/common/lmdb/pages.py _DATA_VERSION": "another program's format",
    "stores/common/lmdb/pages.py _MAGIC": "another program's format",
    "stores/kinds.py _LMDB_MAGIC": "another program's format",
    "stores/kinds.py _RECORDIO_MAGIC": "another program's format",
    "stores/recordio/format.py _MAGIC": "another program's format",
    "stores/foreign_shards/beton.py VERSION": "another program's format",
    "stores/foreign_shards/litdata.py _MAGIC": "another program's format",
    "stores/foreign_shards/mds.py _VERSION": "another program's format",
    "transforms/decoding/image_formats.py _MAGIC": "another program's format",
}
"""The other constants of this kind, and why they have no files here."""

PACKS = ["coefficients-1", "pack-1", "pack-1-first-writer", "pack-2", "pack-3", "sharded-pack-1", "tables-1"]
STATES = ["state-1", "state-1-early", "state-1-first-loader"]


def extract(name: str, folder: Path) -> Path:
    """The files of a name, in a folder of their own."""
    shutil.unpack_archive(HERE / f"{name}.zip", folder / name)
    return folder / name


def find_constants() -> set[str]:
    """The constants of the package that name a version or a mark of a file."""
    pattern = re.compile(r"^(_?(?:[A-Z]+_)*(?:VERSIONS?|MAGIC|FORMAT))(?:: Final)? = ", re.MULTILINE)
    return {
        f"{path.relative_to(PACKAGE).as_posix()} {name}"
        for path in PACKAGE.rglob("*.py")
        for name in pattern.findall(path.read_text())
    } - {"stores/remote/fsspec_library.py _VERSIONS"}  # names of keys


def test_every_format_is_listed() -> None:
    """A constant that names a version of a file has files here, or a reason why not."""
    assert find_constants() == FORMATS.keys() | ELSEWHERE.keys()


@pytest.mark.parametrize("constant", FORMATS)
def test_every_version_has_files(constant: str) -> None:
    """A format constant is raised together with files of the new version: see README.md."""
    path, name = constant.split(" ")
    if path.startswith("torch/"):
        pytest.importorskip("torch")
    value = getattr(importlib.import_module(f"penstock.{path.removesuffix('.py').replace('/', '.')}"), name)

    assert list(FORMATS[constant]) == (list(value) if isinstance(value, tuple) else [value])
    assert [files for files in FORMATS[constant].values() if not (HERE / f"{files}.zip").is_file()] == []


def test_all_files_are_read() -> None:
    """No file lies here that no test of this module reads."""
    others = ["decode-index-1", "decode-index-1-rows", "doctor-report-1", "doctor-report-2", "split-1"]

    assert sorted(path.stem for path in HERE.glob("*.zip")) == sorted([*PACKS, *STATES, *others])


@pytest.mark.parametrize("name", PACKS)
def test_stores_hold_what_was_written(name: str, tmp_path: Path) -> None:
    """Every field of every record, the columns, and the checksums."""
    stores = [Path(str(path).removesuffix(".json")) for path in sorted(extract(name, tmp_path).glob("*.json"))]

    assert stores
    for path in stores:
        if path.suffix == ".h5":
            pytest.importorskip("h5py")
        if path.suffix == ".parquet":
            pytest.importorskip("pyarrow")
        expected = json.loads(Path(f"{path}.json").read_text())
        assert describe_records(path) == expected
        assert ps.verify(path).ok
        with ps.open(path) as store:
            for field in {"label", "count"} & set(store.schema.fields):
                if None not in (held := [record[field] for record in expected]):
                    assert store.column(field).tolist() == held


def test_records_of_coefficients_give_the_pixels_of_their_files(tmp_path: Path) -> None:
    """The decoder takes what is stored, and the version that is written today has files here."""
    versions = set()
    with ps.open(extract("coefficients-1", tmp_path) / "photos.lmdb") as store:
        for stored, record in zip(store.read_stored(range(3)), store.read(range(3)), strict=True):
            kept, file = (bytes(each.fields["image"]) for each in (stored, record))
            assert (_native.decode(kept) == _native.decode(file)).all()
            versions.add(kept[:8])
            assert _native.coefficients_from_jpeg(file)[:8] in versions

    assert versions == {b"\x9bPSC\x01\0\0\0"}


@pytest.mark.parametrize(("name", "kind"), [("decode-index-1", "tiles"), ("decode-index-1-rows", "rows")])
def test_decode_indices_are_used(name: str, kind: str, tmp_path: Path) -> None:
    """The native decoder accepts each table, and a crop that is decoded with it has the same pixels."""
    path, seen = extract(name, tmp_path) / "photos.lmdb", 0
    with ps.open(path) as store:
        held = SeekTableFile(seek_table_path(store.location, "image"), store.fingerprint(), len(store))
        for record, table in zip(store, held.get(range(len(store))), strict=True):
            if table is not None:
                image, seen = bytes(record.fields["image"]), seen + 1
                assert (_native.inspect_index(image, table) or ("",))[0] == kind
                assert (
                    _native.decode(image, (30, 20, 60, 70), index=table, found=[]) == ps.decode(image)[20:70, 30:60]
                ).all()

    assert (seen, held.kind) == (2, kind)


def test_splits_are_read(tmp_path: Path) -> None:
    """JSON and CSV give the same parts as when they were written."""
    folder, packs = extract("split-1", tmp_path), extract("pack-1", tmp_path)
    expected = json.loads((folder / "parts.json").read_text())

    for name in ("split.json", "split.csv"):
        split = ps.Split.read(folder / name, packs / "photos.lmdb")
        assert {part: split[part].tolist() for part in split.names} == expected


@pytest.mark.parametrize("name", ["doctor-report-1", "doctor-report-2"])
def test_reports_of_the_doctor_are_read(name: str, tmp_path: Path) -> None:
    """A report can be compared with another one."""
    report = json_report.read_json(extract(name, tmp_path) / "report.json")

    assert json_report.compare(report, {**report, "waiting": 2.0})[1].split()[::2] == ["waiting", "2"]


@pytest.mark.parametrize("name", STATES)
def test_states_are_resumed(name: str, tmp_path: Path) -> None:
    """The rest of the epoch, and the next one, are the batches that the code which wrote the state gave."""
    for path in sorted(extract(name, tmp_path).glob("*.json")):
        kept: dict[str, Any] = json.loads(path.read_text())
        if kept["loader"].startswith("torch"):
            pytest.importorskip("torch")
        np.random.seed(1)  # noqa: NPY002  # a state does not depend on it
        loader = make_loader(kept["loader"])

        loader.load_state_dict(kept["state"])

        assert [take(loader, 99), take(loader, 99)] == kept["expected"], path.stem
        loader.close()
