"""Unfinished and finished stores that earlier versions wrote, in `written_before/`: they are resumed and read.

`python -m tests.stores.test_written_before FOLDER` made them, with the code before there was one journal.
"""

from __future__ import annotations

import errno
import json
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from penstock import stores
from penstock.errors import StoreError
from penstock.sample import Field, Schema
from penstock.stores.common import file_writer
from penstock.stores.common.lmdb.environment_writer import CommitLimits
from penstock.stores.lmdb_pack.writer import LmdbWriter
from penstock.stores.location import Location
from penstock.stores.origin import Origin
from penstock.stores.writing import CommittedRecords, Skipped, Writer

SCHEMA = Schema({"image": Field("image"), "label": Field("label", ("cat", "dog"))})
SOURCE = Origin("0123456789abcdef", {"check": "header", "transcode": "none"}).to_text()
SKIPPED = Skipped("2", 'it is "damaged"')
LIMITS = CommitLimits(records=2)


@dataclass(frozen=True)
class Case:
    """A store: its scheme and name, the options of its writer, the number of records that are committed."""

    scheme: str
    name: str
    held: int = 3
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> Any:
        """The class of the store."""
        return stores.STORES.get(self.scheme)

    def begin(self, folder: Path, source: str = SOURCE) -> Writer[Any]:
        """The writer of the store in this folder."""
        path = folder / self.name
        if self.scheme == "lmdb":
            return LmdbWriter(path, SCHEMA, source, limits=LIMITS)
        location = Location.from_path(self.scheme, path)
        writer: Writer[Any] = self.kind.writer(location, self.kind.storable(SCHEMA), source, **self.options)
        return writer

    def locate(self, folder: Path) -> Location:
        """Where the finished store is."""
        location: Location = self.kind.locate_written(
            Location.from_path(self.scheme, folder / self.name), **self.options
        )
        return location

    def find_finished(self, folder: Path) -> CommittedRecords | None:
        """What the finished store holds."""
        found: CommittedRecords | None = self.kind.finished(self.locate(folder), self.kind.storable(SCHEMA), SOURCE)
        return found

    def read_images(self, folder: Path) -> list[bytes]:
        """The images of the finished store, in order."""
        with stores.open(self.locate(folder)) as store:
            return [bytes(record.fields["image"]) for record in store]


CASES = [
    Case("tar", "a.tar"),
    Case("tar", "shards.tar", 4, {"shard_records": 2}),
    Case("hdf5", "a.h5"),
    Case("parquet", "a.parquet"),
    Case("parquet", "set", 4, {"shard_records": 2}),
    Case("files", "photos"),
    Case("lmdb", "a.lmdb", 4),
]
JOURNALS = {
    "a.tar": "a.tar.partial.json",
    "shards.tar": "shards.tar.partial.json",
    "a.h5": "a.h5.partial.json",
    "a.parquet": "a.parquet.partial.json",
    "set": "00001.parquet.partial.json",
    "photos": ".unfinished.json",
}


def make_image(number: int) -> bytes:
    """What looks like a PNG file."""
    return b"\x89PNG\r\n\x1a\n" + bytes([number]) * 40


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """A copy of the stores of before: an index is written beside some of them where they are read."""
    return Path(shutil.copytree(Path(__file__).parent / "written_before", tmp_path / "before"))


def append(writer: Writer[Any], stop: int) -> None:
    """Append the records that are not committed, up to one; record 2 is left out."""
    for number in range(writer.committed.consumed, stop):
        if number == 2:
            writer.skip(SKIPPED)
        else:
            writer.append(writer.prepare(str(number), {"image": make_image(number), "label": number % 2}))


def write_unfinished(case: Case, folder: Path) -> None:
    """Write five records, of which the last one is in no commit."""
    with mock.patch.object(file_writer, "_COMMIT_RECORDS", 2):
        writer = case.begin(folder)
        append(writer, 6 if case.scheme.startswith("lmdb") else 5)
        writer.close()


def write_finished(case: Case, folder: Path) -> None:
    """Write all records at once."""
    writer = case.begin(folder)
    append(writer, 7)
    writer.finish()
    writer.close()


