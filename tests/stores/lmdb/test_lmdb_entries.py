"""The entries of an environment are those that LMDB's own library finds; a damaged file never gives others silently."""

from __future__ import annotations

import random
from pathlib import Path

import lmdb
import numpy as np
import pytest

from penstock.errors import StoreError, StoreFormatError
from penstock.stores.lmdb.entries import LmdbEntries, find_environment_file, peek_entries, scan_entries
from tests.conformance.lmdb_layouts import write
from tests.effort import choose_tries


def scan(path: Path | str) -> LmdbEntries:
    """The entries of the environment at ``path``."""
    file = find_environment_file(path)
    return scan_entries(file, memoryview(file.read_bytes()), "lmdb://x")


def make(path: Path, count: int = 700) -> dict[bytes, bytes]:
    """An environment of several levels, with values from none to several pages; gives its entries."""
    rng = np.random.default_rng(3)
    keys = [f"{'k' * int(rng.integers(0, 60))}{number}".encode() for number in range(count)]
    entries = {key: rng.bytes(int(rng.choice([0, 1, 30, 900, 2100, 5000, 20_000]))) for key in keys}
    write(path, entries.items())
    return dict(sorted(entries.items()))


def test_entries_are_those_of_the_library(tmp_path: Path) -> None:
    """Keys and values in order, as py-lmdb's cursor gives them."""
    make(tmp_path / "set")
    with lmdb.open(str(tmp_path / "set"), readonly=True, lock=False) as environment, environment.begin() as transaction:
        wanted = [(bytes(key), bytes(value)) for key, value in transaction.cursor()]

    entries = scan(tmp_path / "set")

    assert [(entries.key(row), bytes(entries.value(row))) for row in range(len(entries))] == wanted
    assert list(entries.iterate_keys()) == [key for key, _ in wanted]
    assert entries.find(wanted[77][0]) == 77
    assert entries.find(b"nothing") is None
    assert entries.last_bytes().tolist() == [key[-1] for key, _ in wanted]


def test_an_environment_that_was_changed_is_read(tmp_path: Path) -> None:
    """After deletions and later transactions, free pages are no entries, and the newest meta page counts."""
    entries = make(tmp_path / "set")
    gone = list(entries)[::3]
    for key in gone[:5]:
        with (
            lmdb.open(str(tmp_path / "set"), map_size=1 << 25) as environment,
            environment.begin(write=True) as writing,
        ):
            writing.delete(key)
    with lmdb.open(str(tmp_path / "set"), map_size=1 << 25) as environment, environment.begin(write=True) as writing:
        for key in gone[5:]:
            writing.delete(key)
        writing.put(list(entries)[1], b"new")

    found = scan(tmp_path / "set")

    wanted = {key: value for key, value in entries.items() if key not in gone} | {list(entries)[1]: b"new"}
    assert {found.key(row): bytes(found.value(row)) for row in range(len(found))} == wanted


def test_peeking_gives_a_few_leaves(tmp_path: Path) -> None:
    """The first, the last and the looked-up entries, in order."""
    entries = list(make(tmp_path / "set"))

    peeked = peek_entries(tmp_path / "set", [entries[333]])

    assert peeked is not None
    assert len(peeked) < len(entries) // 3
    assert peeked.key(0) == entries[0]
    assert peeked.key(len(peeked) - 1) == entries[-1]
    assert peeked.find(entries[333]) is not None
    assert peek_entries(tmp_path) is None


def test_numbers_are_parsed(tmp_path: Path) -> None:
    """Decimal keys as numbers with their digits; others are -1."""
    keys = [b"0", b"7", b"007", b"123456789012345678", b"1234567890123456789", b"1_", b"x", b"-1", b"1 "]
    write(tmp_path / "set", [(key, b"") for key in keys])

    entries = scan(tmp_path / "set")
    numbers, digits = entries.parse_numbers()
    found = dict(zip(entries.iterate_keys(), zip(numbers.tolist(), digits.tolist(), strict=True), strict=True))

    assert found == {
        b"0": (0, 1), b"7": (7, 1), b"007": (7, 3), b"123456789012345678": (123456789012345678, 18),
        b"1234567890123456789": (-1, 0), b"1_": (-1, 0), b"x": (-1, 0), b"-1": (-1, 0), b"1 ": (-1, 0),
    }  # fmt: skip


@pytest.mark.parametrize("dupsort", [False, True])
def test_other_databases_are_refused(tmp_path: Path, dupsort: bool) -> None:
    """Named databases, and several values for a key, are no layout; the message says so."""
    with lmdb.open(str(tmp_path / "set"), map_size=1 << 20, max_dbs=2) as environment:
        environment.open_db(b"named", dupsort=dupsort)

    with pytest.raises(StoreFormatError, match="named databases"):
        scan(tmp_path / "set")
    assert peek_entries(tmp_path / "set") is None


def test_an_empty_environment_has_no_entries(tmp_path: Path) -> None:
    """Nothing is found where nothing is."""
    write(tmp_path / "set", [])

    assert len(scan(tmp_path / "set")) == 0


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    """At every page, and within pages: an entry that is cut off is noticed when the file is opened."""
    entries = make(tmp_path / "set", 60)
    whole = (tmp_path / "set" / "data.mdb").read_bytes()
    refused = 0
    for nbytes in [*range(0, len(whole), 2048), len(whole) - 1]:
        (tmp_path / "set" / "data.mdb").write_bytes(whole[:nbytes])
        try:
            found = scan(tmp_path / "set")
        except StoreError:
            refused += 1
        else:  # only free pages are missing
            assert {found.key(row): bytes(found.value(row)) for row in range(len(found))} == entries

    assert refused >= len(whole) // 2048 - 4


@pytest.mark.tries
def test_changed_bytes_are_read_or_refused(tmp_path: Path) -> None:
    """A flipped bit anywhere gives values or an error of ours, whichever page it is in."""
    make(tmp_path / "set", 60)
    whole = (tmp_path / "set" / "data.mdb").read_bytes()
    rng = random.Random(5)
    heads = [page + at for page in range(0, len(whole), 4096) for at in range(0, 64, 3)]
    rng.shuffle(heads)
    places = [*heads[: choose_tries(len(heads))], *(rng.randrange(len(whole)) for _ in range(choose_tries(300)))]
    for at in places:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << rng.randrange(8)
        (tmp_path / "set" / "data.mdb").write_bytes(damaged)
        try:
            found = scan(tmp_path / "set")
        except StoreError:
            continue
        for row in range(len(found)):
            try:
                found.value(row)
            except ValueError:
                break
