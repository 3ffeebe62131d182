"""Checks of a store find every record that cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import StoreError
from penstock.sample import Record
from penstock.stores.base import Indices
from penstock.stores.images.store import FilesStore
from penstock.stores.location import Location
from penstock.stores.problems import Problem


def test_check_reads_records_together_and_names_each_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records are read at once, and one by one only where that fails; progress counts up to the last one."""
    for number in range(150):
        (tmp_path / f"{number:03}.jpg").write_bytes(b"\xff\xd8\xff%d" % number)
    read, asked, seen = FilesStore.read, [], []

    def fail(self: FilesStore, indices: Indices) -> list[Record]:
        asked.append(list(indices))
        if broken := {70, 149} & set(asked[-1]):
            raise StoreError("the disk is broken", key=f"{min(broken)}.jpg")
        return read(self, asked[-1])

    monkeypatch.setattr(FilesStore, "read", fail)
    location = Location.from_path("files", tmp_path)
    problems = list(FilesStore.check(location, lambda done, total: seen.append((done, total))))

    assert problems == [Problem("the disk is broken", f"{index}.jpg", index) for index in (70, 149)]
    assert [len(each) for each in asked if len(each) > 1] == [64, 64, 22]
    assert [each for each in asked if len(each) == 1] == [[index] for index in range(64, 150)]
    assert seen == [(64, 150), (128, 150), (150, 150)]