@pytest.mark.parametrize("made", ["before", "now"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_unfinished_stores_are_resumed(case: Case, made: str, before: Path, tmp_path: Path) -> None:
    """A writer continues behind the last commit, and the store has the same records as one written at once."""
    folder = before / "unfinished" if made == "before" else tmp_path
    if made == "now":
        write_unfinished(case, folder)

    writer = case.begin(folder)
    committed = writer.committed
    append(writer, 7)
    writer.finish()
    writer.close()

    assert committed == CommittedRecords(case.held, case.held * len(make_image(0)), (SKIPPED,))
    assert case.read_images(folder) == case.read_images(before / "finished")
    assert case.find_finished(folder) == CommittedRecords(6, 6 * len(make_image(0)), (SKIPPED,))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_finished_stores_are_used_as_they_are(case: Case, before: Path) -> None:
    """What a store says about its source, its records and what was left out is read."""
    assert case.find_finished(before / "finished") == CommittedRecords(6, 6 * len(make_image(0)), (SKIPPED,))
    assert sorted(case.read_images(before / "finished")) == [make_image(number) for number in (0, 1, 3, 4, 5, 6)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_another_source_is_refused_and_changes_nothing(case: Case, before: Path) -> None:
    """The error says what is there, how it differs, and what to do; the writer it belongs to continues it."""
    with pytest.raises(
        StoreError, match=r"unfinished .* (is another one|of another source).* write as before to resume (it|them), or"
    ):
        case.begin(before / "unfinished", SOURCE.replace("0", "1"))

    writer = case.begin(before / "unfinished")
    assert writer.committed.records == case.held
    writer.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_one_writer_at_a_time(case: Case, before: Path) -> None:
    """A second writer is refused while the first one writes, and continues once it has ended."""
    first = case.begin(before / "unfinished")

    with pytest.raises(StoreError, match="another process is writing here"):
        case.begin(before / "unfinished")
    append(first, 7)
    first.close()

    second = case.begin(before / "unfinished")
    assert second.committed.records >= case.held
    second.close()


@pytest.mark.parametrize("case", [case for case in CASES if not case.scheme.startswith("lmdb")], ids=lambda c: c.name)
@pytest.mark.parametrize(
    "changed",
    [
        {"records": -1},
        {"records": 1 << 70},
        {"nbytes": None},
        {"skipped": [["2"]]},
        {"skipped": {"2": "x"}},
        {"schema": []},
        {"source": ...},
        {"lengths": [-1], "records": 7},
        {"lengths": [], "records": 7},
        {"lengths": [1 << 40], "records": 7},
    ],
    ids=str,
)
def test_damaged_journals_are_refused(case: Case, changed: dict[str, Any], before: Path) -> None:
    """Numbers have bounds and texts are texts: nothing is cut off or continued by a journal that cannot be right."""
    (journal,) = (before / "unfinished").rglob(JOURNALS[case.name])
    entry = {name: value for name, value in (json.loads(journal.read_text()) | changed).items() if value is not ...}
    journal.write_text(json.dumps(entry))
    sizes = {path: path.stat().st_size for path in (before / "unfinished").rglob("*") if path.is_file()}

    with pytest.raises(StoreError, match=r"damaged|shorter than its journal says"):
        case.begin(before / "unfinished")

    assert {path: path.stat().st_size for path in sizes} == sizes


@pytest.mark.parametrize("names", [b"cat/0.png\0dog/1.png\0", b"\0\0\0\0"])
def test_damaged_names_of_images_are_refused(names: bytes, before: Path) -> None:
    """There is a name for each record."""
    case = next(case for case in CASES if case.name == "photos")
    (before / "unfinished" / "photos" / ".unfinished.names").write_bytes(names)

    with pytest.raises(StoreError, match=r"\.unfinished\.json is damaged \(\.unfinished\.names.*remove the folder"):
        case.begin(before / "unfinished")


def test_a_file_system_without_locks_is_written_to(before: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A warning says that nothing keeps a second process out."""
    with mock.patch("fcntl.flock", side_effect=OSError(errno.ENOSYS, "Function not implemented")):
        writer = CASES[0].begin(before / "unfinished")
        writer.close()

    assert "this file system has no locks" in caplog.text


def main(folder: Path) -> None:
    """Make the files."""
    for case in CASES:
        write_unfinished(case, folder / "unfinished")
        write_finished(case, folder / "finished")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
