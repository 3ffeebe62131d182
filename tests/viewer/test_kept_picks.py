"""Picks that are kept: by key, for the next viewer of the store, in the user's state folder."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from tests.browser.many import ManyStore
from tests.pack.images import make_photos

Ask = Callable[..., Any]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of twelve pictures."""
    return make_photos(tmp_path / "photos")


def change(asker: Any, picked: Container[int], dropped: Container[int] = (), query: str = "") -> int:
    """Tell the viewer what the page changed; the status."""
    total = asker.viewer.session.collection.total
    masks = np.array([[index in chosen for index in range(total)] for chosen in (picked, dropped)], bool)
    body = np.packbits(masks.reshape(2, total), axis=1, bitorder="little").tobytes()
    status: int = asker.request(f"api/picks{query}", None, "POST", body)[0]
    return status


def list_picks(asker: Any) -> tuple[list[int], int]:
    """Indices of the picked records, and how many keys are gone."""
    found = asker.json("api/picks")
    bits = np.unpackbits(np.frombuffer(base64.b64decode(found["bits"]), np.uint8), bitorder="little")
    return np.flatnonzero(bits).tolist(), found["gone"]


def list_files(folder: Path) -> list[str]:
    """All paths below a folder."""
    return sorted(str(path) for path in folder.rglob("*"))


def test_picks_are_there_in_the_next_viewer(photos: Path, ask: Ask, state_home: Path) -> None:
    """They are those of the store, not of another one; what one viewer changes, another that runs has."""
    other = make_photos(state_home.parent / "other")
    first = ask(photos)
    assert change(first, {2, 9}) == 200
    second = ask(photos)
    assert list_picks(second) == ([2, 9], 0)

    assert change(second, {11}, {9}) == 200

    assert list_picks(first) == list_picks(ask(photos)) == ([2, 11], 0)
    assert list_picks(ask(other)) == ([], 0)


def test_nothing_is_written_before_something_is_picked(photos: Path, ask: Ask, state_home: Path) -> None:
    """Nor to the store ever."""
    before, asker = list_files(photos), ask(photos)
    assert list_picks(asker) == ([], 0)
    assert asker.json("api/rows?sort=set:picked")["total"] == 0
    assert not state_home.exists()

    change(asker, {0})
    assert [Path(path).suffix for path in list_files(state_home)] == ["", "", ".json"]
    change(asker, set(), {0})

    assert list_picks(ask(photos)) == ([], 0)
    assert list_files(photos) == before


def test_a_store_that_changed_keeps_the_picks_whose_keys_exist(photos: Path, ask: Ask) -> None:
    """Their indices may be others. The keys that are gone are counted, and come back with their records."""
    with ask(photos).viewer as viewer:
        keys = list(viewer.session.collection.store.keys())
    change(ask(photos), {1, 2, 11})
    gone = photos / keys[2]
    content = gone.read_bytes()
    gone.unlink()
    (photos / keys[0]).unlink()

    changed = ask(photos)
    assert list_picks(changed) == ([0, 9], 1)
    change(changed, {5})
    gone.write_bytes(content)

    assert list_picks(ask(photos)) == ([0, 1, 6, 10], 0)


def test_keys_that_are_gone_are_forgotten_on_demand(photos: Path, ask: Ask) -> None:
    """As the page asks when its picks are cleared."""
    change(ask(photos), {1, 2})
    with ps.open(photos) as store:
        (photos / store.keys()[2]).unlink()
    asker = ask(photos)
    picked, gone = list_picks(asker)
    assert (picked, gone) == ([1], 1)

    change(asker, set(), set(picked), "?forget=1")

    assert list_picks(asker) == list_picks(ask(photos)) == ([], 0)


def test_records_with_one_key_are_told_apart(tmp_path: Path, ask: Ask) -> None:
    """By their index, as long as it has the key; then all of them are picked."""

    def write(keys: list[str]) -> Path:
        path = tmp_path / "t.parquet"
        pq.write_table(pa.table({"key": keys, "value": list(range(len(keys)))}), path)
        return path

    with ps.open(write(["a", "b", "a"]), key="key") as store:
        change(ask(store), {2})
        assert list_picks(ask(store)) == ([2], 0)
    with ps.open(write(["b", "a", "b", "a"]), key="key") as store:
        assert list_picks(ask(store)) == ([1, 3], 0)


@pytest.mark.parametrize("key", ["one\nline", "\udcff", "", "\0", "k" * 100_000])
def test_any_key_is_kept(ask: Ask, key: str) -> None:
    """Also one that is no line of a text file, or no text."""
    store = ManyStore(2, keys=["a", key])

    change(ask(store), {1})

    assert list_picks(ask(store)) == ([1], 0)


def test_the_picked_records_are_a_set(photos: Path, ask: Ask) -> None:
    """In the order of the store; of these, those that match the filter."""
    asker = ask(photos)
    change(asker, {9, 2, 3})

    def show(query: str) -> list[int]:
        return [row["index"] for row in asker.json(f"api/rows?sort=set:picked{query}")["rows"]]

    assert show("") == [2, 3, 9]
    assert show("&q=index%3C5") == [2, 3]
    assert asker.json("api/find/histograms?sort=set:picked")["matched"] == 3


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"picked": 1}', '{"picked": [1]}', '{"picked": [["a", []]]}'])
def test_a_file_that_cannot_be_read_is_named(photos: Path, ask: Ask, state_home: Path, text: str) -> None:
    """It is not replaced: it may have picks of a year."""
    asker = ask(photos)
    change(asker, {1})
    (path,) = state_home.rglob("*.json")
    path.write_text(text)

    status, _, body = asker.request("api/picks")

    assert status == 422
    assert str(path) in json.loads(body)["error"]
    assert (change(asker, {2}), path.read_text()) == (422, text)


def test_a_folder_that_cannot_be_written_is_said(photos: Path, ask: Ask, state_home: Path) -> None:
    """The sentence names it; the page goes on with its picks."""
    state_home.write_text("a file")

    asker = ask(photos)

    assert change(asker, {1}) == 422


def test_a_user_without_a_home_is_told_what_to_set(photos: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs with a number that has no name."""

    def find_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", find_home)
    status, _, body = ask(photos).request("api/picks")

    assert (status, "name a folder in XDG_STATE_HOME" in json.loads(body)["error"]) == (422, True)


def test_samples_of_a_dataset_are_kept_as_long_as_the_viewer(ask: Ask, state_home: Path) -> None:
    """They have numbers, which another dataset has too."""

    class Squares:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> tuple[Any, int]:
            return np.full((8, 8, 3), index, np.uint8), index

    first = ask(Squares())
    assert change(first, {1}) == 200

    assert list_picks(first) == ([1], 0)
    assert list_picks(ask(Squares())) == ([], 0)
    assert not state_home.exists()


@pytest.mark.parametrize("body", [b"", b"\0\0", b"\0" * 5, b"\0" * 100_000])
def test_wrong_bodies(photos: Path, ask: Ask, body: bytes) -> None:
    """400 and a sentence."""
    status, _, text = ask(photos).request("api/picks", None, "POST", body)

    assert status == 400
    assert "the body must have a bit for each record, 4 bytes, got" in json.loads(text)["error"]


def test_a_store_without_records(ask: Ask) -> None:
    """It has no picks, and the page asks all the same."""
    asker = ask(ManyStore(0))

    assert (list_picks(asker), change(asker, set())) == (([], 0), 200)
