"""What the base of stores over files does for a kind: damage and files that are not regular become errors of ours."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import pytest

from penstock.errors import CorruptRecordError, StoreError
from penstock.sample import Field, Record, Schema
from penstock.stores.container import DAMAGE, ContainerStore


class NumberStore(ContainerStore[list[int]]):
    """Numbers in a text file, as a kind of somebody else that names no damage itself."""

    kind: ClassVar[str] = "numbers"
    damage = (*DAMAGE, RuntimeError)
    _schema = Schema({"number": Field("int")})

    def __len__(self) -> int:
        return 1

    def open_files(self) -> list[int]:
        """Parse the numbers."""
        return [int(text) for text in self.location.local_path.read_text().split()]

    def read_record(self, opened: list[int], index: int) -> Record:
        """Return a number."""
        return Record(index, str(index), {"number": opened[index]})

    def read_column(self, opened: list[int], field: str) -> Iterable[object]:
        """Fail as a library does that has errors of its own."""
        raise RuntimeError(f"{field} of {opened} has no end")


def test_damage_that_opening_finds_names_the_store(tmp_path: Path) -> None:
    """What a parser raises in `open_files` for wrong bytes becomes a CorruptRecordError."""
    path = tmp_path / "1.txt"
    path.write_text("one")

    with (
        NumberStore(path) as store,
        pytest.raises(CorruptRecordError, match="the store is damaged: invalid literal") as caught,
    ):
        store.read([0])

    assert caught.value.where["store"] == store.url


def test_damage_of_a_kind_is_damage_of_its_columns(tmp_path: Path) -> None:
    """What a kind adds to `damage` is named for columns too."""
    path = tmp_path / "1.txt"
    path.write_text("1")

    with NumberStore(path) as store, pytest.raises(CorruptRecordError, match="the column of field 'number' is damaged"):
        store.column("number")


def test_a_fifo_is_no_file_of_a_store(tmp_path: Path) -> None:
    """A kind that opens its files by their paths waits for no writer: what is no regular file is refused before."""
    path = tmp_path / "1.txt"
    os.mkfifo(path)

    with pytest.raises(StoreError, match=r"1\.txt is not a regular file"):
        NumberStore(path)
