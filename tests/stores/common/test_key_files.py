"""Lists of keys: what names records of a store, and what is packed or left out by one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import ArgumentError, RecordKeyError, StateError
from penstock.stores.common.key_files import format_key_lines, format_keys, read_keys
from tests.pack.images import make_photos


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ps.Store]:
    """Twelve pictures in two classes."""
    with ps.open(make_photos(tmp_path / "photos")) as opened:
        yield opened


def test_records_are_found_in_the_order_of_the_keys(store: ps.Store) -> None:
    """Each key gives its record, in the order of the list; a key given twice gives it twice."""
    keys = [str(store.get_key(index)) for index in (7, 2, 7)]

    assert ps.find_keys(store, keys).tolist() == [7, 2, 7]


def test_files_of_both_forms_name_the_same_records(store: ps.Store, tmp_path: Path) -> None:
    """A text file has a key in each line, with any line ends; a .jsonl file an object, as an error log has."""
    keys = [str(store.get_key(index)) for index in (3, 5)]
    (tmp_path / "a.txt").write_bytes("\ufeff{}\r\n\n{}".format(*keys).encode())
    (tmp_path / "b.txt").write_text(format_keys(keys))
    (tmp_path / "c.jsonl").write_text(format_key_lines({"key": key, "reason": "x"} for key in keys))

    for name in ("a.txt", "b.txt", "c.jsonl"):
        assert ps.find_keys(store, tmp_path / name).tolist() == [3, 5]


def test_a_quarantine_list_leaves_out_its_records(store: ps.Store, tmp_path: Path) -> None:
    """All others stay, in the order of the store; keys of another store are allowed beside some of this one."""
    lines: list[dict[str, object]] = [{"key": store.get_key(4), "reason": "blurred"}, {"key": "of another store"}]
    (tmp_path / "quarantine.jsonl").write_text(format_key_lines(lines))

    found = ps.find_keys(store, tmp_path / "quarantine.jsonl", exclude=True)

    assert found.tolist() == [index for index in range(12) if index != 4]


def test_unknown_keys_are_named(store: ps.Store) -> None:
    """The first of them, whether some or all are unknown."""
    with pytest.raises(RecordKeyError, match=r"has no record for 7 keys: 'a0', 'a1', 'a2', 'a3', 'a4' and 2 more"):
        ps.find_keys(store, [str(store.get_key(0)), *(f"a{number}" for number in range(7))])
    with pytest.raises(RecordKeyError, match="has none of the 1 key to leave out: 'b'"):
        ps.find_keys(store, ["b"], exclude=True)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("keys.txt", b"\xff", "must be UTF-8, with a key in each line"),
        ("keys.jsonl", b'{"key": null}', "line 1 of keys.jsonl must have a text under 'key', got None"),
        ("keys.jsonl", b"[1]", "line 1 of keys.jsonl must be a JSON object, got list"),
        ("absent.txt", None, "cannot be read: No such file"),
        ("absent.jsonl", None, "cannot be read: there is no table"),
    ],
)
def test_files_that_are_no_lists_of_keys(tmp_path: Path, name: str, content: bytes | None, sentence: str) -> None:
    """One sentence says what is wrong, and where."""
    if content is not None:
        (tmp_path / name).write_bytes(content)

    with pytest.raises(ArgumentError, match=sentence):
        read_keys(tmp_path / name)


@pytest.mark.parametrize("key", ["", "two\nlines", "end\r", "\udcff"])
def test_keys_that_are_no_lines(key: str) -> None:
    """They are refused for a text file, and are whole in a .jsonl file."""
    with pytest.raises(ArgumentError, match="cannot be a line of a text file"):
        format_keys([key])
    assert json.loads(format_key_lines([{"key": key}]))["key"] == key


def test_the_state_of_another_list_is_refused(store: ps.Store) -> None:
    """A loader that leaves out other records does not resume it; one with the same list does."""

    def make(left_out: int) -> ps.DataLoader:
        dataset = ps.StoreDataset(store, fields="label")
        found = ps.find_keys(store, [str(store.get_key(left_out))], exclude=True)
        return ps.DataLoader(ps.Subset(dataset, found), batch_size=4, shuffle=True)

    first = make(3)
    batches = iter(first)
    next(batches)
    state, rest = first.state_dict(), [batch.tolist() for batch in batches]

    again, other = make(3), make(4)
    again.load_state_dict(state)
    assert [batch.tolist() for batch in again] == rest
    with pytest.raises(StateError):
        other.load_state_dict(state)


def test_packing_only_some_records(store: ps.Store, tmp_path: Path) -> None:
    """They are in the order of the source; the same keys in another order are the same pack, others another one."""
    keys = [str(store.get_key(index)) for index in (9, 1, 4)]
    target = tmp_path / "some.lmdb"

    ps.pack(store, target, keys=keys)

    with ps.open(target) as packed:
        assert list(packed.keys()) == [store.get_key(index) for index in (1, 4, 9)]
        assert bytes(packed[1].fields["image"]) == bytes(store[4].fields["image"])
    assert ps.pack(store, target, keys=keys[::-1]).reused
    with pytest.raises(ArgumentError, match="another"):
        ps.pack(store, target, keys=keys[:2])


def test_packing_unknown_keys(store: ps.Store, tmp_path: Path) -> None:
    """Nothing is written."""
    with pytest.raises(RecordKeyError, match="has no record for 1 key: 'x'"):
        ps.pack(store, tmp_path / "some.lmdb", keys=["x"])
    with pytest.raises(ArgumentError, match="keys must have at least one key"):
        ps.pack(store, tmp_path / "some.lmdb", keys=[])
    with pytest.raises(ArgumentError, match="keys needs a source whose keys are known before it is read"):
        ps.pack(({"value": number} for number in range(3)), tmp_path / "some.lmdb", keys=["1"])
    assert not (tmp_path / "some.lmdb").exists()


def test_a_broken_file_that_is_not_asked_for(tmp_path: Path) -> None:
    """It does not prevent that others are packed; one that is asked for does."""
    folder = make_photos(tmp_path / "photos", 4)
    (folder / "cats" / "0.jpg").write_bytes(b"")

    report = ps.pack(folder, tmp_path / "some.lmdb", keys=["cats/2.jpg", "dogs/1.jpg"])

    assert (report.records, report.skipped) == (2, ())
    with pytest.raises(ps.PackError, match=r"cats/0\.jpg"):
        ps.pack(folder, tmp_path / "other.lmdb", keys=["cats/0.jpg"])


def test_a_killed_pack_of_some_keys_is_resumed(store: ps.Store, tmp_path: Path) -> None:
    """It continues behind what was committed, to the same records."""
    keys = [str(store.get_key(index)) for index in range(0, 12, 2)]

    def stop(now: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ps.pack(store, tmp_path / "some.lmdb", keys=keys, progress=stop)
    ps.pack(store, tmp_path / "some.lmdb", keys=keys)

    with ps.open(tmp_path / "some.lmdb") as packed:
        assert list(packed.keys()) == keys
